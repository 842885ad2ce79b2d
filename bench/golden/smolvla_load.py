"""Loads a SmolVLA that lfactor exported into lerobot's own class, strictly, and compares what it does with what lfactor serve answers, from the same
noise. Views are sent in the size that the model has; the tokenizer is the folder's, and sizes are those of its config.json.

lfactor serve FOLDER --port 8765, then with lerobot 0.4.4, tokenizers and openpi-client: python bench/golden/smolvla_load.py FOLDER 8765
"""

import json
import pathlib
import sys

import numpy as np
import torch
from openpi_client import websocket_client_policy
from safetensors.torch import load_file
from tokenizers import Tokenizer

import policies_smolvla as smol
from policy_noise import drawn

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
c = json.loads((folder / "config.json").read_text())
smol.tower.SmolVLMVisionEmbeddings.forward = smol.places
vlm = smol.sized(c["hidden_size"], c["intermediate_size"], c["num_vlm_layers"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c["vocab_size"],
                 dict(hidden=c["view_hidden_size"], inter=c["view_intermediate_size"], layers=c["view_layers"], heads=c["view_heads"], patch=c["view_patch"], image=c["view_size"]), c["view_fold"])
vlm._attn_implementation = "eager"
_, m = smol.made(vlm, num_vlm_layers=c["num_vlm_layers"], max_state_dim=c["max_state_dim"], max_action_dim=c["max_action_dim"], chunk_size=c["chunk_size"], n_action_steps=c["chunk_size"], self_attn_every_n_layers=c["self_attn_every_n_layers"], expert_width_multiplier=c["expert_hidden_size"] / c["hidden_size"])
m.load_state_dict({k.removeprefix("model."): v for k, v in load_file(folder / "model.safetensors").items()}, strict=True)
m.eval()
steps = json.loads((folder / "policy_preprocessor.json").read_text())["steps"]
stats = load_file(folder / next(s["state_file"] for s in steps if s["registry_name"] == "normalizer_processor"))
words = json.loads((folder / "tokenizer.json").read_text())
words["added_tokens"] = [dict(single_word=False, lstrip=False, rstrip=False, normalized=False) | t for t in words["added_tokens"]]
words = Tokenizer.from_str(json.dumps(words))
cameras = [k for k, f in c["input_features"].items() if f["type"] == "VISUAL"]
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
for seed in range(5):
    state = g.normal(size=c["input_features"]["observation.state"]["shape"]).astype(np.float32)
    seen = {k: g.integers(0, 256, (c["view_size"], c["view_size"], 3), dtype=np.uint8) for k in cameras}
    images = [torch.from_numpy(v).permute(2, 0, 1).float()[None] / 255 * 2 - 1 for v in seen.values()]
    ids = torch.tensor([words.encode("reach the red disc\n", add_special_tokens=False).ids])
    scaled = torch.zeros(1, c["max_state_dim"])
    scaled[0, : len(state)] = (torch.from_numpy(state) - stats["observation.state.mean"]) / (stats["observation.state.std"] + 1e-8)
    with torch.no_grad():
        want = m.sample_actions(images, [torch.ones(1, dtype=torch.bool)] * len(images), ids, torch.ones_like(ids, dtype=torch.bool), scaled, noise=drawn(seed, 1, c["chunk_size"], c["max_action_dim"]))
    n = len(stats["action.mean"])
    want = (want[0, :, :n] * (stats["action.std"] + 1e-8) + stats["action.mean"]).numpy()
    got = client.infer({"observation.state": state, "prompt": "reach the red disc", "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("largest difference, relative:", worst)
