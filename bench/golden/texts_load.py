"""Load text encoders that lfactor wrote with transformers and hold them to the goldens of bench/golden/texts.py.

Run: python bench/golden/texts_load.py GOLDEN WRITTEN [GOLDEN WRITTEN ...]. Fails if a weight is missing, unexpected or of
another shape, or if a state is off by more than 1e-5 of the largest.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file

for golden, written in zip(sys.argv[1::2], sys.argv[2::2]):
    cls = json.loads((pathlib.Path(written) / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, cls).from_pretrained(written, output_loading_info=True, dtype=torch.float32)
    wrong = {k: sorted(v) for k, v in info.items() if v}
    assert not wrong, (written, wrong)
    want = load_file(pathlib.Path(golden) / "golden.safetensors")
    with torch.no_grad():
        got = torch.cat([model(input_ids=c[None].long()).last_hidden_state[0] for c in want["ids"].split(want["lens"].tolist())])
    off = ((got - want["last"]).abs().max() / want["last"].abs().max()).item()
    assert off < 1e-5, (written, off)
    print(f"{cls} {pathlib.Path(golden).name}: off by {off:.1e}")
