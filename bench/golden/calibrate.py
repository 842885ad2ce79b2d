"""Writes stages/calibrate/testdata/{inputs,gptq,gptq_order,awq}.json: codes that plain PyTorch chooses, in float64.

GPTQ is algorithm 1 of arXiv:2210.17323 as its authors' gptq.py has it, column by column without blocks: H = 2/rows xT x, 1 % of its mean diagonal
added, the upper Cholesky factor of its inverse, the scale of a group found when its first column's turn comes (by search, zero 8, as float16). gptq_order has columns sorted
by the diagonal first, as the authors' act-order does, and the numbers by their dequantization with g_idx. AWQ is llm-awq's auto_scale and auto_clip (arXiv:2306.00978): twenty powers of mean magnitudes, and clips down to a half, a zero and a scale
for a group. Run from the repository's root.
"""

import json
import pathlib

import torch

torch.set_default_dtype(torch.float64)
OUT = pathlib.Path("stages/calibrate/testdata")


def half(x):
    return x.half().double()


def searched(w):
    """The scale of each row, of twenty from the greatest magnitude over 7.5 down, with the least sum of errors to the power of 2.25."""
    first = w.abs().amax(1, keepdim=True) / 7.5
    scales = torch.cat([first * (1 - i / 50) for i in range(20)], 1)[..., None]
    off = (torch.where(scales > 0, torch.round(w[:, None] / scales), 0).clamp(-8, 7) * scales - w[:, None]).abs().pow(2.25).sum(-1)
    return scales[torch.arange(len(w)), off.argmin(1), 0]


def gptq(w, x, group, order=False):
    n, k = w.shape
    h = 2 / len(x) * x.T @ x
    dead = h.diagonal() == 0
    h[dead, dead] = 1
    w = w.clone()
    w[:, dead] = 0
    if order:
        perm = torch.argsort(h.diagonal(), descending=True, stable=True)
        w, h = w[:, perm], h[perm][:, perm]
    h += 0.01 * h.diagonal().mean() * torch.eye(k)
    u = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True)
    codes, scales = torch.zeros(n, k), torch.zeros(n, k // group)
    for j in range(k):
        if j % group == 0:
            scale = half(searched(w[:, j:j + group]))
            scales[:, j // group] = scale
        q = torch.where(scale > 0, (torch.round(w[:, j] / scale) + 8).clamp(0, 15), 8)
        codes[:, j] = q
        e = (w[:, j] - (q - 8) * scale) / u[j, j]
        w[:, j:] -= e[:, None] * u[j, j:]
    if order:
        back = torch.argsort(perm)
        return codes[:, back], scales, (torch.arange(k) // group)[back]
    return codes, scales


def grid(w):
    """w [..., group]: what it is in whole numbers, and they with scale and zero."""
    high, low = w.amax(-1, keepdim=True), w.amin(-1, keepdim=True)
    scale = half((high - low).clamp(min=1e-5) / 15)
    zero = (-torch.round(low / scale)).clamp(0, 15)
    q = (torch.round(w / scale) + zero).clamp(0, 15)
    return (q - zero) * scale, q, scale, zero


def awq(ws, x, group):
    n, k = ws[0].shape
    mags, h = x.abs().mean(0), x.T @ x
    best = (float("inf"), None)
    for p in range(20):
        by = mags.pow(p / 20).clamp(min=1e-4)
        by = by / (by.max() * by.min()).sqrt()
        off = 0
        for w in ws:
            q = grid((w * by).reshape(n, -1, group))[0].reshape(n, k) / by
            off += ((x @ (q - w).T) ** 2).sum().item()
        if off < best[0]:
            best = (off, by)
    by = best[1]
    out = []
    for w in ws:
        w = (w * by).reshape(n, -1, group)
        parts = (x / by).reshape(len(x), -1, group)
        limit = w.abs().amax(-1, keepdim=True)
        least, clip = torch.full(limit.shape, float("inf")), limit.clone()
        for step in range(10):
            to = limit * (1 - step / 20)
            q = grid(w.clamp(-to, to))[0]
            off = torch.einsum("tgj,ngj->tng", parts, q - w).pow(2).sum(0)[..., None]
            clip, least = torch.where(off < least, to, clip), torch.minimum(off, least)
        _, q, scale, zero = grid(w.clamp(-clip, clip))
        out.append(dict(codes=q.reshape(n, k).int().tolist(), scales=scale[..., 0].tolist(), zeros=zero[..., 0].int().tolist()))
    return by, out


def main():
    torch.manual_seed(1)
    n, k, rows, group = 16, 192, 256, 64
    mix = torch.randn(k, k) / k**0.5 + torch.diag(torch.linspace(0.1, 3, k))
    x = (torch.randn(rows, k) @ mix * 16).round() / 16
    w = (torch.randn(2, n, k) * 64).round() / 256
    x[:, 5] = 0
    OUT.mkdir(exist_ok=True)
    codes, scales = gptq(w[0], x, group)
    shared = dict(group=group, x=[(v * 16).int().tolist() for v in x], w=[(v * 256).int().tolist() for v in w])
    (OUT / "inputs.json").write_text(json.dumps(shared, separators=(",", ":")) + "\n")
    (OUT / "gptq.json").write_text(json.dumps(dict(codes=codes.int().tolist(), scales=scales.tolist()), separators=(",", ":")) + "\n")
    codes, scales, g_idx = gptq(w[0], x, group, order=True)
    numbers = ((codes - 8) * scales[:, g_idx]).float()
    both = dict(codes=codes.int().tolist(), scales=scales.tolist(), numbers=numbers.tolist())
    (OUT / "gptq_order.json").write_text(json.dumps(both, separators=(",", ":")) + "\n")
    by, out = awq(list(w), x, group)
    (OUT / "awq.json").write_text(json.dumps(dict(by=by.tolist(), matrices=out), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
