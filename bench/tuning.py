"""What follows pre-training, lfactor and the trainers that people take side by side, in alternating rounds: seconds of a step.

    python bench/tuning.py --lfactor ./lfactor [--case sft lora dpo grpo reward embed start] [--threads 2] [--rounds 3] [--steps 6] [--precision fp32]

A Llama of six layers (hidden 512, 8 heads of 64, a vocabulary of 4,096) with random weights and ChatML, which both read from one folder; AdamW, gradient clipping at norm 1. sft:
conversations packed into 4 rows of 512 tokens, of which the assistant's turns count (TRL's SFTTrainer with packing). lora: the same with rank 16 on all linear layers (PEFT). dpo: 8
pairs a step (DPOTrainer). grpo: 8 prompts, 4 answers of at most 64 tokens each (GRPOTrainer with transformers' generate). reward: 8 pairs (RewardTrainer). embed: 16 pairs, mean pooling
(sentence-transformers' MultipleNegativesRankingLoss). start: seconds from the command to the end of one step of sft. Prints medians, the ratio (above 1: lfactor is
faster), and the whole process's peak of resident memory. Needs torch, transformers, TRL, PEFT and sentence-transformers; lfactor needs none of them.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from rows import row

CONFIG = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8,
              head_dim=64, vocab_size=4096, max_position_embeddings=1024, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, initializer_range=0.02)
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def texts(rng, words, low, high):
    return " ".join(rng.choice(words) for _ in range(rng.randrange(low, high)))


def prepare(lfactor, work):
    """Data of each form, a tokenizer, and a model of random weights."""
    import torch
    import transformers

    rng = random.Random(1)
    words = ["".join(rng.choice("abdegiklmnoprstu") for _ in range(rng.randrange(2, 8))) for _ in range(3000)]
    write = lambda name, lines: (work / name).write_text("".join(json.dumps(x) + "\n" for x in lines))
    turn = lambda role, low, high: {"role": role, "content": texts(rng, words, low, high)}
    write("chat.jsonl", [{"messages": [turn("user", 10, 60), turn("assistant", 20, 120)]} for _ in range(3000)])
    write("pairs.jsonl", [{"prompt": [turn("user", 10, 60)], "chosen": [turn("assistant", 20, 100)], "rejected": [turn("assistant", 20, 100)]} for _ in range(400)])
    write("prompts.jsonl", [{"prompt": [turn("user", 10, 40)], "answer": str(i)} for i in range(400)])
    write("similar.jsonl", [{"anchor": texts(rng, words, 10, 60), "positive": texts(rng, words, 10, 60)} for _ in range(600)])
    write("texts.jsonl", [{"text": texts(rng, words, 80, 120)} for _ in range(2000)])
    subprocess.run([lfactor, "data", "tokenizer", str(work / "texts.jsonl"), "--to", str(work / "model"), "--vocab", "4096", "--chat"], check=True, capture_output=True)
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**{k: v for k, v in CONFIG.items() if k not in ("model_type", "architectures")})).save_pretrained(work / "model")


SETTINGS = {
    "sft": "data: {{kind: chat, paths: [{w}/chat.jsonl], seq_len: 512, packing: true}}\ntrain: {{phase: sft, global_batch: 4, micro_batch: 4, loss_average: token, {t}}}\n",
    "dpo": "data: {{paths: [{w}/pairs.jsonl], seq_len: 512}}\nobjective: {{kind: dpo, beta: 0.1}}\ntrain: {{global_batch: 8, micro_batch: 8, {t}}}\n",
    "grpo": "data: {{paths: [{w}/prompts.jsonl], seq_len: 256}}\nobjective: {{kind: grpo}}\nrollout: {{group: 4, max_tokens: 64}}\nreward: {{kind: math}}\n"
            "train: {{global_batch: 32, micro_batch: 8, {t}}}\n",
    "reward": "data: {{paths: [{w}/pairs.jsonl], seq_len: 512}}\nobjective: {{kind: reward}}\ntrain: {{global_batch: 8, micro_batch: 8, {t}}}\n",
    "embed": "data: {{paths: [{w}/similar.jsonl], seq_len: 128}}\nobjective: {{kind: infonce, temperature: 0.05, pooling: mean}}\ntrain: {{global_batch: 16, micro_batch: 16, {t}}}\n",
}
SETTINGS["lora"] = SETTINGS["sft"] + "lora: {{rank: 16, alpha: 32, targets: [" + ", ".join(f'"*.{x}"' for x in LINEAR) + "]}}\n"
SETTINGS["start"] = SETTINGS["sft"]


def ours(a, case, work, steps):
    with tempfile.TemporaryDirectory() as d:
        t = f"steps: {steps}, precision: {a.precision}, log_interval: 1"
        (work / "run.yaml").write_text(f"model: {{path: {work}/model}}\n" + SETTINGS[case].format(w=work, t=t) + "optimizer: {lr: 1.0e-5, clip_grad: 1.0}\n"
                                       f"schedule: {{kind: constant, warmup_steps: 0}}\ncheckpoint: {{dir: {d}/ck, interval: 100000}}\nlog: {{dir: {d}/log}}\n")
        began = time.perf_counter()
        p = subprocess.Popen([a.lfactor, "train", str(work / "run.yaml")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env=os.environ | dict(GOMAXPROCS=str(a.threads)))
        said = p.stderr.read()
        _, status, usage = os.wait4(p.pid, 0)
        if status:
            sys.exit(f"{case}: {said[-2000:]}")
        lines = [json.loads(x) for x in pathlib.Path(d, "log", "metrics.jsonl").read_text().splitlines()]
        return dict(seconds=[x["seconds"] for x in lines if "seconds" in x], peak=usage.ru_maxrss * 1024, all=time.perf_counter() - began)


def theirs(case, work, threads, steps, precision):
    """Runs in a process of its own."""
    import logging

    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    import datasets

    datasets.disable_progress_bars()
    seconds = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.began = time.perf_counter()

        def on_step_end(self, *_, **__):
            seconds.append(time.perf_counter() - self.began)

    read = lambda name: datasets.load_dataset("json", data_files=str(work / name), split="train", cache_dir=str(work / "cache"))
    model, tok = str(work / "model"), transformers.AutoTokenizer.from_pretrained(work / "model")
    common = dict(output_dir=str(work / "out"), max_steps=steps, learning_rate=1e-5, lr_scheduler_type="constant", max_grad_norm=1.0, use_cpu=True, report_to=[], save_strategy="no",
                  logging_strategy="no", disable_tqdm=True, bf16=precision == "bf16", optim="adamw_torch_fused", dataloader_pin_memory=False)
    load = dict(dtype=torch.float32)
    if case in ("sft", "lora", "start"):
        import trl

        more = {}
        if case == "lora":
            import peft

            more["peft_config"] = peft.LoraConfig(r=16, lora_alpha=32, target_modules=LINEAR, task_type="CAUSAL_LM")
        net = transformers.AutoModelForCausalLM.from_pretrained(model, **load)
        conf = trl.SFTConfig(**common, per_device_train_batch_size=4, max_length=512, packing=True, packing_strategy="wrapped", gradient_checkpointing=False)
        t = trl.SFTTrainer(net, conf, train_dataset=read("chat.jsonl"), processing_class=tok, callbacks=[Clock()], **more)
    elif case == "dpo":
        import trl

        net = transformers.AutoModelForCausalLM.from_pretrained(model, **load)
        t = trl.DPOTrainer(net, None, trl.DPOConfig(**common, per_device_train_batch_size=8, max_length=512, gradient_checkpointing=False), train_dataset=read("pairs.jsonl"),
                           processing_class=tok, callbacks=[Clock()])
    elif case == "reward":
        import trl

        net = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, pad_token_id=tok.pad_token_id, **load)
        t = trl.RewardTrainer(net, trl.RewardConfig(**common, per_device_train_batch_size=8, max_length=512, gradient_checkpointing=False), train_dataset=read("pairs.jsonl"),
                              processing_class=tok, callbacks=[Clock()])
    elif case == "grpo":
        import trl

        net = transformers.AutoModelForCausalLM.from_pretrained(model, **load)
        conf = trl.GRPOConfig(**common, per_device_train_batch_size=32, num_generations=4, max_completion_length=64, gradient_checkpointing=False)
        t = trl.GRPOTrainer(net, reward_funcs=lambda completions, answer, **_: [float(x in c[0]["content"]) for c, x in zip(completions, answer)], args=conf,
                            train_dataset=read("prompts.jsonl"), processing_class=tok, callbacks=[Clock()])
    else:
        import sentence_transformers as st
        from sentence_transformers.losses import MultipleNegativesRankingLoss
        from sentence_transformers.models import Normalize, Pooling, Transformer

        body = Transformer(model, max_seq_length=128)
        net = st.SentenceTransformer(modules=[body, Pooling(body.get_word_embedding_dimension(), pooling_mode="mean"), Normalize()], device="cpu").float()
        conf = st.SentenceTransformerTrainingArguments(**common, per_device_train_batch_size=16)
        t = st.SentenceTransformerTrainer(net, conf, train_dataset=read("similar.jsonl"), loss=MultipleNegativesRankingLoss(net, scale=20.0), callbacks=[Clock()])
    t.train()
    print(json.dumps(dict(seconds=seconds, peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)))


PEERS = dict(sft="TRL", lora="TRL + PEFT", dpo="TRL", grpo="TRL", reward="TRL", embed="sentence-transformers", start="TRL")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--case", nargs="+", default=list(PEERS), choices=list(PEERS))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--theirs", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.theirs:
        return theirs(a.theirs[0], pathlib.Path(a.theirs[1]), a.threads, a.steps, a.precision)
    a.lfactor = os.path.abspath(a.lfactor)
    env = os.environ | dict(OMP_NUM_THREADS=str(a.threads), HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="8000000000",
                            MALLOC_TOP_PAD_="268435456")
    print(f"{'':8}{'lfactor s':>10}{'peer s':>9}{'ratio':>7}{'MiB in all':>18}{'ratio':>7}", flush=True)
    with tempfile.TemporaryDirectory() as d:
        work = pathlib.Path(d)
        prepare(a.lfactor, work)
        for case in a.case:
            mine, other, peaks = [], [], []
            for _ in range(a.rounds):
                steps = 1 if case == "start" else a.steps
                x = ours(a, case, work, steps)
                began = time.perf_counter()
                out = subprocess.run([sys.executable, __file__, "--theirs", case, d, "--threads", str(a.threads), "--steps", str(steps), "--precision", a.precision], env=env,
                                     capture_output=True, text=True)
                took = time.perf_counter() - began
                if out.returncode:
                    sys.exit(f"{case}: {out.stderr[-2000:]}")
                y = json.loads(out.stdout.splitlines()[-1])
                mine.append(x["all"] if case == "start" else statistics.median(x["seconds"][1:]))
                other.append(took if case == "start" else statistics.median(y["seconds"][1:]))
                peaks.append((x["peak"], y["peak"]))
            us, them = statistics.median(mine), statistics.median(other)
            m, n = (statistics.median(x) for x in zip(*peaks))
            print(f"{case:8}{us:10.3f}{them:9.3f}{them / us:7.2f}{m / 2**20:9.0f}{n / 2**20:9.0f}{m / n:7.2f}", flush=True)
            row(f"{case} {a.precision}, {a.threads} threads", mine, {PEERS[case]: other}, less=True, memory=(m, n))


if __name__ == "__main__":
    main()
