"""Kernels of a training step, lfactor and PyTorch side by side, in alternating rounds.

    python bench/kernels.py --lfactor ./lfactor [--precision fp32 bf16] [--threads 1 2] [--rounds 3] [--only attention] [--no-compile]

The shapes are those of `lfactor bench kernels`: batch 4, length 512, 512 wide, 8 heads of 64, 1408 inner, vocabulary 32000. A kernel has a line for each way
in which PyTorch offers it, named in the second column: eager; torch.compile (needs a C++ compiler) where there is something to fuse; AdamW's three loops. Attention
is scaled_dot_product_attention. "cross-entropy of logits" is the loss and the gradient of given logits, without the head's product; the other two lines have it,
as lfactor's kernels do. Prints the median time of each side, the ratio (above 1: lfactor is faster), lfactor's GB/s and share of the machine's peak.
PyTorch runs with the allocator settings of bench/step.py.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


class Round:
    """Times of PyTorch's kernels: seconds by kernel and way."""

    def __init__(self, precision, threads, only, compiled):
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(1)
        self.torch, self.precision, self.only, self.compiled, self.out = torch, precision, only, compiled, {}
        self.d = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]

    def want(self, name):
        return self.only in name

    def timed(self, name, f, way="eager", fuse=False):
        """fuse: also as compiled."""
        import time

        if not self.want(name):
            return
        for way, f in [(way, f)] + ([("compiled", self.torch.compile(f, dynamic=False))] if fuse and self.compiled else []):
            f(), f()
            best, began = 1e9, time.perf_counter()
            while time.perf_counter() - began < 0.1:
                a = time.perf_counter()
                f()
                best = min(best, time.perf_counter() - a)
            self.out.setdefault(name, {})[way] = best

    def randn(self, *shape, grad=False):
        return self.torch.randn(*shape, dtype=self.d, requires_grad=grad)


T, W, FF, V, H, E = 2048, 512, 1408, 32000, 8, 64


def products(r):
    import torch.nn.functional as F

    for n, k in ((W, W), (FF, W), (W, FF), (3 * W, W)):
        x, m, y = r.randn(T, k), r.randn(n, k), r.randn(T, n)
        r.timed(f"linear {T}×{n}×{k}", lambda: F.linear(x, m))
        r.timed(f"linear dx {T}×{n}×{k}", lambda: y @ m)
        r.timed(f"linear dw {T}×{n}×{k}", lambda: y.t() @ x)


def attention(r):
    import torch
    import torch.nn.functional as F

    for s, n in ((4, 512), (1, 4096)):
        q, k, val = (r.randn(s, H, n, E, grad=True) for _ in range(3))
        go = r.randn(s, H, n, E)
        with torch.no_grad():
            r.timed(f"attention {s}×{n}", lambda: F.scaled_dot_product_attention(q, k, val, is_causal=True))
        if r.want(f"attention backward {s}×{n}"):
            o = F.scaled_dot_product_attention(q, k, val, is_causal=True)
            r.timed(f"attention backward {s}×{n}", lambda: torch.autograd.grad(o, (q, k, val), go, retain_graph=True))


def elementwise(r):
    import torch
    import torch.nn.functional as F

    x, weight, bias = r.randn(T, W), r.randn(W), r.randn(W)

    def rms():
        f = x.float()
        return weight * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    r.timed("rmsnorm", rms, fuse=True)
    r.timed("rmsnorm", lambda: F.rms_norm(x, (W,), weight, 1e-5), "eager rms_norm")
    r.timed("layernorm", lambda: F.layer_norm(x, (W,), weight, bias), fuse=True)
    g, u, go = r.randn(T, FF, grad=True), r.randn(T, FF, grad=True), r.randn(T, FF)
    gd, ud = g.detach(), u.detach()
    r.timed("swiglu", lambda: F.silu(gd) * ud, fuse=True)
    r.timed("gelu", lambda: F.gelu(gd), fuse=True)
    if not r.want("swiglu backward"):
        return
    swiglu = lambda g, u: F.silu(g) * u
    for way, f in [("eager", swiglu)] + ([("compiled", torch.compile(swiglu, dynamic=False))] if r.compiled else []):
        y = f(g, u)
        # Compiled code may give its saved tensors away: then forward and backward together, less the forward.
        if way == "eager":
            r.timed("swiglu backward", lambda: torch.autograd.grad(y, (g, u), go, retain_graph=True))
        else:
            r.timed("both", lambda: torch.autograd.grad(f(g, u), (g, u), go), way)
            r.timed("forward", lambda: f(g, u), way)
    if "both" in r.out:
        r.out["swiglu backward"]["compiled"] = r.out.pop("both")["compiled"] - r.out.pop("forward")["compiled"]


