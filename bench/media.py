"""Decoding and resizing images; lfactor, Pillow and OpenCV side by side, in alternating rounds.

    python bench/media.py [--rounds 5]

Images are made here: 384x384 JPEGs of about 43 KB and others. Prints CPU milliseconds an image (the least over rounds) and
the ratio of the faster peer to lfactor, for decoding to RGB and for decoding and resizing to 224x224 with the bicubic filter (Pillow
alone: OpenCV's filter is another one). Needs Go, Pillow, opencv-python-headless and numpy; what comes out is compared with Pillow's by
the tests of dataset/media, bit for bit.
"""

import argparse
import io
import os
import pathlib
import re
import subprocess
import tempfile
import time

import cv2
import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).parents[1]


def image(seed, w, h, grain):
    """Shapes of many sizes under some grain, as a camera's images have."""
    rng = np.random.default_rng(seed)
    sum = np.full((h, w, 3), 128.0)
    for side, amount in ((6, 60), (24, 35), (96, 22), (192, 14)):
        layer = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((w, h), Image.Resampling.BICUBIC)
        sum += (np.asarray(layer, dtype=float) - 128) * amount / 128
    return Image.fromarray(np.clip(sum + rng.normal(0, grain, (h, w, 1)), 0, 255).astype(np.uint8))


KINDS = {
    "384x384 JPEG, quality 90": (384, 384, 4.0, ".jpg", dict(quality=90)),
    "384x384 JPEG, 4:4:4": (384, 384, 3.0, ".jpg", dict(quality=90, subsampling="4:4:4")),
    "384x384 JPEG, progressive": (384, 384, 4.0, ".jpg", dict(quality=90, progressive=True)),
    "1280x960 JPEG, quality 85": (1280, 960, 4.0, ".jpg", dict(quality=85)),
    "384x384 PNG": (384, 384, 4.0, ".png", {}),
    "1280x960 PNG": (1280, 960, 2.0, ".png", {}),
    "384x384 WebP, quality 80": (384, 384, 4.0, ".webp", dict(quality=80)),
    "1280x960 WebP, quality 75": (1280, 960, 2.0, ".webp", dict(quality=75)),
    "384x384 WebP, lossless": (384, 384, 4.0, ".webp", dict(lossless=True)),
    "1280x960 WebP, lossless": (1280, 960, 1.0, ".webp", dict(lossless=True)),
}


def pillow(body, resize):
    im = Image.open(io.BytesIO(body)).convert("RGB")
    return im.resize((224, 224), Image.Resampling.BICUBIC) if resize else im


def opencv(body, _):
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def time_peer(peer, body, resize):
    n = 0
    start = time.process_time()
    while (spent := time.process_time() - start) < 0.3:
        peer(body, resize)
        n += 1
    return spent / n * 1e3


def time_go(binary, folder):
    args = [binary, "-test.run", "^$", "-test.bench", "Images", "-test.benchtime", "0.3s", "-images", folder]
    out = subprocess.run(args, cwd=ROOT / "dataset/media", check=True, capture_output=True, text=True).stdout
    return {m[1]: float(m[2]) for m in re.finditer(r"BenchmarkImages/(\S+?)(?:-\d+)?\s.*?([\d.]+) cpu-ms/op", out)}


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--rounds", type=int, default=5)
    rounds = args.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "media.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=ROOT / "dataset/media", check=True)
        bodies = {}
        for i, (name, (w, h, grain, suffix, options)) in enumerate(KINDS.items()):
            b = io.BytesIO()
            image(i, w, h, grain).save(b, {".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}[suffix], **options)
            bodies[name] = b.getvalue()
            pathlib.Path(folder, f"{i:02}{suffix}").write_bytes(b.getvalue())
        measured = {}
        for _ in range(rounds):
            ours = time_go(binary, folder)
            for i, name in enumerate(KINDS):
                for what in ("decode", "both"):
                    measured.setdefault((name, what, "lfactor"), []).append(ours[f"{i:02}{KINDS[name][3]}/{what}"])
                    measured.setdefault((name, what, "Pillow"), []).append(time_peer(pillow, bodies[name], what == "both"))
                measured.setdefault((name, "decode", "OpenCV"), []).append(time_peer(opencv, bodies[name], False))
        print(f"{'image':28} {'KB':>6} {'':8} {'lfactor ms':>11} {'Pillow ms':>10} {'OpenCV ms':>10} {'ratio':>6}")
        for name in KINDS:
            for what, label in (("decode", "decode"), ("both", "to 224")):
                least = {who: min(measured.get((name, what, who), [float("nan")])) for who in ("lfactor", "Pillow", "OpenCV")}
                ratio = np.nanmin([least["Pillow"], least["OpenCV"]]) / least["lfactor"]
                print(f"{name:28} {len(bodies[name]) / 1e3:6.1f} {label:8} {least['lfactor']:11.3f} {least['Pillow']:10.3f} {least['OpenCV']:10.3f} {ratio:6.2f}")


cv2.setNumThreads(1)
main()
