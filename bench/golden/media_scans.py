"""Write dataset/media/testdata/scans.json.gz: progressive JPEG images of which the last scans, or those of a colour, are missing, and the
CRC-32 of the RGB that Pillow makes of them. Made with Pillow 13.0 (libjpeg-turbo 3); jpegtran gives one image a scan for each colour.
"""
import base64
import gzip
import io
import json
import pathlib
import subprocess
import tempfile
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata/scans.json.gz"


def scans(b):
    """Split a file into its head and its scans, each with the tables before it."""
    parts, i, begin = [], 2, 0
    while True:
        kind, n = b[i + 1], int.from_bytes(b[i + 2 : i + 4], "big")
        if kind == 0xD9:
            return parts
        if kind == 0xC2:
            parts.append(b[begin : i + 2 + n])
            begin = i + 2 + n
        i += 2 + n
        if kind == 0xDA:
            while b[i] != 0xFF or b[i + 1] == 0 or 0xD0 <= b[i + 1] <= 0xD7:
                i += 1
            parts.append(b[begin:i])
            begin = i


def components(scan):
    i = scan.index(b"\xff\xda")
    return set(scan[i + 5 : i + 5 + 2 * scan[i + 4] : 2])


def alone(b):
    """A file whose scans have one colour each."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as script:
        script.write("".join(f"{c}: 0-0, 0, 1;\n" for c in range(3)) + "".join(f"{c}: 1-5, 0, 2; {c}: 6-63, 0, 2;\n" for c in (2, 0, 1)) + "0: 0-0, 1, 0;\n")
        script.flush()
        return subprocess.run(["jpegtran", "-scans", script.name], input=b, capture_output=True, check=True).stdout


out = {}
for name, (w, h), mode, sampling, quality in [
    ("a", (61, 47), "RGB", 2, 60), ("b", (33, 130), "RGB", 1, 85), ("c", (90, 17), "RGB", 0, 30), ("d", (75, 50), "L", 0, 75),
    ("e", (7, 5), "RGB", 2, 50), ("f", (16, 40), "RGB", 2, 70), ("g", (20, 24), "CMYK", 0, 70),
]:
    y, x = np.mgrid[0:h, 0:w]
    rng = np.random.default_rng(len(out))
    m = np.stack([x * 5 + y, 255 * ((x // 9 + y // 7) % 2), (x - y) * 3 % 256], -1) // 2 + rng.integers(0, 100, (h, w, 3))
    f = io.BytesIO()
    Image.fromarray(m.astype("uint8")).convert(mode).save(f, "JPEG", quality=quality, subsampling=sampling, progressive=True)
    head, *rest = scans(alone(f.getvalue()) if name in "ab" else f.getvalue())
    cuts = {f"{name} {n} of {len(rest)}": rest[:n] for n in range(1, len(rest))}
    if mode == "RGB":
        cuts[f"{name} no Cr detail"] = [s for s in rest if components(s) != {3}]
        cuts[f"{name} no Y detail"] = [s for s in rest if components(s) != {1}]
    for key, kept in cuts.items():
        b = head + b"".join(kept) + b"\xff\xd9"
        plain = Image.open(io.BytesIO(b)).convert("RGB")
        out[key] = {"file": base64.b64encode(b).decode(), "w": w, "h": h, "rgb": zlib.crc32(plain.tobytes())}
OUT.write_bytes(gzip.compress(json.dumps(out).encode(), 9, mtime=0))
print(len(out), OUT.stat().st_size)
