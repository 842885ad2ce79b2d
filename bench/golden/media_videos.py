"""Which frames of videos the video processors of transformers and qwen-vl-utils take, and what they make of them, for the
tests of dataset/media: dataset/media/testdata/videos.json.

A video is rows i to i+height of media_noise's image for frame i. "clips" are [video, settings, what came out]; "picks"
are [frames, rate, settings, the hash of the frames taken, as 32-bit numbers]; "scaled" are images resized as
torchvision does.
Run: python bench/golden/media_videos.py. Needs transformers 5.23.0, torchvision 0.29.2, torch 2.15.0, qwen-vl-utils 0.0.14, ffmpeg.
"""
import copy
import hashlib
import json
import pathlib
import random
import subprocess

import numpy as np
import torch
import torchvision
import transformers
import torchvision.transforms.v2.functional as F
from qwen_vl_utils import vision_process
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

from media_noise import noise

OUT = pathlib.Path(__file__).parents[2] / "dataset/media/testdata"
assert (transformers.__version__, torchvision.__version__[:6]) == ("5.23.0", "0.29.2")
CLASSES = {c.__name__: c for c in [Qwen2VLVideoProcessor, Qwen3VLVideoProcessor, InternVLVideoProcessor, LlavaOnevisionVideoProcessor]}
VIDEOS = [(37, 64, 48, 12.5), (120, 90, 160, 29.97), (16, 320, 240, 24.0), (9, 33, 57, 3.0)]
SETTINGS = {
    "qwen2vl": ("Qwen2VLVideoProcessor", {"do_sample_frames": True, "fps": 2, "cap_pixels_per_frame": False, "min_pixels": 12544, "max_pixels": 50000}),
    "qwen2vl-capped": ("Qwen2VLVideoProcessor", {"do_sample_frames": True, "num_frames": 7, "cap_pixels_per_frame": True, "max_video_tokens": 300}),
    "qwen3vl": ("Qwen3VLVideoProcessor", {"cap_pixels_per_frame": False}),
    "qwen3vl-capped": ("Qwen3VLVideoProcessor", {"cap_pixels_per_frame": True, "fps": 1.5, "min_frames": 5, "size": {"shortest_edge": 4096, "longest_edge": 400000}}),
    "internvl": ("InternVLVideoProcessor", {"do_sample_frames": True, "num_frames": 8, "size": {"height": 112, "width": 112}}),
    "llava-onevision": ("LlavaOnevisionVideoProcessor", {"do_sample_frames": True, "num_frames": 5, "size": {"height": 98, "width": 98}}),
    "qwen-vl-utils": ("QwenVLUtils", {"max_pixels": 30000, "min_pixels": 4000}),
    "qwen-vl-utils16": ("QwenVLUtils", {"nframes": 7, "patch_size": 16, "total_pixels": 300000.0, "min_pixels": 2048}),
}


def sha(a):
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]


def video(frames, w, h):
    tall = noise(w, h + frames, 3)
    return np.stack([tall[i : i + h] for i in range(frames)])


def by_utils(frames, fps, options):
    """qwen-vl-utils, which reads files itself: its reader is replaced by one that has the frames."""
    options = dict(options)
    patch = options.pop("patch_size", 14)
    size = 0

    def read(ele):
        nframes = vision_process.smart_nframes(ele, total_frames=len(frames), video_fps=fps)
        at = torch.linspace(0, len(frames) - 1, nframes).round().long()
        nonlocal size
        size = at
        return torch.from_numpy(frames[at.numpy()]).permute(0, 3, 1, 2).contiguous(), {}, 0.0

    vision_process.VIDEO_READER_BACKENDS["torchvision"] = read
    pixels = vision_process.fetch_video({"video": "x"} | options, image_patch_size=patch)
    kind = Qwen2VLVideoProcessor if patch == 14 else Qwen3VLVideoProcessor
    processor = kind(do_resize=False, do_sample_frames=False, patch_size=patch, cap_pixels_per_frame=False)
    return processor, pixels.to(torch.uint8).numpy(), size.tolist()


