"""What the image processors of transformers make of images, for the tests of dataset/media:
dataset/media/testdata/processors.json, and the images of kinds that media_pillow.py does not have.

Each entry is [image, settings, number of images in the sample, what came out]: the hashes of the pixels before
normalisation and of the values after it, in the order of pixel_values, the shape, the grid and the tokens. An image is
a file of testdata, opened as it is, or "WxH" of media_pillow's noise.
Run: python bench/golden/media_processors.py, or with "DIR NUMBER SEED" for random images and settings, which
go test ./dataset/media -run Golden -cases DIR compares. Needs transformers 5.23.0 ("Pil" processors), Pillow 13.0.0, numpy.
"""
import copy
import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy as np
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from media_noise import noise

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata"
assert (transformers.__version__, Image.__version__) == ("5.23.0", "13.0.0")

NOISE = ["1x1", "1x1000", "1000x5", "5x3", "27x29", "28x28", "13x2600", "56x300", "224x224", "448x448", "449x447", "640x480", "300x1200", "1280x720", "767x1023"]
LONG = {"1x1000", "1000x5", "13x2600"}  # the longer side would have over 16384 pixels
LARGE = {"1280x720", "767x1023", "640x480", "13x2600", "300x1200"}
SETTINGS = {
    "qwen2vl": ("Qwen2VLImageProcessor", {}),
    "qwen2.5vl": ("Qwen2VLImageProcessor", {"min_pixels": 3136, "max_pixels": 12845056, "processor_class": "Qwen2_5_VLProcessor"}),
    "qwen3vl": ("Qwen2VLImageProcessor", {"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}),
    "llava-ov-1.5": ("Qwen2VLImageProcessor", {"min_pixels": 784, "max_pixels": 401408}),
    "internvl": ("GotOcr2ImageProcessor", {"size": {"height": 448, "width": 448}, "crop_to_patches": True, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}),
    "internvl-whole": ("GotOcr2ImageProcessor", {"size": {"height": 112, "width": 140}, "crop_to_patches": True, "min_patches": 2, "max_patches": 6}),
    "llava-onevision": ("LlavaOnevisionImageProcessor", {}),
    "clip": ("CLIPImageProcessor", {}),
    "llava-1.5": ("CLIPImageProcessor", {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}, "do_convert_rgb": True, "resample": 3}),
    "clip-odd": ("CLIPImageProcessor", {"size": 101, "crop_size": {"height": 58, "width": 77}, "resample": 2}),
    "siglip": ("SiglipImageProcessor", {}),
    "siglip384": ("SiglipImageProcessor", {"size": {"height": 384, "width": 384}, "resample": 2, "rescale_factor": 0.003}),
}
CLASSES = {c.__name__.removesuffix("Pil"): c for c in [CLIPImageProcessorPil, Qwen2VLImageProcessorPil, GotOcr2ImageProcessorPil, LlavaOnevisionImageProcessorPil, SiglipImageProcessorPil]}


def sha(a):
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(name, pixels, depth, colour, extra=b""):
    """Kinds of PNG that Pillow does not write."""
    rows = b"".join(b"\0" + r.tobytes() for r in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], depth, colour, 0, 0, 0)
    (OUT / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b""))


def save(im, name, form, **options):
    b = io.BytesIO()
    im.save(b, form, **options)
    (OUT / name).write_bytes(b.getvalue())


