"""Loads an ACT that lfactor exported into lerobot's own class, strictly, and compares what it does with what lfactor serve answers.

lfactor serve FOLDER --port 8765, then: LEROBOT=/path/to/lerobot python bench/golden/act_load.py FOLDER 8765 (torchvision, einops and openpi-client)
"""

import json
import pathlib
import sys
import types

import numpy as np
import torch
import torchvision
from openpi_client import websocket_client_policy
from safetensors.torch import load_file

import policies_act

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
c = json.loads((folder / "config.json").read_text())
wide = torchvision.models.resnet18
act = policies_act.lerobot()
policies_act.WIDTH = c["backbone_width"]
if policies_act.WIDTH == 64:
    torchvision.models.resnet18 = wide
feature = lambda f: types.SimpleNamespace(shape=tuple(f["shape"]))
cameras = {k: feature(f) for k, f in c["input_features"].items() if f["type"] == "VISUAL"}
usual = dict(pretrained_backbone_weights=None, n_action_steps=c["chunk_size"], temporal_ensemble_coeff=None, dropout=0.0)
m = act.ACTPolicy(types.SimpleNamespace(**(usual | {k: v for k, v in c.items() if k not in usual}), robot_state_feature=feature(c["input_features"]["observation.state"]), env_state_feature=None, action_feature=feature(c["output_features"]["action"]),
                                        image_features=cameras, validate_features=lambda: None))
m.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
steps = json.loads((folder / "policy_preprocessor.json").read_text())["steps"]
stats = load_file(folder / next(s["state_file"] for s in steps if s["registry_name"] == "normalizer_processor"))
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
for _ in range(5):
    state = g.normal(size=c["input_features"]["observation.state"]["shape"]).astype(np.float32)
    seen = {k: g.integers(0, 256, (*f.shape[1:], 3), dtype=np.uint8) for k, f in cameras.items()}
    scaled = lambda key, x: (x - stats[key + ".mean"]) / (stats[key + ".std"] + 1e-8)
    batch = {k: scaled(k, torch.from_numpy(v).permute(2, 0, 1).float() / 255)[None] for k, v in seen.items()}
    batch["observation.state"] = scaled("observation.state", torch.from_numpy(state))[None]
    want = m.predict_action_chunk(batch)[0].detach() * (stats["action.std"] + 1e-8) + stats["action.mean"]
    got = client.infer({"observation.state": state, "prompt": "-"} | seen)["actions"]
    worst = max(worst, np.abs(got - want.numpy()).max() / np.abs(want.numpy()).max())
print("largest difference, relative:", worst)
