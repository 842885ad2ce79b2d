"""Hashes of images that Pillow resized and decoded, and the images it decoded, for the tests of dataset/media:
dataset/media/testdata/*. Run: python bench/golden/media_pillow.py. Needs Pillow 13.0.0 (libjpeg-turbo 3.2.0).
"""
import hashlib
import io
import json
import pathlib

import numpy as np
from PIL import Image, ImageOps

from media_noise import noise

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata"
SIZES = [(1, 1), (1, 7), (2, 3), (3, 2), (7, 5), (13, 17), (31, 33), (64, 64), (99, 101), (127, 3), (3, 127), (200, 150), (257, 129), (333, 77), (640, 11)]
TO = [(1, 1), (5, 3), (14, 14), (28, 56), (97, 101), (224, 224), (31, 200)]


def sha(im):
    return hashlib.sha256(im.tobytes()).hexdigest()[:16]


def resized():
    out = []
    for w, h in SIZES:
        im = Image.fromarray(noise(w, h, 3))
        for tw, th in TO:
            for name in ["bilinear", "bicubic", "lanczos"]:
                out.append([w, h, tw, th, name, sha(im.resize((tw, th), getattr(Image.Resampling, name.upper())))])
    return out


def save(im, name, form, **options):
    b = io.BytesIO()
    im.save(b, form, **options)
    (OUT / name).write_bytes(b.getvalue())


def images():
    rgb = Image.fromarray(noise(37, 23, 3))
    rgba = Image.fromarray(noise(19, 31, 4))
    grey = Image.fromarray(noise(21, 9, 1)[:, :, 0])
    save(rgb, "rgb.png", "PNG")
    save(rgba, "rgba.png", "PNG")
    save(grey, "grey.png", "PNG")
    save(Image.merge("LA", [grey, grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]), "greyalpha.png", "PNG")
    save(grey.convert("1"), "one.png", "PNG")
    save(rgb.quantize(37), "palette.png", "PNG")
    save(rgb.quantize(7), "palette4.png", "PNG", transparency=3)
    wide = noise(21, 9, 1)[:, :, 0].astype(np.uint16)
    save(Image.fromarray(wide * 257), "grey16.png", "PNG")
    save(Image.fromarray(wide * 2), "grey16low.png", "PNG")
    save(rgb.quantize(60), "plain.gif", "GIF")
    save(rgb, "lossless.webp", "WEBP", lossless=True)
    save(rgba, "alpha.webp", "WEBP", lossless=True, exact=True)
    names = sorted(p.name for p in OUT.iterdir() if p.suffix in (".png", ".gif", ".webp") and not p.name.startswith(("lossy", "turn")))
    n = 0
    for w, h in [(1, 1), (7, 9), (8, 8), (16, 16), (17, 15), (33, 47), (50, 3), (2, 40), (65, 64), (31, 129)]:
        for sub in ["4:4:4", "4:2:2", "4:2:0"]:
            options = dict(quality=[35, 75, 90, 97, 10][n % 5], subsampling=sub, progressive=n % 4 == 1, optimize=n % 3 == 0)
            if n % 5 == 2:
                options["restart_marker_blocks"] = 3
            name = f"p{n:02d}.jpg"
            save(Image.fromarray(noise(w, h, 3)), name, "JPEG", **options)
            names.append(name)
            n += 1
    save(grey, "grey.jpg", "JPEG", quality=80)
    save(Image.fromarray(noise(21, 30, 4), "CMYK"), "cmyk.jpg", "JPEG", quality=85)
    save(rgb, "keep_rgb.jpg", "JPEG", keep_rgb=True, quality=85)
    names += ["grey.jpg", "cmyk.jpg", "keep_rgb.jpg", "photo.jpg", "progressive.jpg", "ink.jpg"]
    for k in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = k
        save(Image.fromarray(noise(11, 6, 3)), f"turn{k}.jpg", "JPEG", quality=95, subsampling="4:4:4", exif=exif)
        names.append(f"turn{k}.jpg")
    exif[0x0112] = 5
    save(rgba, "turn5.png", "PNG", exif=exif)
    save(rgba, "turn5.webp", "WEBP", exif=exif, quality=70)
    save(rgb, "turnxmp.jpg", "JPEG", xmp=b'<x:xmpmeta><rdf:Description tiff:Orientation="7"/></x:xmpmeta>')
    save(rgb, "lossy.webp", "WEBP", quality=60)
    save(Image.fromarray(noise(1, 5, 3)), "lossy1.webp", "WEBP", quality=90)
    save(rgba, "lossyalpha.webp", "WEBP", quality=30, alpha_quality=40)
    save(rgba, "lossymoving.webp", "WEBP", save_all=True, append_images=[rgba.rotate(180)], quality=50)
    names += ["turn5.png", "turn5.webp", "turnxmp.jpg", "lossy.webp", "lossy1.webp", "lossyalpha.webp", "lossymoving.webp"]
    out = {}
    for name in dict.fromkeys(names):
        im = Image.open(OUT / name)
        turned = ImageOps.exif_transpose(im).convert("RGB")
        out[name] = {"size": im.size, "rgb": sha(im.convert("RGB")), "turned": sha(turned)}
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "resize.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in resized()) + "\n]\n")
    (OUT / "decode.json").write_text(json.dumps(images(), indent=1) + "\n")


main()
