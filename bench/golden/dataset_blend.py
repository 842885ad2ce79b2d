"""Write dataset/testdata/blend.json: which source gives each sample, by the rule of Megatron-LM's build_blending_indices.

Run: python bench/golden/dataset_blend.py. The rule is restated here from its description: the source with the largest
share·max(i, 1) − taken gives sample i, the first among equals, in IEEE double precision.
"""
import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).parents[2] / "dataset/testdata"
CASES = [[1, 1], [0.3, 0.7], [1, 2, 3], [0.1, 0.2, 0.3, 0.4], [5, 1e-3], [7], [1 / 3, 1 / 3, 1 / 3], [30, 12.5, 0.5, 57]]


def picks(weights, n):
    share = np.array(weights, dtype=np.float64) / np.sum(np.array(weights, dtype=np.float64))
    taken = np.zeros(len(weights))
    out = []
    for i in range(n):
        k = int(np.argmax(share * max(float(i), 1.0) - taken))  # argmax returns the first of equals
        taken[k] += 1
        out.append(k)
    return out


OUT.mkdir(parents=True, exist_ok=True)
(OUT / "blend.json").write_text(json.dumps([{"weights": w, "picks": picks(w, 400)} for w in CASES], separators=(",", ":")) + "\n")
