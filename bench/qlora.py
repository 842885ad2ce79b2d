"""Training of additions on a base of few bits (QLoRA, arXiv:2305.14314), beside PEFT and bitsandbytes.

    python bench/qlora.py --lfactor ./lfactor --model HF-DIR [--work DIR] [--threads 2] [--steps 20] [--rows 4] [--length 256]
                          [--way nf4|gptq] [--dtype fp32]

The model is saved in few bits: NF4 with scales in eight bits by bitsandbytes, or GPTQ (4 bits, groups of 32, rounded to nearest) by the formulas of
bench/golden/quantized.py. lfactor trains rank 16 on all linear layers with lora.base=kept, on windows of a text as they come; PEFT trains on the same
windows from the same additions: on bitsandbytes' layers for NF4, and for GPTQ, whose kernels want a GPU, on the same weights as numbers, so that only
the losses are compared. Printed: the greatest difference of losses, peaks of resident memory (VmHWM of the process), and the medians of the steps'
seconds. Exits with 1 if losses differ by more than 1e-3. Needs torch, transformers, peft and bitsandbytes; lfactor needs none of them.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from rows import row

sys.path[0] = str(pathlib.Path(__file__).parent / "golden")  # not bench, whose kernels.py is no package of that name
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def nf4(model, out):
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    conf = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
    m = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, quantization_config=conf)
    m.save_pretrained(out)


def gptq(model, out, numbers):
    """Rounded to nearest; numbers gets the same weights as such."""
    import torch
    from quantized import stream
    from safetensors.torch import load_file, save_file

    a, b = {}, {}
    for name, w in load_file(model / "model.safetensors").items():
        if not name.endswith(tuple(x + ".weight" for x in LINEAR)):
            a[name] = b[name] = w
            continue
        n, k = w.shape
        g = w.float().reshape(n, k // 32, 32)
        low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
        scale = ((high - low) / 15).half()
        zero = torch.round(-low / scale.float()).clamp(0, 15)
        q = (torch.round(g / scale.float()[..., None]) + zero[..., None]).clamp(0, 15)
        b[name] = ((q - zero[..., None]) * scale.float()[..., None]).reshape(n, k).contiguous()
        base = name.removesuffix(".weight")
        q, zero = q.reshape(n, k).t().long(), zero.t().long()
        a[base + ".qweight"], a[base + ".scales"], a[base + ".qzeros"] = stream(q, 4, 0), scale.t().contiguous(), stream((zero - 1) & 15, 4, 1)
        a[base + ".g_idx"] = (torch.arange(k) // 32).int()
    for d, tensors in ((out, a), (numbers, b)):
        d.mkdir(exist_ok=True)
        save_file(tensors, d / "model.safetensors", metadata=dict(format="pt"))
        shutil.copy(model / "config.json", d)
    conf = json.loads((out / "config.json").read_text())
    conf["quantization_config"] = dict(quant_method="gptq", bits=4, group_size=32, desc_act=False, sym=False, checkpoint_format="gptq")
    (out / "config.json").write_text(json.dumps(conf))


def sides(model, out):
    for f in model.iterdir():
        if "token" in f.name or f.name.endswith(".jinja"):
            shutil.copy(f, out)


def run(args, base, work):
    """lfactor's losses, seconds and peak; and the additions that it begins with, as PEFT's."""
    (work / "run.yaml").write_text(f"""
