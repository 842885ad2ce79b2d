"""Writes stages/optim/testdata/more.json: weights after 200 steps of optimizers that are no part of torch, on gradients that integers give:
schedulefree's AdamWScheduleFree (1.4.1), as it trains and as it is evaluated, and torchao's AdamW8bit (0.18), with the dynamic maps of its
moments; and torch.optim.Adafactor, and that of transformers with steps of a fixed rate. Run from the repository's root, with torch, torchao, transformers and schedulefree: python bench/golden/optimizers_more.py
"""

import json
import math
import pathlib

import torch
from schedulefree import AdamWScheduleFree
from torchao.optim import AdamW8bit
from torchao.optim.quant_utils import create_dynamic_map
from transformers import Adafactor

STEPS = 200


def numbers(n, salt):
    """Numbers of [-1, 1) in float32: bits 8 to 23 of a product."""
    i = torch.arange(n, dtype=torch.int64)
    return ((((i + 1) * 2654435761 + (salt + 1) * 40503 * (i % 97 + 3)) >> 8) % 65536 - 32768).float() / 32768


def gradient(n, step):
    """That of a step: some elements are large, some small, with a drift."""
    i = torch.arange(n, dtype=torch.int64)
    return (numbers(n, step) + 0.25) * (1.0 / 2 ** (i % 11).float())


def run(kind, shape, finish=None, **args):
    n = math.prod(shape)
    p = torch.nn.Parameter(numbers(n, 1000).reshape(shape))
    opt = kind([p], **args)
    if hasattr(opt, "train"):
        opt.train()
    for step in range(STEPS):
        p.grad = gradient(n, step).reshape(shape)
        opt.step()
    out = dict(shape=list(shape), weights=p.detach().flatten()[::7].tolist())
    if finish:
        opt.eval()
        out["evaluated"] = p.detach().flatten()[::7].tolist()
    return out


def main():
    torch.set_num_threads(1)
    out = dict(
        signed=create_dynamic_map(signed=True), unsigned=create_dynamic_map(signed=False),
        schedule_free=run(AdamWScheduleFree, (3, 20), finish=True, lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False),
        eight=run(AdamW8bit, (16, 512), lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, block_size=256))
    fixed = dict(lr=0.01, scale_parameter=False, relative_step=False, warmup_init=False, weight_decay=0.1, clip_threshold=0.7)
    out["adafactor"] = [dict(fixed=how is not torch.optim.Adafactor, **run(how, shape, **args)) for shape in [(12, 20), (60,), (4, 30)]
                        for how, args in [(torch.optim.Adafactor, dict(lr=0.05, weight_decay=0.1, d=1.0, foreach=False)), (Adafactor, fixed)]]
    pathlib.Path("stages/optim/testdata/more.json").write_text(json.dumps(out) + "\n")


main()
