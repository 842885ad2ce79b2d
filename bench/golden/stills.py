"""Writes images in AVIF, HEIC and JPEG 2000 to a folder, with what Pillow reads of them in stills.json: widths, heights and pixels.

    python bench/golden/stills.py [FOLDER [IMAGES]]     (Pillow 13, pillow-heif, numpy; dataset/media/testdata/stills, 6)
    LFACTOR_STILLS=FOLDER go test ./dataset/media -run TestStills
"""

import base64
import json
import pathlib
import sys

import numpy
import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()
OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "dataset/media/testdata/stills"
IMAGES = int(sys.argv[2]) if len(sys.argv) > 2 else 6
OUT.mkdir(parents=True, exist_ok=True)
r = numpy.random.default_rng(3)
want = {}
for k in range(IMAGES):
    w, h = (int(v) for v in r.integers(8, 60, 2))
    small = r.integers(0, 256, (4, 4, 3), dtype=numpy.uint8)
    image = Image.fromarray(small).resize((w, h), Image.BICUBIC)
    ext = ["avif", "heic", "jp2", "j2k"][k % 4]
    path = OUT / f"{k:03d}.{ext}"
    if ext == "avif":
        image.save(path, quality=95, subsampling="4:4:4")
    elif ext == "heic":
        image.save(path, quality=95)
    else:
        image.save(path, irreversible=False)
    back = Image.open(path).convert("RGB")
    want[path.name] = {"w": back.width, "h": back.height, "rgb": base64.b64encode(back.tobytes()).decode()}
(OUT / "stills.json").write_text(json.dumps(want, indent=0) + "\n")
