"""Write dataset/media/testdata/damaged.json.gz: JPEGs whose compressed data is damaged, and the CRC-32 of what Pillow makes of them.

Run: python bench/golden/media_damage.py. Made with Pillow 13.0.0. An image that Pillow refuses has 0.
"""
import base64
import gzip
import io
import json
import pathlib
import random
import zlib

import numpy
from PIL import Image

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata/damaged.json.gz"
rng = random.Random(27)
noise = numpy.random.RandomState(27)


def picture(w, h):
    y, x = numpy.mgrid[0:h, 0:w]
    a = numpy.stack([128 + 100 * numpy.sin(x / 7 + y / 11), 128 + 90 * numpy.cos(x / 5 - y / 13), (x * 3 + y * 5) % 256], -1) + noise.randn(h, w, 3) * 12
    return Image.fromarray(numpy.clip(a, 0, 255).astype(numpy.uint8))


def damaged(progressive):
    f = io.BytesIO()
    picture(rng.choice([33, 48, 61]), rng.choice([24, 40, 51])).save(f, "JPEG", quality=rng.choice([60, 85]), progressive=progressive, subsampling=rng.choice([0, 1, 2]))
    b = bytearray(f.getvalue())
    start = b.index(b"\xff\xda") + 14
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(start, len(b) - 2)
        kind = rng.choice(["flip", "set", "cut", "zero"])
        if kind == "flip":
            b[at] ^= 1 << rng.randrange(8)
        elif kind == "set":
            b[at] = rng.randrange(256)
        elif kind == "cut":
            del b[at:at + rng.randrange(1, 9)]
        else:
            b[at:at + 4] = bytes(4)
    return bytes(b)


found = {}
for i in range(120):
    b = damaged(i % 2 == 1)
    try:
        crc = zlib.crc32(Image.open(io.BytesIO(b)).convert("RGB").tobytes())
    except Exception:
        crc = 0
    found[f"{['baseline', 'progressive'][i % 2]}-{i:03d}"] = {"file": base64.b64encode(b).decode(), "rgb": crc}
OUT.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
print(len(found), "images,", sum(v["rgb"] != 0 for v in found.values()), "that Pillow decodes,", OUT.stat().st_size, "bytes")
