"""dataset/media/testdata/webp.json.gz: WebP images of both kinds at all qualities and methods, and Pillow's pixels of them.

    python bench/golden/media_webp.py

Needs Pillow and numpy.
"""

import base64
import gzip
import io
import json
import pathlib
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata/webp.json.gz"


def picture(rng, w, h, grain, n):
    total = np.full((h, w, 3), 128.0)
    for side, amount in ((4, 60), (12, 35), (48, 22)):
        layer = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((w, h), Image.Resampling.BICUBIC)
        total += (np.asarray(layer, dtype=float) - 128) * amount / 128
    pix = np.clip(total + rng.normal(0, grain, (h, w, 1)), 0, 255).astype(np.uint8)
    if n % 5 == 0:  # areas of one colour with sharp edges
        mask = rng.integers(0, 2, (h // 8 + 1, w // 8 + 1)).repeat(8, 0).repeat(8, 1)[:h, :w]
        pix[mask == 1] = rng.integers(0, 256, 3)
    if n % 4 == 3:  # palettes of all widths
        return Image.fromarray(pix).quantize((2, 3, 9, 40, 200)[n // 4 % 5]).convert("RGB")
    if n % 7 == 0:
        return Image.fromarray(np.dstack([pix, pix[::-1, :, 0]]), "RGBA")
    return Image.fromarray(pix)


def main():
    rng = np.random.default_rng(18)
    out = {}
    for n in range(72):
        w, h = (int(v) for v in rng.integers(1, 100, 2))
        im = picture(rng, w, h, float((0, 1, 4, 30)[n % 4]), n)
        options = dict(lossless=True, quality=int(rng.integers(0, 101)), exact=True) if n % 3 == 2 else dict(quality=(0, 5, 20, 50, 75, 90, 100)[n % 7])
        body = io.BytesIO()
        im.save(body, "WEBP", method=n % 7, **options)
        rgb = Image.open(io.BytesIO(body.getvalue())).convert("RGB")
        kind = "lossless" if n % 3 == 2 else "lossy"
        out[f"{n:02}-{kind}"] = dict(File=base64.b64encode(body.getvalue()).decode(), W=w, H=h, RGB=zlib.crc32(rgb.tobytes()))
    OUT.write_bytes(gzip.compress(json.dumps(out, indent=0, sort_keys=True).encode(), mtime=0))


main()
