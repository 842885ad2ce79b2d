"""Writes docs/families.md: how far each golden model is from transformers, by the tests that hold it there, and the published sizes.

Run from the repository's root: python bench/golden/family_table.py
"""

import collections
import json
import pathlib
import re
import subprocess

FORWARD = re.compile(r"figure (\S+) cpu logits (\S+) loss (\S+)")
TRAINING = re.compile(r"figure (\S+) cpu gradients (\S+) of (\d+) curve (\S+) of (\d+)")


def human(n):
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.0f} M"


def main():
    out = subprocess.run(["go", "test", "./actors/host", "-run", "GoldenForward|GoldenTraining", "-v", "-count=1"], capture_output=True, text=True, check=True).stdout
    rows = collections.defaultdict(lambda: ["", "", "", ""])
    for line in out.splitlines():
        if m := FORWARD.search(line):
            rows[m[1]][:2] = m[2], m[3]
        if m := TRAINING.search(line):
            rows[m[1]][2:] = f"{m[2]} ({m[3]} tensors)", f"{m[4]} ({m[5]} steps)"
    text = """# Families

Each row is a tiny model with random weights whose logits, loss, gradients and AdamW curve come from transformers 5.23 and 5.24, or for Qwen 1,
InternLM2, MiMo, Baichuan 2, LLaVA-OneVision-1.5 and the described Reed from PyTorch modules (`bench/golden`). Figures are relative errors of the
`cpu` backend in float32: of logits and gradients in the L2 norm, the gradient that is farthest off; of losses the step that is farthest off.

Tests hold them to 1e-4, losses of the forward to 1e-5. Checkpoints go from Hugging Face's layout through a plan of pp=2, tp=2 and back to the same
bytes, and adapters load in PEFT. [dayzero.md](dayzero.md) has every causal class of transformers. This page is written by
`bench/golden/family_table.py`.

| golden model | logits | loss | worst gradient | worst loss of training |
|---|---|---|---|---|
"""
    for name in sorted(rows):
        text += f"| {name} | {' | '.join(rows[name])} |\n"
    text += "\nPublished sizes (`lfactor config models`), with the parameters that a model of transformers on the meta device has:\n\n| family | sizes |\n|---|---|\n"
    sizes, active = collections.defaultdict(list), json.loads(pathlib.Path("configs/testdata/active.json").read_text())
    for name, n in json.loads(pathlib.Path("configs/testdata/parameters.json").read_text()).items():
        family, size = name.split("/")
        sizes[family].append(f"{size} ({human(n)}{f', {human(active[name])} a token' if name in active else ''})")
    for family in sorted(sizes):
        cell, first = "", family
        for one in sizes[family] + [None]:  # cells of at most 25 words
            longer = f"{cell} · {one}" if cell else one
            if one is None or len(longer.split()) > 25:
                text += f"| {first} | {cell} |\n"
                longer, first = one, ""
            cell = longer
    pathlib.Path("docs/families.md").write_text(text)


if __name__ == "__main__":
    main()