def loss(r):
    import torch
    import torch.nn.functional as F

    target = torch.randint(0, V, (T,))
    if r.want("cross-entropy of logits"):
        z = r.randn(T, V, grad=True)

        def whole(z):
            return F.cross_entropy(z.float(), target)

        for way, f in [("eager", whole)] + ([("compiled", torch.compile(whole, dynamic=False))] if r.compiled else []):
            r.timed("cross-entropy of logits", lambda: torch.autograd.grad(f(z), z), way)
        del z
    xe, head = r.randn(T, W, grad=True), r.randn(V, W, grad=True)
    if r.want("cross-entropy"):
        with torch.no_grad():
            r.timed("cross-entropy", lambda: F.cross_entropy(F.linear(xe, head).float(), target))

        def both():
            torch.autograd.grad(F.cross_entropy(F.linear(xe, head).float(), target), (xe, head))

        only, r.only = r.only, ""
        r.timed("both", both)
        r.only = only
        r.out["cross-entropy backward"] = {"eager": r.out.pop("both")["eager"] - r.out["cross-entropy"]["eager"]}


def adamw(r):
    import torch

    if r.precision != "fp32" or not r.want("adamw, 8 Mi"):
        return
    p = torch.randn(8 << 20, requires_grad=True)
    p.grad = torch.randn_like(p)
    for way, options in (("eager", {}), ("eager foreach", dict(foreach=True)), ("eager fused", dict(fused=True))):
        r.timed("adamw, 8 Mi", torch.optim.AdamW([p], lr=1e-3, **options).step, way)
    if r.compiled:
        opt = torch.optim.AdamW([p], lr=torch.tensor(1e-3), foreach=False)
        opt.step()
        r.timed("adamw, 8 Mi", torch.compile(opt.step), "compiled")


def torch_round(precision, threads, only, compiled):
    r = Round(precision, threads, only, compiled)
    for part in (products, attention, elementwise, loss, adamw):
        part(r)
    return r.out


def lines(name, ours, theirs):
    """A line for each way in which PyTorch has the kernel."""
    s, peak, rate = (statistics.median(x[i] for x in ours) for i in range(3))
    for way in theirs or {"-": [float("nan")]}:
        other = statistics.median(theirs[way]) if theirs else float("nan")
        print(f"  {name:<28} {way:<15} {1e3 * s:10.3f} {1e3 * other:10.3f} {other / s:7.2f} {rate / 1e9:7.1f} {100 * peak:7.0f} %", flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--lfactor", required=True)
    a.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    a.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--only", default="", help="only kernels whose name contains this")
    a.add_argument("--no-compile", dest="compile", action="store_false")
    a.add_argument("--torch-round", nargs=2, help=argparse.SUPPRESS)
    a = a.parse_args()
    if a.torch_round:
        print(json.dumps(torch_round(a.torch_round[0], int(a.torch_round[1]), a.only, a.compile)))
        return
    for precision in a.precision:
        for threads in a.threads:
            ours, theirs = {}, {}
            env = os.environ | dict(OMP_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="8000000000", MALLOC_TOP_PAD_="268435456")
            same = ["--only", a.only]
            for _ in range(a.rounds):
                text = subprocess.run([a.lfactor, "bench", "kernels", "--precision", precision, "--threads", str(threads), "--rounds", "3", "-o", "json", *same], check=True, capture_output=True, text=True).stdout
                for k in json.loads(text):
                    ours.setdefault(k["name"], []).append((k["seconds"], k["of_peak"], k["bytes"] / k["seconds"]))
                round = [sys.executable, __file__, "--lfactor", a.lfactor, "--torch-round", precision, str(threads), *same] + ([] if a.compile else ["--no-compile"])
                text = subprocess.run(round, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
                for name, ways in json.loads(text).items():
                    for way, s in ways.items():
                        theirs.setdefault(name, {}).setdefault(way, []).append(s)
            print(f"{precision}, {threads} thread(s)            PyTorch         lfactor ms   torch ms   ratio    GB/s   of peak")
            for name, rounds in ours.items():
                lines(name, rounds, theirs.get(name))


if __name__ == "__main__":
    main()
