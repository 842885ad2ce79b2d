"""Kernels of a training step, lfactor and PyTorch side by side, in alternating rounds.

    python bench/kernels.py --lfactor ./lfactor [--precision fp32 bf16] [--threads 1 2] [--rounds 3]

The shapes are those of `lfactor bench kernels`: batch 4, length 512, 512 wide, 8 heads of 64, 1408 inner, vocabulary 32000. PyTorch is eager;
attention is scaled_dot_product_attention; cross-entropy includes the product with the head, as lfactor's does; AdamW is fused. Prints the median time of
each side and the ratio (above 1: lfactor is faster).
"""

import argparse
import json
import statistics
import subprocess
import sys


def torch_round(precision, threads):
    import time

    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    d = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    t, w, ff, v, h, e = 2048, 512, 1408, 32000, 8, 64
    out = {}

    def timed(name, f):
        f()
        best, began = 1e9, time.perf_counter()
        while time.perf_counter() - began < 0.06:
            a = time.perf_counter()
            f()
            best = min(best, time.perf_counter() - a)
        out[name] = best

    for n, k in ((w, w), (ff, w), (w, ff)):
        x, m, y = torch.randn(t, k, dtype=d), torch.randn(n, k, dtype=d), torch.randn(t, n, dtype=d)
        timed(f"linear {t}×{n}×{k}", lambda: F.linear(x, m))
        timed(f"linear dx {t}×{n}×{k}", lambda: y @ m)
        timed(f"linear dw {t}×{n}×{k}", lambda: y.t() @ x)
    for s, n in ((4, 512), (1, 4096)):
        q, k, val = (torch.randn(s, h, n, e, dtype=d, requires_grad=True) for _ in range(3))
        go = torch.randn(s, h, n, e, dtype=d)
        timed(f"attention {s}×{n}", lambda: F.scaled_dot_product_attention(q.detach(), k.detach(), val.detach(), is_causal=True))
        o = F.scaled_dot_product_attention(q, k, val, is_causal=True)
        timed(f"attention backward {s}×{n}", lambda: torch.autograd.grad(o, (q, k, val), go, retain_graph=True))
    x, weight, bias = torch.randn(t, w, dtype=d), torch.randn(w, dtype=d), torch.randn(w, dtype=d)

    def rms():
        f = x.float()
        return weight * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(d)

    timed("rmsnorm", rms)
    timed("layernorm", lambda: F.layer_norm(x, (w,), weight, bias))
    g, u = torch.randn(t, ff, dtype=d, requires_grad=True), torch.randn(t, ff, dtype=d, requires_grad=True)
    go = torch.randn(t, ff, dtype=d)
    timed("swiglu", lambda: F.silu(g.detach()) * u.detach())
    y = F.silu(g) * u
    timed("swiglu backward", lambda: torch.autograd.grad(y, (g, u), go, retain_graph=True))
    timed("gelu", lambda: F.gelu(g.detach()))
    xe, head = torch.randn(t, w, dtype=d, requires_grad=True), torch.randn(v, w, dtype=d, requires_grad=True)
    target = torch.randint(0, v, (t,))
    timed("cross-entropy", lambda: F.cross_entropy(F.linear(xe.detach(), head.detach()).float(), target))

    def both():
        loss = F.cross_entropy(F.linear(xe, head).float(), target)
        torch.autograd.grad(loss, (xe, head))

    timed("both", both)
    out["cross-entropy backward"] = out.pop("both") - out["cross-entropy"]
    if precision == "fp32":
        p = torch.randn(8 << 20, requires_grad=True)
        p.grad = torch.randn_like(p)
        opt = torch.optim.AdamW([p], lr=1e-3, fused=True)
        timed("adamw, 8 Mi", opt.step)
    return out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--lfactor", required=True)
    a.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    a.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--torch-round", nargs=2)
    a = a.parse_args()
    if a.torch_round:
        print(json.dumps(torch_round(a.torch_round[0], int(a.torch_round[1]))))
        return
    for precision in a.precision:
        for threads in a.threads:
            ours, theirs = {}, {}
            for _ in range(a.rounds):
                text = subprocess.run([a.lfactor, "bench", "kernels", "--precision", precision, "--threads", str(threads), "--rounds", "3", "-o", "json"], check=True, capture_output=True, text=True).stdout
                for k in json.loads(text):
                    ours.setdefault(k["name"], []).append((k["seconds"], k["of_peak"]))
                text = subprocess.run([sys.executable, __file__, "--lfactor", a.lfactor, "--torch-round", precision, str(threads)], check=True, capture_output=True, text=True).stdout
                for name, s in json.loads(text).items():
                    theirs.setdefault(name, []).append(s)
            print(f"{precision}, {threads} thread(s)          lfactor ms   torch ms   ratio   of peak")
            for name, rounds in ours.items():
                s, peak = statistics.median(x[0] for x in rounds), statistics.median(x[1] for x in rounds)
                other = statistics.median(theirs[name]) if name in theirs else float("nan")
                print(f"  {name:<32} {1e3 * s:9.3f} {1e3 * other:10.3f} {other / s:7.2f} {100 * peak:8.0f} %", flush=True)


if __name__ == "__main__":
    main()