def prepare(kind, options, frames, fps):
    at = None
    if kind == "QwenVLUtils":
        processor, frames, at = by_utils(frames, fps, options)
        given = {}
    else:
        processor = CLASSES[kind](**copy.deepcopy(options))
        given = {"video_metadata": VideoMetadata(total_num_frames=len(frames), fps=fps), "return_metadata": True}
    raw = processor(videos=[frames], do_rescale=False, do_normalize=False, return_tensors="pt", **copy.deepcopy(given))
    out = processor(videos=[frames], return_tensors="pt", **copy.deepcopy(given))
    at = at or [int(i) for i in out["video_metadata"][0].frames_indices]
    pixels, values = raw["pixel_values_videos"].numpy(), out["pixel_values_videos"].numpy()
    if pixels.ndim == 5:
        pixels, values = pixels[0], values[0]
    assert (pixels == pixels.astype(np.uint8)).all()
    seconds = Qwen3VLProcessor._calculate_timestamps(None, list(at), fps, processor.temporal_patch_size) if "Qwen" in kind else [i / fps for i in at]
    grid = out["video_grid_thw"][0].tolist() if "video_grid_thw" in out else None
    tokens = {"InternVLVideoProcessor": 256 * len(pixels), "LlavaOnevisionVideoProcessor": 14 * 14 * len(pixels) + 1}.get(kind) or int(np.prod(grid)) // 4
    parts = [int(p.sum()) for p in np.array_split(pixels.astype(np.int64).ravel(), 16)]
    return {"at": at, "pixels": sha(pixels.astype(np.uint8)), "parts": parts, "values": sha(values), "shape": list(values.shape), "grid": grid, "tokens": tokens, "seconds": seconds}


def picks(rng):
    for kind in list(CLASSES) + ["QwenVLUtils"]:
        for _ in range(80):
            total, fps = round(10 ** rng.uniform(0.5, 4.5)), rng.choice([3.0, 12.5, 23.976, 24.0, 29.97, 30.0, 59.94, 60000 / 1001])
            options = {"do_sample_frames": True}
            if rng.random() < 0.6:
                options["fps"] = rng.choice([0.5, 1, 2, 3.7])
                if kind.startswith("Qwen") and rng.random() < 0.5:
                    options |= {"min_frames": rng.randint(2, 9), "max_frames": rng.randint(10, 300)}
            elif kind != "Qwen3VLVideoProcessor":
                options["nframes" if kind == "QwenVLUtils" else "num_frames"] = rng.randint(2, min(total, 900))
            try:
                if kind == "QwenVLUtils":
                    options.pop("do_sample_frames")
                    n = vision_process.smart_nframes(options, total, fps)
                    at = torch.linspace(0, total - 1, n).round().long().numpy()
                else:
                    processor = CLASSES[kind](**options)
                    at = processor.sample_frames(VideoMetadata(total_num_frames=total, fps=fps), fps=processor.fps, num_frames=processor.num_frames)
                at = np.asarray(at, dtype=np.int32)
            except (ValueError, TypeError, ZeroDivisionError, RuntimeError):
                at = None
            if at is not None and at.max() >= total:
                continue  # arange gave one too many, and the reader fails
            yield [total, fps, options | {"video_processor_type": kind}, "error" if at is None else sha(at)]


def scaled(rng):
    modes = torchvision.transforms.InterpolationMode
    for _ in range(40):
        w, h, tw, th = [rng.randint(1, 300) for _ in range(4)]
        a = torch.from_numpy(noise(w, h, 3)).permute(2, 0, 1).contiguous()
        for mode in [modes.BILINEAR, modes.BICUBIC, modes.LANCZOS]:
            yield [w, h, tw, th, mode.value, sha(F.resize(a, [th, tw], interpolation=mode, antialias=True).permute(1, 2, 0).numpy())]


def lossless():
    """A file that every ffmpeg decodes to the same bytes."""
    args = "ffmpeg -y -v error -f rawvideo -pix_fmt rgb24 -s 32x24 -r 12.5 -i - -c:v ffv1 -pix_fmt gbrp -bitexact"
    subprocess.run([*args.split(), OUT / "clip.mkv"], input=video(10, 32, 24).tobytes(), check=True)


def main():
    lossless()
    clips = []
    for total, w, h, fps in VIDEOS:
        for name, (kind, options) in SETTINGS.items():
            clips.append([[total, w, h, fps], name, prepare(kind, options, video(total, w, h), fps)])
    out = {"settings": {k: o | {"video_processor_type": c} for k, (c, o) in SETTINGS.items()}, "clips": clips, "picks": list(picks(random.Random(1))), "scaled": list(scaled(random.Random(2)))}
    rows = [f'"{k}": [\n' + ",\n".join(json.dumps(r) for r in out[k]) + "\n]" for k in ("clips", "picks", "scaled")]
    (OUT / "videos.json").write_text('{"settings": ' + json.dumps(out["settings"]) + ",\n" + ",\n".join(rows) + "}\n")


main()
