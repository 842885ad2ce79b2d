"""Loads a GR00T that lfactor exported into lerobot's classes, strictly, and compares what it does with what lfactor serve answers, from the same noise. The
classes are put together as in policies_groot.py, because lerobot's own way begins with files of the hub; the prompt is made as lerobot makes it. Views are
sent in the size that the model has; the tokenizer is the folder's.

lfactor serve FOLDER --port 8765, then with lerobot 0.4.4, diffusers, tokenizers and openpi-client: python bench/golden/groot_load.py FOLDER 8765
"""

import json
import pathlib
import sys

import numpy as np
import torch
from openpi_client import websocket_client_policy
from safetensors.torch import load_file
from tokenizers import Tokenizer

import policies_groot as groot
from policy_noise import drawn

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
c = json.loads((folder / "config.json").read_text())
m = groot.Groot(dict(hidden=c["hidden_size"], inter=c["intermediate_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"], kv=c["num_key_value_heads"], head_dim=c["head_dim"], vocab=c["vocab_size"], image=c["image_token"],
                     vision=dict(hidden=c["view_hidden_size"], inter=c["view_intermediate_size"], layers=c["view_layers"], heads=c["view_heads"], patch=c["view_patch"], image=c["view_size"]),
                     chunk=c["chunk_size"], actions=c["max_action_dim"], state=c["max_state_dim"], robots=c["embodiments"], future=c["future_tokens"], width=c["dit_width"], dit_heads=c["dit_heads"], dit_layers=c["dit_layers"], out=c["dit_output"], vl_heads=c["mixer_heads"], vl_layers=c["mixer_layers"], most=c["action_positions"]))
m.load_state_dict({k.removeprefix("_groot_model."): v for k, v in load_file(folder / "model.safetensors").items()}, strict=True)
m.eval()
m.action_head.num_inference_timesteps = 4  # as published; the golden data take ten
steps = json.loads((folder / "policy_preprocessor.json").read_text())["steps"]
stats = load_file(folder / next(s["state_file"] for s in steps if s["registry_name"] == "normalizer_processor"))
words = json.loads((folder / "tokenizer.json").read_text())
words["added_tokens"] = [dict(single_word=False, lstrip=False, rstrip=False, normalized=False) | t for t in words["added_tokens"]]
words = Tokenizer.from_str(json.dumps(words))
cameras = [k for k, f in c["input_features"].items() if f["type"] == "VISUAL"]
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
task = "reach the red disc"
parts = ["<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"]
for i in range(len(cameras)):
    parts[-1] += f"<image {i + 1}><img>"
    parts.append("</img>")
parts[-1] += str([task]) + "<|im_end|>\n<|im_start|>assistant\n"
ids = words.encode(parts[0], add_special_tokens=False).ids
for part in parts[1:]:
    ids += [c["image_token"]] * (c["view_size"] // c["view_patch"]) ** 2 + words.encode(part, add_special_tokens=False).ids
ids = torch.tensor([ids])
for seed in range(5):
    state = g.normal(size=c["input_features"]["observation.state"]["shape"]).astype(np.float32)
    seen = {k: g.integers(0, 256, (c["view_size"], c["view_size"], 3), dtype=np.uint8) for k in cameras}
    images = torch.stack([torch.from_numpy(v).permute(2, 0, 1).float() / 255 * 2 - 1 for v in seen.values()])
    scaled = torch.zeros(1, 1, c["max_state_dim"])
    low, high = (stats["observation.state." + k] for k in ("min", "max"))
    scaled[0, 0, : len(state)] = 2 * (torch.from_numpy(state) - low) / (high - low) - 1
    noise = drawn(seed, 1, c["chunk_size"], c["max_action_dim"])
    randn, torch.randn = torch.randn, lambda *a, **k: noise
    seen_by = m.backbone(groot.lib.BatchFeature(data=dict(eagle_pixel_values=images, eagle_input_ids=ids, eagle_attention_mask=torch.ones_like(ids), eagle_image_sizes=None)))
    want = m.action_head.get_action(seen_by, groot.lib.BatchFeature(data=dict(state=scaled, embodiment_id=torch.zeros(1, dtype=torch.long))))["action_pred"]
    torch.randn = randn
    low, high = (stats["action." + k] for k in ("min", "max"))
    want = ((want[0, :, : len(low)] + 1) / 2 * (high - low) + low).numpy()
    got = client.infer({"observation.state": state, "prompt": task, "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("largest difference, relative:", worst)
