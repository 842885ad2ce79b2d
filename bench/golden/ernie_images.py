"""What ERNIE 4.5's image processor makes of noise: dataset/media/testdata/ernie.json, rows of width, height, settings, grid, and the hash of pixel_values.

Run from the repository's root: python bench/golden/ernie_images.py. Needs transformers 5.23.0, torchvision.
"""

import hashlib
import json

import torch
from transformers.models.ernie4_5_vl_moe.image_processing_ernie4_5_vl_moe import Ernie4_5_VLMoeImageProcessor

from media_noise import noise

SIZES = [(1, 1), (28, 28), (27, 57), (640, 480), (300, 31), (5, 900), (1000, 700)]
SETTINGS = [{}, {"size": {"shortest_edge": 3136, "longest_edge": 50176}}, {"patch_size": 8, "merge_size": 3, "size": {"shortest_edge": 576, "longest_edge": 100000}}]


def main():
    rows = []
    for settings in SETTINGS:
        p = Ernie4_5_VLMoeImageProcessor(**settings)
        for w, h in SIZES:
            out = p(torch.from_numpy(noise(w, h, 3)).permute(2, 0, 1), return_tensors="pt")
            rows.append([w, h, settings, out["image_grid_thw"][0].tolist(), hashlib.sha256(out["pixel_values"].contiguous().numpy().tobytes()).hexdigest()[:16]])
    open("dataset/media/testdata/ernie.json", "w").write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
