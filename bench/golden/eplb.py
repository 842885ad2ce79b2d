"""Writes topology/testdata/eplb.json: what DeepSeek's EPLB makes of the example of its README, and the load of the fullest device for 1,000
random loads, which the test draws again by the same generator.

Run from the repository's root with a clone of github.com/deepseek-ai/EPLB:  python bench/golden/eplb.py CLONE
"""

import json
import pathlib
import sys

import torch

SHAPES = [(16, 16, 4, 2, 8), (12, 16, 4, 2, 8), (64, 72, 8, 4, 8), (32, 48, 4, 3, 12), (60, 64, 1, 1, 16), (24, 32, 8, 2, 4), (8, 16, 2, 2, 16), (30, 36, 5, 2, 6)]
EXAMPLE = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]


def draws(seed):
    x = seed * 2654435761 % 2**32
    while True:
        x = (1664525 * x + 1013904223) % 2**32
        yield x >> 16


def most(load, phy2log, count, gpus):
    share = [load[e] / count[e] for e in phy2log]
    each = len(share) // gpus
    return max(sum(share[g * each:(g + 1) * each]) for g in range(gpus))


def main():
    sys.path.insert(0, sys.argv[1])
    import eplb
    place, copies, count = eplb.rebalance_experts(torch.tensor(EXAMPLE), 16, 4, 2, 8)
    out = dict(example=dict(load=EXAMPLE, expert=place.tolist(), count=count.tolist()), shapes=SHAPES, most=[])
    for seed in range(1000):
        experts, places, groups, nodes, gpus = SHAPES[seed % len(SHAPES)]
        g = draws(seed)
        load = [next(g) % 1000 if seed % 3 else next(g) % 97 * (next(g) % 7) ** 3 for _ in range(experts)]
        place, _, count = eplb.rebalance_experts(torch.tensor([load]), places, groups, nodes, gpus)
        out["most"].append(round(most(load, place[0].tolist(), count[0].tolist(), gpus), 6))
    path = pathlib.Path("topology/testdata/eplb.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
