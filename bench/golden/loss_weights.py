"""Write dataset/testdata/loss_weights.json: the gradient of a step's loss by the loss of each token, from PyTorch's autograd.

Run: python bench/golden/loss_weights.py. The loss is restated from LoongForge's loss_func_internvl and Megatron's schedules, one
replica after the other in place of the reduction over data-parallel ranks: each microbatch gives a weighted sum and a number of
tokens (the sum of weights; with all-gather, its mean over the replicas), schedules divide the one by the other and average over
microbatches, and gradients are averaged over replicas. With loss per token, sums and numbers are added up first. LoongForge rounds
numbers of tokens down to whole ones; that is left out.
"""
import json
import pathlib

import torch

OUT = pathlib.Path(__file__).parents[2] / "dataset/testdata/loss_weights.json"
IGNORE, SEQ = -100, 24
# Replicas, microbatches of a replica, segments of a microbatch as (length, trained labels); what is left of SEQ is padding.
STEP = [
    [[(9, 4), (15, 1)], [(6, 6)]],
    [[(5, 0), (10, 9), (3, 1)], [(24, 0)]],  # nothing to learn from a sample, and from a microbatch
    [[(24, 16)], [(8, 2), (8, 2), (7, 5)]],
]


def batch(segments):
    cu, labels, ids = [0], [], []
    for i, (n, trained) in enumerate(segments):
        labels += [IGNORE] * (n - trained) + [7] * trained
        cu.append(len(labels))
        ids.append(i)
    if len(labels) < SEQ:
        labels += [IGNORE] * (SEQ - len(labels))
        cu.append(SEQ)
        ids.append(-1)
    return {"cu": cu, "ids": ids, "labels": labels}


def len2weight(x, reduction):
    return {"token": 1.0, "sample": 1 / max(x, 1), "square": 1 / max(x, 1) ** 0.5}[reduction] if x else 0.0


def weights(b, reduction):
    out, labels = [], torch.tensor(b["labels"])
    for lo, hi in zip(b["cu"], b["cu"][1:]):
        n = int((labels[lo:hi] != IGNORE).sum())
        out += [len2weight(n, reduction)] * (hi - lo)
    return torch.where(labels == IGNORE, 0.0, torch.tensor(out, dtype=torch.float64))


def factors(step, reduction, mean):
    losses = [[torch.rand(SEQ, dtype=torch.float64, requires_grad=True) for _ in rank] for rank in step]
    w = [[weights(b, reduction) for b in rank] for rank in step]
    sums = [[(l * x).sum() for l, x in zip(*both)] for both in zip(losses, w)]
    tokens = [[float(x.sum()) for x in rank] for rank in w]
    replicas, micros = len(step), len(step[0])
    if mean == "token":
        total = sum(sum(rank) for rank in sums) / sum(sum(rank) for rank in tokens)
    else:
        if mean == "round":
            tokens = [[sum(t[k] for t in tokens) / replicas for k in range(micros)] for _ in step]
        total = sum(sum(s / n if n else s * 0 for s, n in zip(*both)) / micros for both in zip(sums, tokens)) / replicas
    total.backward()
    return [[l.grad.tolist() for l in rank] for rank in losses]


step = [[batch(m) for m in rank] for rank in STEP]
cases = [{"weight": r, "mean": m, "factors": factors(step, r, m)} for r in ("token", "sample", "square") for m in ("token", "microbatch", "round")]
OUT.write_text(json.dumps({"torch": torch.__version__, "shares": step, "cases": cases}, separators=(",", ":")) + "\n")
