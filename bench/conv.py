"""Convolutions forward and backward, lfactor and PyTorch (oneDNN) side by side, in alternating rounds.

    python bench/conv.py [--precision fp32 bf16] [--threads 1 2] [--rounds 3]

The shapes are those of BenchmarkConv in kernels/cpu: Wan's autoencoder, Stable Diffusion's, SDXL's U-Net, ResNet-18, and the batches of small pictures that ACT's has. PyTorch has each
in its own order of axes and channels last; the faster of the two counts. Backward is both gradients. Prints the best time of each side over all rounds, the ratio
(above 1: lfactor is faster), and geometric means.
"""

import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
import time

SHAPES = {
    "wan in": ((1, 9, 64, 64, 3), (96, 3, 3, 3, 3), 1, 1), "wan 96": ((1, 5, 64, 64, 96), (96, 96, 3, 3, 3), 1, 1),
    "wan 192": ((1, 5, 32, 32, 192), (192, 192, 3, 3, 3), 1, 1), "wan 384": ((1, 5, 16, 16, 384), (384, 384, 3, 3, 3), 1, 1),
    "sd 128": ((1, 128, 128, 128), (128, 128, 3, 3), 1, 1), "sd 256": ((1, 64, 64, 256), (256, 256, 3, 3), 1, 1),
    "sd 512": ((1, 32, 32, 512), (512, 512, 3, 3), 1, 1), "sdxl 320": ((1, 64, 64, 320), (320, 320, 3, 3), 1, 1),
    "sdxl 640": ((1, 32, 32, 640), (640, 640, 3, 3), 1, 1), "sdxl down": ((1, 64, 64, 320), (320, 320, 3, 3), 2, 1),
    "resnet in": ((4, 224, 224, 3), (64, 3, 7, 7), 2, 3), "resnet 128": ((4, 28, 28, 128), (128, 128, 3, 3), 1, 1),
    "act 64": ((16, 24, 24, 64), (64, 64, 3, 3), 1, 1), "act 128": ((16, 12, 12, 128), (128, 128, 3, 3), 1, 1),
    "act 256": ((16, 6, 6, 256), (256, 256, 3, 3), 1, 1), "act 512": ((16, 3, 3, 512), (512, 512, 3, 3), 1, 1),
    "act down 256": ((16, 12, 12, 128), (256, 128, 3, 3), 2, 1), "act down 512": ((16, 6, 6, 256), (512, 256, 3, 3), 2, 1),
}


def torch_round(precision, threads, least):
    import torch

    torch.set_num_threads(threads)
    d = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    out = {}

    def timed(name, f):
        f()
        best, began = 1e9, time.perf_counter()
        while time.perf_counter() - began < least:
            a = time.perf_counter()
            f()
            best = min(best, time.perf_counter() - a)
        out[name] = min(out.get(name, 1e9), best)

    for name, (x, w, stride, pad) in SHAPES.items():
        rank = len(x) - 2
        conv = [torch.conv1d, torch.conv2d, torch.conv3d][rank - 1]
        for form in (torch.contiguous_format, [None, torch.channels_last, torch.channels_last_3d][rank - 1]):
            xs = torch.randn(x[0], x[-1], *x[1:-1], dtype=d).contiguous(memory_format=form)
            ws = torch.randn(*w, dtype=d).contiguous(memory_format=form)
            with torch.no_grad():
                y = conv(xs, ws, None, stride, pad)
                timed(name + " forward", lambda: conv(xs, ws, None, stride, pad))
                timed(name + " backward", lambda: torch.ops.aten.convolution_backward(
                    y, xs, ws, None, [stride] * rank, [pad] * rank, [1] * rank, False, [0] * rank, 1, [True, True, False]))
    return out


def own_round(binary, precision, threads):
    pattern = f"BenchmarkConv/{ {'fp32': 'f32', 'bf16': 'bf16'}[precision] }/{threads}"
    text = subprocess.run([binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchtime", "3x"], capture_output=True, text=True, check=True).stdout
    out = {}
    for m in re.finditer(r"BenchmarkConv/\w+/\d/(\S+?)/(\w+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op\s+([\d.]+) GF/s", text):
        name, part = m[1].replace("_", " "), m[2]
        x, w, stride, pad = SHAPES[name]
        y = x[0] * math.prod((s + 2 * pad - k) // stride + 1 for s, k in zip(x[1:-1], w[2:])) * w[0]
        seconds = 2 * y * math.prod(w[1:]) / float(m[4]) / 1e9  # of the best call
        key = name + (" forward" if part == "forward" else " backward")
        out[key] = out.get(key, 0) + seconds
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--least", type=float, default=0.2, help="seconds that PyTorch repeats a call")
    p.add_argument("--torch", nargs=2, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch:  # a process of its own: threads are set once
        print(repr(torch_round(a.torch[0], int(a.torch[1]), a.least)))
        return
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    with tempfile.TemporaryDirectory() as work:
        binary = os.path.join(work, "cpu.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./kernels/cpu"], cwd=root, check=True)
        for precision in a.precision:
            for threads in a.threads:
                ours, theirs = {}, {}
                for _ in range(a.rounds):
                    text = subprocess.run([sys.executable, __file__, "--least", str(a.least), "--torch", precision, str(threads)], capture_output=True,
                                          text=True, check=True).stdout
                    for all_of, one in ((theirs, eval(text)), (ours, own_round(binary, precision, threads))):
                        for k, v in one.items():
                            all_of[k] = min(all_of.get(k, 1e9), v)
                print(f"{precision}, {threads} thread(s)")
                for k in theirs:
                    print(f"  {k:22} lfactor {ours[k] * 1e3:8.2f} ms  PyTorch {theirs[k] * 1e3:8.2f} ms  {theirs[k] / ours[k]:5.2f}×")
                for part in ("forward", "backward"):
                    logs = [math.log(theirs[k] / ours[k]) for k in theirs if k.endswith(part)]
                    print(f"  geometric mean {part:9} {math.exp(sum(logs) / len(logs)):5.2f}×")


if __name__ == "__main__":
    main()