model: {{path: {base}}}
data: {{kind: text, paths: [{work}/text.txt], seq_len: {args.length}, shuffle: false}}
train: {{steps: {args.steps}, global_batch: {args.rows}, micro_batch: {args.rows}, log_interval: 1, seed: 3, precision: {args.dtype}}}
optimizer: {{lr: 1.0e-3, weight_decay: 0, clip_grad: 1.0}}
schedule: {{kind: constant, warmup_steps: 0}}
plan: {{threads: {args.threads}, recompute: {args.recompute}}}
lora: {{rank: 16, alpha: 32, targets: ["*_proj"], base: kept}}
checkpoint: {{dir: {work}/ckpt}}
log: {{dir: {work}/log}}
""")
    for d in ("start", "ckpt", "log"):
        shutil.rmtree(work / d, ignore_errors=True)
    call(args, "train", work / "run.yaml", "train.steps=0", "checkpoint.save_hf=true", f"checkpoint.save_hf_path={work}/start")
    shutil.rmtree(work / "ckpt", ignore_errors=True)
    shutil.rmtree(work / "log", ignore_errors=True)
    peak = call(args, "train", work / "run.yaml")
    steps = [json.loads(x) for x in (work / "log" / "metrics.jsonl").read_text().splitlines()]
    steps = [s for s in steps if "loss" in s and "seconds" in s]
    return [s["loss"] for s in steps], [s["seconds"] for s in steps], peak


def call(args, *words):
    """Runs lfactor; the peak of its resident memory in bytes."""
    env = dict(os.environ, GOMAXPROCS=str(args.threads))
    p = subprocess.Popen([args.lfactor, *map(str, words)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    err = p.stderr.read()
    _, status, used = os.wait4(p.pid, 0)
    if status:
        sys.exit(f"lfactor {' '.join(map(str, words))}: {err}")
    return used.ru_maxrss * 1024


def peer(args, base, work):
    """PEFT's losses and seconds; runs in a process of its own."""
    import torch
    from peft import PeftModel, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(args.threads)
    dtype = dict(fp32=torch.float32, bf16=torch.bfloat16)[args.dtype]
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="sdpa")
    full = args.recompute == "full"
    if args.way == "nf4":
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=full)
    model = PeftModel.from_pretrained(model, work / "start", is_trainable=True)
    model.config.use_cache = False
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0, betas=(0.9, 0.95), eps=1e-8)
    ids = AutoTokenizer.from_pretrained(args.model)((work / "text.txt").read_text(), return_tensors="pt")["input_ids"][0]
    losses, took, at = [], [], 0
    for _ in range(args.steps):
        rows = torch.stack([ids[at + i * args.length : at + (i + 1) * args.length + 1] for i in range(args.rows)])
        at += args.rows * args.length
        began = time.perf_counter()
        logits = model(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        took.append(time.perf_counter() - began)
        losses.append(loss.item())
    peak = next(int(x.split()[1]) * 1024 for x in pathlib.Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    print(json.dumps(dict(losses=losses, took=took, peak=peak)))


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--lfactor", default="./lfactor")
    a.add_argument("--model", type=pathlib.Path, required=True)
    a.add_argument("--work", type=pathlib.Path, default=pathlib.Path("qlora"))
    for name, value in dict(threads=2, steps=20, rows=4, length=256).items():
        a.add_argument(f"--{name}", type=int, default=value)
    a.add_argument("--way", default="nf4", choices=["nf4", "gptq"])
    a.add_argument("--dtype", default="fp32", choices=["fp32", "bf16"])
    a.add_argument("--recompute", default="none", choices=["none", "full"])
    a.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = a.parse_args()
    args.lfactor, args.work, args.model = os.path.abspath(args.lfactor), args.work.absolute(), args.model.absolute()
    base, numbers = args.work / args.way, args.work / "numbers"
    if args.peer:
        return peer(args, base if args.way == "nf4" else numbers, args.work)
    args.work.mkdir(exist_ok=True)
    if not base.exists():
        nf4(args.model, base) if args.way == "nf4" else gptq(args.model, base, numbers)
        sides(args.model, base)
    docs = pathlib.Path(__file__).parent.parent / "docs"
    (args.work / "text.txt").write_text("".join(p.read_text() for p in sorted(docs.glob("*.md"))))
    losses, took, peak = run(args, base, args.work)
    out = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--peer"], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    theirs = json.loads(out.stdout.splitlines()[-1])
    far = max(abs(x - y) for x, y in zip(losses, theirs["losses"], strict=True))
    print("| what | lfactor | PEFT | ratio |\n|---|---|---|---|")
    print(f"| loss of the first and the last step | {losses[0]:.4f}, {losses[-1]:.4f} | {theirs['losses'][0]:.4f}, {theirs['losses'][-1]:.4f} | differ by at most {far:.1e} |")
    mine, other = statistics.median(took[1:]), statistics.median(theirs["took"][1:])
    print(f"| seconds of a step | {mine:.3f} | {other:.3f} | {other / mine:.2f} |")
    print(f"| peak of resident memory, MiB | {peak / 2**20:.0f} | {theirs['peak'] / 2**20:.0f} | {peak / theirs['peak']:.2f} |")
    row(f"QLoRA {args.way} {args.dtype}, {args.threads} threads", [mine], {"PEFT + bitsandbytes": [other]}, less=True, memory=(peak, theirs["peak"]))
    sys.exit(0 if far <= 1e-3 else 1)


if __name__ == "__main__":
    main()