def images():
    """Kinds that are wanted beside those of media_pillow.py."""
    rgb, rgba = noise(37, 23, 3), noise(19, 31, 4)
    png("rgb16.png", noise(17, 13, 3).astype(">u2") * 211, 16, 2)
    png("rgba16.png", noise(17, 13, 4).astype(">u2") * 211, 16, 6)
    png("greyalpha16.png", noise(17, 13, 2).astype(">u2") * 211, 16, 4)
    flat = rgb // 64 * 64
    png("rgbkey.png", flat, 8, 2, chunk(b"tRNS", struct.pack(">HHH", *map(int, flat[5, 7]))))
    png("greykey.png", flat[:, :, :1], 8, 0, chunk(b"tRNS", struct.pack(">H", int(flat[3, 3, 0]))))
    wide = Image.fromarray(noise(90, 60, 3)).quantize(16)
    save(wide, "transparent.gif", "GIF", transparency=5)
    frames = [Image.fromarray(noise(24, 18, 3) // (i + 1)) for i in range(3)]
    save(frames[0], "moving.gif", "GIF", save_all=True, append_images=frames[1:], duration=50)
    exif = Image.Exif()
    exif[0x0112] = 6
    smooth = Image.fromarray(noise(60, 40, 3)).resize((300, 200), Image.Resampling.BICUBIC)
    save(smooth, "photo.jpg", "JPEG", quality=70, exif=exif)
    save(smooth, "progressive.jpg", "JPEG", quality=60, progressive=True)
    save(smooth.convert("CMYK"), "ink.jpg", "JPEG", quality=60)
    save(Image.fromarray(rgba).resize((64, 90)), "rgba2.png", "PNG")


def load(name):
    if "x" in name and "." not in name:
        w, h = map(int, name.split("x"))
        return Image.fromarray(noise(w, h, 3))
    return Image.open(OUT / name)


def tokens(processor, out, im, n):
    match processor:
        case Qwen2VLImageProcessorPil():
            return int(out["image_grid_thw"].prod()) // 4
        case GotOcr2ImageProcessorPil():
            return 256 * int(out["num_patches"][0])
        case LlavaOnevisionImageProcessorPil():
            p = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
            p.image_processor, p.num_image_tokens, p.vision_aspect_ratio = processor, 729, "anyres_max_9"
            return 730 if n > 1 else p._get_number_of_features(im.height, im.width, 384, 384)
    return 0


def run(processor, im, n):
    images = im if n == 1 else [[im] * n]
    try:
        raw = processor(images=images, do_rescale=False, do_normalize=False, return_tensors="np")
        out = processor(images=images, return_tensors="np")
    except ValueError as e:
        return {"error": str(e).split(",")[0]}
    grid = out["image_grid_thw"][0].tolist() if "image_grid_thw" in out else None
    pixels, values = raw["pixel_values"], out["pixel_values"]
    if isinstance(processor, LlavaOnevisionImageProcessorPil):
        pixels, values = pixels[0], values[0]
    assert (pixels == pixels.astype(np.uint8)).all() and values.dtype == np.float32
    return {"pixels": sha(pixels.astype(np.uint8)), "values": sha(values), "shape": list(values.shape), "grid": grid, "tokens": tokens(processor, out, im, n)}


def kinds(rng):
    """A random image's bytes."""
    w, h = (max(1, round(10 ** rng.uniform(0, 3.1))) for _ in range(2))
    while w * h > 1_200_000:
        w, h = max(1, w // 2), max(1, h // 2)
    coarse = max(1, w // rng.choice([1, 2, 8, 30])), max(1, h // rng.choice([1, 2, 8, 30]))
    values = np.random.default_rng(rng.getrandbits(32)).integers(0, 256, (coarse[1], coarse[0], 4), dtype=np.uint8)
    rgba = Image.fromarray(values).resize((w, h), rng.choice([Image.Resampling.NEAREST, Image.Resampling.BICUBIC]))
    form = rng.choice(["JPEG"] * 5 + ["PNG"] * 4 + ["GIF", "WEBP", "WEBP"])
    options = {}
    if form == "JPEG":
        im = rgba.convert(rng.choice(["RGB", "RGB", "RGB", "L", "CMYK"]))
        options = {"quality": rng.randint(5, 100), "subsampling": rng.choice(["4:4:4", "4:2:2", "4:2:0"]), "progressive": rng.random() < 0.3, "optimize": rng.random() < 0.3}
        if rng.random() < 0.2:
            options["restart_marker_blocks"] = rng.randint(1, 40)
    elif form == "PNG":
        im = rgba.convert(rng.choice(["RGB", "RGBA", "L", "LA", "P", "1", "I;16"]))
        if im.mode == "P" and rng.random() < 0.5:
            options["transparency"] = rng.randint(0, 40)
    elif form == "GIF":
        im = rgba.convert("RGB").quantize(rng.randint(2, 256))
        if rng.random() < 0.5:
            options["transparency"] = rng.randint(0, 1)
    else:
        im = rgba if rng.random() < 0.5 else rgba.convert("RGB")
        options = {"lossless": rng.random() < 0.3, "quality": rng.randint(1, 100), "method": 2, "exact": rng.random() < 0.5}
    if rng.random() < 0.3:
        options["exif"] = Image.Exif()
        options["exif"][0x0112] = rng.randint(1, 8)
    if form == "GIF":
        options.pop("exif", None)
    b = io.BytesIO()
    try:
        im.save(b, form, **options)
    except OSError:  # Pillow guesses a buffer, now and then too small
        return kinds(rng)
    return b.getvalue(), {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WEBP": ".webp"}[form]


def at_random(to, number, seed):
    rng = random.Random(seed)
    cases, settings = [], {}
    for i in range(number):
        body, suffix = kinds(rng)
        name = f"r{i:04d}{suffix}"
        (to / name).write_bytes(body)
        base, (kind, options) = rng.choice(sorted(SETTINGS.items()))
        options = copy.deepcopy(options)
        if kind == "Qwen2VLImageProcessor" and rng.random() < 0.5:
            options["max_pixels"] = rng.randint(60_000, 900_000)
            options["min_pixels"] = rng.randint(1_000, 60_000)
        elif kind == "GotOcr2ImageProcessor":
            options["max_patches"] = rng.randint(2, 9)
        elif kind == "SiglipImageProcessor":
            options["size"] = {"height": rng.randint(20, 500), "width": rng.randint(20, 500)}
            options["resample"] = rng.choice([1, 2, 3])
        key = f"{base}/{i}"
        settings[key] = options | {"image_processor_type": kind}
        processor = CLASSES[kind](**{k: copy.deepcopy(v) for k, v in options.items() if not k.endswith("_class")})
        cases.append([name, key, 1, run(processor, Image.open(to / name), 1)])
    dump(to, settings, cases)


def dump(to, settings, cases):
    body = json.dumps(settings, indent=1) + ',\n"cases": [\n' + ",\n".join(json.dumps(c) for c in cases)
    (to / "processors.json").write_text('{"settings": ' + body + "\n]}\n")


def main():
    images()
    files = sorted(p.name for p in OUT.iterdir() if p.suffix in (".png", ".gif", ".webp", ".jpg"))
    out = []
    for name, (kind, options) in SETTINGS.items():
        options = options | {"image_processor_type": kind}
        processor = CLASSES[kind](**{k: copy.deepcopy(v) for k, v in options.items() if not k.endswith(("_type", "_class"))})
        for image in files + NOISE:
            if image in LARGE and name in ("qwen2vl", "siglip", "internvl-whole", "clip") or image in LONG and kind == "CLIPImageProcessor":
                continue
            for n in (1, 2) if name == "llava-onevision" else (1,):
                out.append([image, name, n, run(processor, load(image), n)])
    dump(OUT, {k: o | {"image_processor_type": c} for k, (c, o) in SETTINGS.items()}, out)


if len(sys.argv) > 1:
    at_random(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
else:
    main()
