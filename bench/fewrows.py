"""Products of few rows by matrices that come from memory, as decoding and serving multiply: lfactor beside PyTorch and numpy.

    python bench/fewrows.py [--level avx512|avx2] [--rows 2 4 8 16 32] [--rounds 3]

float32, one thread: x of so many rows by 576×1536 and 1536×576 (SmolLM2's), of which 128 MiB are used in turn. lfactor multiplies by
panels that it packed once, as a server keeps them; PyTorch and numpy by the weights as they are. Prints GFLOP/s, the medians of the rounds, and lfactor's ratio
to the faster peer. --level avx2 holds all sides to AVX2. Needs Go, torch and numpy.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
SHAPES = [(1536, 576), (576, 1536)]


def peers(rows):
    """GFLOP/s by peer and shape: the best of the passes over the matrices that fit into 0.4 s."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    out = {}
    for m in rows:
        for n, k in SHAPES:
            w = [torch.randn(n, k) for _ in range((128 << 20) // (n * k * 4))]
            x = torch.randn(m, k)
            a, b = x.numpy(), [t.numpy().T for t in w]
            for who, run in (("PyTorch", lambda: [torch.nn.functional.linear(x, t) for t in w]), ("numpy", lambda: [np.matmul(a, t) for t in b])):
                best, began = 1e9, time.perf_counter()
                with torch.no_grad():
                    while time.perf_counter() - began < 0.4:
                        at = time.perf_counter()
                        run()
                        best = min(best, time.perf_counter() - at)
                out[f"{who} {m}x{n}x{k}"] = 2e-9 * m * n * k * len(w) / best
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--level", choices=["avx512", "avx2"], default="avx512")
    p.add_argument("--rows", type=int, nargs="+", default=[2, 4, 8, 16, 32], choices=[2, 4, 8, 16, 32, 48, 384])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peers", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peers:
        print(json.dumps(peers(a.rows)))
        return
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if a.level == "avx2":
        env |= {"OPENBLAS_CORETYPE": "Haswell", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    ours, theirs = {}, {}
    with tempfile.TemporaryDirectory() as d:
        binary = os.path.join(d, "cpu.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./kernels/cpu"], cwd=ROOT, check=True)
        for _ in range(a.rounds):
            for m in a.rows:
                bench = f"FewRows/{a.level}/^{m}x"
                text = subprocess.run([binary, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", "0.4s"], cwd=ROOT / "kernels/cpu", capture_output=True, text=True, check=True).stdout
                for name, rate in re.findall(r"FewRows/\w+/(\w+?)(?:-\d+)?\s.*?([\d.]+) GFLOP/s", text):
                    ours.setdefault(name, []).append(float(rate))
            command = [sys.executable, __file__, "--peers", "--rows", *map(str, a.rows)]
            for name, rate in json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout).items():
                theirs.setdefault(name, []).append(rate)
    print(f"{'rows×n×k':16}{'lfactor':>9}{'PyTorch':>9}{'numpy':>9}{'ratio':>7}")
    for name, rates in ours.items():
        us = statistics.median(rates)
        them = {who: statistics.median(theirs[f"{who} {name}"]) for who in ("PyTorch", "numpy")}
        print(f"{name:16}{us:9.1f}{them['PyTorch']:9.1f}{them['numpy']:9.1f}{us / max(them.values()):7.2f}", flush=True)


if __name__ == "__main__":
    main()
