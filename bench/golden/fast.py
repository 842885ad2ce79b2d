"""Golden data of the FAST tokenizer: dataset/token/testdata/fast/, what the published processor makes of chunks of actions: the files that it
saves when it is fitted to the first 400, and the tokens of 1,000. Chunks are waves that both sides compute (chunk() below, and in fast_test.go).

FAST=/path/to/processing_action_tokenizer.py (of physical-intelligence/fast) python bench/golden/fast.py, with scipy, tokenizers and transformers
"""

import importlib.util
import json
import math
import os
import pathlib

import numpy as np

OUT = pathlib.Path("dataset/token/testdata/fast")
spec = importlib.util.spec_from_file_location("processing_action_tokenizer", os.environ["FAST"])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


def chunk(c):
    """Chunk c: [8 3], about -1 to 1, each number a wave with a step in some chunks."""
    return np.array([[math.sin(0.37 * c + 0.11 * (d + 1) * t * (1 + c % 5)) * 0.8 + (0.3 if c % 7 == d and t > 4 else 0) for d in range(3)] for t in range(8)], np.float64)


class Processor(module.UniversalActionProcessor):
    """transformers 5 finds a processor's parts by other means, and wants to know each part's class."""

    def __init__(self, bpe_tokenizer, scale=10, vocab_size=1024, min_token=0, *, action_dim=None, time_horizon=None):
        self.bpe_tokenizer, self.scale, self.vocab_size, self.min_token = bpe_tokenizer, scale, vocab_size, min_token
        self.time_horizon = self.called_time_horizon = time_horizon
        self.action_dim = self.called_action_dim = action_dim


chunks = [chunk(c) for c in range(1000)]
p = Processor.fit(chunks[:400], scale=10, vocab_size=400)
OUT.mkdir(parents=True, exist_ok=True)
p.bpe_tokenizer.backend_tokenizer.save(str(OUT / "tokenizer.json"), pretty=False)
(OUT / "processor_config.json").write_text(json.dumps(dict(processor_class="UniversalActionProcessor", scale=p.scale, vocab_size=p.vocab_size, min_token=p.min_token)) + "\n")
ids = [p(c)[0] for c in chunks]
back = [float(np.abs(p.decode([i], time_horizon=8, action_dim=3)[0] - c).max()) for i, c in zip(ids, chunks)]
(OUT / "ids.json").write_text(json.dumps(dict(ids=ids, worst=max(back))).replace("], [", "],\n[") + "\n")
print(p.min_token, len(p.bpe_tokenizer), sum(map(len, ids)) / 1000, max(back))

# RT-2's bins as openvla's prismatic/vla/action_tokenizer.py makes them: on every edge, beside it, and outside
edges = np.linspace(-1, 1, 256)
values = np.concatenate([edges, np.nextafter(edges, -2), np.nextafter(edges, 2), [-3.0, 3.0, 0.0]])
bins = np.digitize(np.clip(values, -1, 1), edges)
centres = (edges[:-1] + edges[1:]) / 2
ids = 32000 - bins
decoded = centres[np.clip(32000 - ids - 1, 0, len(centres) - 1)]
(OUT / "bins.json").write_text(json.dumps(dict(values=values.tolist(), ids=ids.tolist(), decoded=decoded.tolist())) + "\n")
