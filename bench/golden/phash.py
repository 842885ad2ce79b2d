"""Writes dataset/curate/testdata/phash.json: imagehash's phash of the images in dataset/media/testdata whose hash is no matter of
rounding.

    python bench/golden/phash.py     (imagehash 4.3, Pillow)
"""

import json
import pathlib

import imagehash
import numpy
import scipy.fftpack
from PIL import Image

ROOT = pathlib.Path(__file__).parents[2] / "dataset"
out = {}
for path in sorted((ROOT / "media/testdata").glob("*.*")):
    if path.suffix in (".jpg", ".png", ".webp", ".gif", ".bmp", ".tiff"):
        try:
            image = Image.open(path)
            if image.mode in ("I;16", "I;16B", "I"):
                continue  # grey of 16 bits is cut off in another way by convert("L")
            grey = numpy.asarray(image.convert("RGB").convert("L").resize((32, 32), Image.LANCZOS))
            low = scipy.fftpack.dct(scipy.fftpack.dct(grey, axis=0), axis=1)[:8, :8]
            off = numpy.abs(low - numpy.median(low))
            if ((0 < off) & (off < 1e-9)).any():
                continue  # frequencies that are not there: their signs are rounding errors of scipy's
            out[path.name] = str(imagehash.phash(image.convert("RGB")))
        except OSError:
            pass
(ROOT / "curate/testdata/phash.json").write_text(json.dumps(out, indent=0) + "\n")
print(len(out), "images")
