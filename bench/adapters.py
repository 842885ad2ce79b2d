"""Losses of adapters in lfactor and in PEFT: families x (attention, MLP, all linear layers, a glob, experts; those and all merged).

    python bench/adapters.py --lfactor ./lfactor [--work DIR] [family ...]

For each golden model and set of targets, lfactor trains additions for 3 steps, writes them with `ckpt convert`, and says the loss of the checkpoint
with `eval`. What it wrote is loaded by PEFT onto the base that lfactor exported, or, where lora.merge adds it to the weights, by transformers alone; their
loss of the same tokens has to be the same within 1e-5 of it, every tensor of the adapter has to be in a layer, and the loss has to be another than the
base's. A set that lfactor refuses, because PEFT has no adapter for it, is counted with its reason. Prints docs/checkpoints.md's table, and exits with 1
where a loss differs. Needs torch, transformers and peft; lfactor needs none of them.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.pop(0)  # bench, whose kernels.py is no package of that name

import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "stages/family/testdata"
FAMILIES = ["llama3.1", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "glm4", "phi3", "gpt2", "smollm3", "mixtral", "qwen3-moe", "qwen2-moe",
            "deepseek-v2", "deepseek-v3", "glm4-moe", "ernie4.5-moe", "gpt-oss", "minimax-m2", "qwen3-next", "qwen3.5"]
TARGETS = {"attention": ["*.self_attn.*_proj", "*.linear_attn.*proj*"], "MLP": ["*.mlp.*_proj"], "all linear": ["*proj*"],
           "glob": ["model.layers.1.*.[kd]*_proj"], "experts": ["*.experts.*"]}
IDS = [(7 * i + 3) % 29 for i in range(24)] + [3]


def tokens(prefix):
    """One document in Megatron's form, which needs no tokenizer; all of its windows are the same."""
    ids = IDS[:-1] * 8 + IDS[:1]
    prefix.with_suffix(".bin").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
    prefix.with_suffix(".idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQiqqq", 1, 4, 1, 2, len(ids), 0, 0, 1))


def call(args, *words):
    p = subprocess.run([args.lfactor, *map(str, words)], capture_output=True, text=True, cwd=args.work)
    return p.returncode, p.stdout, p.stderr


def must(args, *words):
    code, out, err = call(args, *words)
    if code:
        sys.exit(f"lfactor {' '.join(map(str, words))}: {code}\n{err}")
    return out


def train(args, family, *more):
    for d in ("ckpt", "log", "adapter", "merged"):
        shutil.rmtree(args.work / d, ignore_errors=True)
    return call(args, "train", "run.yaml", "-q", f"model.path={GOLDEN / family}", *more)


def loss(model):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([IDS[:-1]]), use_cache=False).logits[0].float()
    return F.cross_entropy(logits, torch.tensor(IDS[1:])).item()


def load(path):
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float32).eval()


def adapted(args):
    """PEFT's loss, of the base that lfactor exported; every tensor has to be in a layer."""
    path = args.work / "adapter"
    model = PeftModel.from_pretrained(load(args.work / "base"), path).eval()
    have = {n.replace(".default", "") for n, _ in model.named_parameters() if ".lora_" in n}
    lost = have ^ set(load_file(path / "adapter_model.safetensors"))
    if lost:
        sys.exit(f"PEFT and the adapter differ in {sorted(lost)[:4]}")
    return loss(model)


def cell(args, family, patterns, plain, merge):
    """A cell of the table, and how far off the loss is."""
    keys = ["lora.rank=2", "lora.alpha=6", f"lora.merge={str(merge).lower()}"]
    while patterns:
        targets = f"lora.targets=[{','.join(repr(x) for x in patterns)}]"
        code, _, err = train(args, family, *keys, targets)
        none = re.search(r'"([^"]*)" matches nothing', err)
        if not code or not none:
            break
        patterns = [x for x in patterns if x != none[1]]
    if not patterns:
        return "–", 0
    if code and "leave it out, or set lora.merge=true" in err:
        print(f"  {family}: {err.strip().splitlines()[-1].split('lora.targets: ')[-1]}", file=sys.stderr)
        return "refused", 0
    if code:
        sys.exit(f"{family}, {targets}: {err}")
    ours = json.loads(must(args, "eval", "run.yaml", f"model.path={GOLDEN / family}", *keys, targets, "-o", "json"))["loss"]
    if merge:
        must(args, "ckpt", "convert", "ckpt", "merged", "--no-probe")
        theirs = loss(load(args.work / "merged"))
    else:
        must(args, "ckpt", "convert", "ckpt", "adapter", "--no-probe")
        theirs = adapted(args)
    off = abs(theirs - ours) / abs(ours)
    if abs(theirs - plain) < 1e-4:
        sys.exit(f"{family}, {targets}: {theirs} is the loss of the base")
    return f"{off:.0e}".replace("e-0", "e-") if off else "0", off


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True, type=lambda x: pathlib.Path(x).resolve())
    p.add_argument("--work", type=pathlib.Path)
    p.add_argument("families", nargs="*", default=FAMILIES)
    args = p.parse_args()
    args.work = args.work or pathlib.Path(tempfile.mkdtemp())
    args.work.mkdir(exist_ok=True)
    torch.set_num_threads(2)
    logging.set_verbosity_error()
    tokens(args.work / "ids")
    (args.work / "run.yaml").write_text("""model: {path: none}
data: {kind: megatron, paths: [ids], valid: [ids], seq_len: 24, shuffle: false}
train: {steps: 3, global_batch: 2, micro_batch: 2, seed: 3, precision: fp32, eval_steps: 1}
optimizer: {lr: 3.0e-2, weight_decay: 0}
schedule: {kind: constant, warmup_steps: 0}
checkpoint: {dir: ckpt}
log: {dir: log}
""")
    columns = [*TARGETS, "experts, merged", "all linear, merged"]
    print("| model | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    worst, equal, refused = 0, 0, 0
    for family in args.families or FAMILIES:
        code, _, err = train(args, family, "train.steps=0")
        if code:
            sys.exit(err)
        shutil.rmtree(args.work / "base", ignore_errors=True)
        must(args, "ckpt", "convert", "ckpt", "base", "--no-probe")
        plain = loss(load(args.work / "base"))
        row = []
        for c in columns:
            name, _, merge = c.partition(", ")
            text, off = cell(args, family, TARGETS[name], plain, bool(merge))
            row.append(text)
            worst, refused, equal = max(worst, off), refused + (text == "refused"), equal + (text[0].isdigit())
        print(f"| {family} | " + " | ".join(row) + " |", flush=True)
    print(f"{equal} losses equal within {worst:.1e}, {refused} refused", file=sys.stderr)
    return worst > 1e-5


if __name__ == "__main__":
    sys.exit(main())
