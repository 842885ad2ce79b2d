"""Products of float32 of a training step, lfactor and numpy's OpenBLAS side by side, in alternating rounds.

    python bench/products.py --lfactor ./lfactor [--level avx2] [--threads 1] [--rounds 5]

The shapes are the linear layers of `lfactor bench kernels` (2048 tokens, 512 wide, 1408 inner, and 1536 for queries, keys and values at once), forward, gradient of the input, gradient of the weights. lfactor
adds the last into what is there; OpenBLAS overwrites. Prints the median of each side in GFLOP/s, the median ratio of the rounds (above 1: lfactor is faster) and
their geometric mean. --level avx2 holds both to AVX2 (LFACTOR_CPU=avx2, OPENBLAS_CORETYPE=Haswell); without it each takes what it takes by itself.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time


def numpy_side(names):
    """Seconds of the best of the calls that fit into 0.15 s, by name."""
    import numpy as np

    out = {}
    for name in names:
        m, n, k = map(int, name.split()[-1].split("×"))
        r = lambda *shape: np.random.rand(*shape).astype(np.float32)
        if name.startswith("linear dx"):
            a, b = r(m, n), r(n, k)
        elif name.startswith("linear dw"):
            a, b = r(m, n).T, r(m, k)
        else:
            a, b = r(m, k), r(n, k).T
        c = np.empty((a.shape[0], b.shape[1]), np.float32)
        best, began = 1e9, time.perf_counter()
        while time.perf_counter() - began < 0.15:
            at = time.perf_counter()
            np.matmul(a, b, out=c)
            best = min(best, time.perf_counter() - at)
        out[name] = best
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--level", choices=["avx2"])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--numpy-side", nargs="+", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.numpy_side:
        print(json.dumps(numpy_side(a.numpy_side)))
        return
    env = dict(os.environ, OPENBLAS_NUM_THREADS=str(a.threads))
    if a.level:
        env |= {"LFACTOR_CPU": "avx2", "OPENBLAS_CORETYPE": "Haswell"}
    ours, theirs, flops = {}, {}, {}
    for _ in range(a.rounds):
        command = [a.lfactor, "bench", "kernels", "--precision", "fp32", "--only", "linear", "--threads", str(a.threads), "-o", "json"]
        for k in json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout):
            ours.setdefault(k["name"], []).append(k["seconds"])
            flops[k["name"]] = k["flops"]
        text = subprocess.run([sys.executable, __file__, "--numpy-side", *ours], check=True, capture_output=True, text=True, env=env).stdout
        for name, s in json.loads(text).items():
            theirs.setdefault(name, []).append(s)
    total = 0
    for name in ours:
        ratio = statistics.median(t / o for o, t in zip(ours[name], theirs[name]))
        total += math.log(ratio)
        rate = lambda s: flops[name] / statistics.median(s) / 1e9
        print(f"{name:28}{rate(ours[name]):8.1f}{rate(theirs[name]):8.1f}{ratio:8.3f}")
    print(f"{'geometric mean':44}{math.exp(total / len(ours)):8.3f}")


if __name__ == "__main__":
    main()
