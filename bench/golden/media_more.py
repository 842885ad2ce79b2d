"""Write dataset/media/testdata/more.json.gz: small images as BMP, TIFF, and PNG of 16 bits of grey with a transparent colour, and the CRC-32 of
what Pillow makes of them: convert("RGB"), and where they are transparent, laid on white. Made with Pillow 13.0.
"""
import base64
import gzip
import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata/more.json.gz"
y, x = np.mgrid[0:23, 0:31]
rng = np.random.default_rng(1)
rgb = Image.fromarray((np.stack([x * 8, y * 11, (x + y) * 4], -1) % 256 // 2 + rng.integers(0, 60, (23, 31, 3))).astype("uint8"))
rgba = rgb.copy()
rgba.putalpha(Image.fromarray((x * 8).astype("uint8")))
grey = ((x * 997 + y * 313) % 65536).astype("uint16")
grey[:6] = rng.integers(0, 300, (6, 31))
grey[3, 5], grey[4, 7], grey[9, 9] = 29, 29, 5000


def png(a, key):
    chunk = lambda t, d: struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d))
    rows = b"".join(b"\0" + r.astype(">u2").tobytes() for r in a)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", a.shape[1], a.shape[0], 16, 0, 0, 0, 0)) + chunk(b"tRNS", struct.pack(">H", key)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def save(m, kind, **options):
    out = io.BytesIO()
    m.save(out, kind, **options)
    return out.getvalue()


files = {f"grey16 key {k}.png": png(grey, k) for k in (29, 5000)}
files |= {f"{m}.bmp": save(rgb.convert(m), "BMP") for m in ("RGB", "L", "1", "P", "RGBA")}
files |= {f"{m}.tif": save(rgb.convert(m), "TIFF") for m in ("RGB", "L", "P", "1")} | {"I16.tif": save(Image.fromarray(grey), "TIFF")}
for c in ("tiff_lzw", "tiff_adobe_deflate", "packbits"):
    files |= {f"{c}.tif": save(rgb, "TIFF", compression=c), f"{c} RGBA.tif": save(rgba, "TIFF", compression=c)}
files |= {f"{c}.tif": save(rgb.convert("1"), "TIFF", compression=c) for c in ("group3", "group4")}
files |= {f"{c} white is 0.tif": save(rgb.convert("1"), "TIFF", compression=c, tiffinfo={262: 0}) for c in ("group3", "group4")}
files |= {f"turned {o}.tif": save(rgb, "TIFF", tiffinfo={274: o}) for o in (3, 6, 8)}
out = {}
for name, b in files.items():
    m = Image.open(io.BytesIO(b))
    plain = m.convert("RGB")
    entry = {"file": base64.b64encode(b).decode(), "w": plain.size[0], "h": plain.size[1], "rgb": zlib.crc32(plain.tobytes())}
    if "A" in m.getbands() or "transparency" in m.info:
        base, over = Image.new("RGBA", m.size, "WHITE"), m.convert("RGBA")
        entry["white"] = zlib.crc32(Image.alpha_composite(base, over).convert("RGB").tobytes())
    out[name] = entry
OUT.write_bytes(gzip.compress(json.dumps(out).encode(), 9, mtime=0))
print(len(out), OUT.stat().st_size)
