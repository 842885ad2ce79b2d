"""Loads an X-VLA that lfactor exported by lerobot's own from_pretrained, which is strict, and compares what it does with what lfactor serve answers, from
the same noise. Views are sent in the size that the model has; the tokenizer is the folder's.

lfactor serve FOLDER --port 8765, then with lerobot 0.4.4, tokenizers and openpi-client: python bench/golden/xvla_load.py FOLDER 8765
"""

import json
import pathlib
import sys

import numpy as np
import torch
from openpi_client import websocket_client_policy
from safetensors.torch import load_file
from tokenizers import Tokenizer

from lerobot.policies.xvla.modeling_xvla import XVLAPolicy
from policy_noise import drawn

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
m = XVLAPolicy.from_pretrained(folder)
c, model = m.config, m.model.eval()
steps = json.loads((folder / "policy_preprocessor.json").read_text())["steps"]
stats = load_file(folder / next(s["state_file"] for s in steps if s["registry_name"] == "normalizer_processor"))
words = json.loads((folder / "tokenizer.json").read_text())
words["added_tokens"] = [dict(single_word=False, lstrip=False, rstrip=False, normalized=False) | t for t in words["added_tokens"]]
words = Tokenizer.from_str(json.dumps(words))
cameras = list(c.image_features)
mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
side = c.resize_imgs_with_padding[0]
for seed in range(5):
    state = g.normal(size=c.input_features["observation.state"].shape).astype(np.float32)
    seen = {k: g.integers(0, 256, (side, side, 3), dtype=np.uint8) for k in cameras}
    images = torch.stack([(torch.from_numpy(v).permute(2, 0, 1).float() / 255 - mean) / std for v in seen.values()])[None]
    ids = words.encode("reach the red disc", add_special_tokens=True).ids
    ids = torch.tensor([ids + [1] * (c.tokenizer_max_length - len(ids))])
    low, high = (stats["observation.state." + k] for k in ("q01", "q99"))
    scaled = torch.zeros(1, c.max_state_dim)
    scaled[0, : len(state)] = 2 * (torch.from_numpy(state) - low) / (high - low) - 1
    noise = drawn(seed, 1, c.chunk_size, model.dim_action)
    randn, torch.randn = torch.randn, lambda *a, **k: noise
    want = model.generate_actions(ids, images, torch.ones(1, len(cameras), dtype=torch.bool), torch.zeros(1, dtype=torch.long), scaled, 10)
    torch.randn = randn
    low, high = (stats["action." + k] for k in ("q01", "q99"))
    want = ((want[0, :, : len(low)] + 1) / 2 * (high - low) + low).numpy()
    got = client.infer({"observation.state": state, "prompt": "reach the red disc", "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("largest difference, relative:", worst)
