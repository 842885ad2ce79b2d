"""What Kimi K2.5's image processor makes of noise: dataset/media/testdata/kimi.json, rows of width, height, settings, grid, and the hash of pixel_values
whose patches are put in the order in which they join.

Run from the repository's root: python bench/golden/kimi_images.py. Needs transformers 5.23.0, torchvision 0.29.2.
"""

import hashlib
import json

import torch
from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor

from media_noise import noise

SIZES = [(1, 1), (28, 28), (27, 57), (640, 480), (300, 31), (5, 900), (1000, 700)]
SETTINGS = [{}, {"max_patches": 300}, {"size": {"max_height": 20, "max_width": 20}}, {"patch_size": 8, "merge_size": 3, "max_patches": 500}]


def main():
    rows = []
    for settings in SETTINGS:
        p, merge = Kimi_K25ImageProcessor(**settings), settings.get("merge_size", 2)
        for w, h in SIZES:
            out = p(torch.from_numpy(noise(w, h, 3)).permute(2, 0, 1), return_tensors="pt")
            _, gh, gw = grid = out["image_grid_thw"][0].tolist()
            at = torch.arange(gh * gw).view(gh // merge, merge, gw // merge, merge).permute(0, 2, 1, 3).reshape(-1)
            values = out["pixel_values"][at].contiguous().numpy()
            rows.append([w, h, settings, grid, hashlib.sha256(values.tobytes()).hexdigest()[:16]])
    open("dataset/media/testdata/kimi.json", "w").write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
