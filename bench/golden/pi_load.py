"""Loads a Pi0 or a Pi0.5 that lfactor exported into lerobot's own class, strictly, and compares what it does with what lfactor serve answers, from the same noise. The
class is made in the export's sizes as in policies.py and policies_pi0.py, because lerobot's own way knows two sizes. Views are sent in the size that the model has; the
tokenizer is the folder's, and has no token of its own at the beginning but the one that the prompt begins with.

lfactor serve FOLDER --port 8765, then as policies.py, with tokenizers and openpi-client: LEROBOT=CHECKOUT python bench/golden/pi_load.py FOLDER 8765
"""

import json
import pathlib
import sys

import numpy as np
import torch
from openpi_client import websocket_client_policy
from safetensors.torch import load_file
from tokenizers import Tokenizer

import policies
import policies_pi0
from policy_noise import drawn

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
c = json.loads((folder / "config.json").read_text())
of = policies_pi0 if c["type"] == "pi0" else policies
policies.C.update(hidden=c["hidden_size"], inter=c["intermediate_size"], expert=c["expert_hidden_size"], expert_inter=c["expert_intermediate_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"], kv=c["num_key_value_heads"], head_dim=c["head_dim"], vocab=c["vocab_size"], chunk=c["chunk_size"], actions=c["max_action_dim"],
                  vision=dict(hidden=c["view_hidden_size"], inter=c["view_intermediate_size"], layers=c["view_layers"], heads=c["view_heads"], patch=c["view_patch"], image=c["view_size"]))
assert policies_pi0.C is policies.C
policies_pi0.STATE = c.get("max_state_dim", 0)
m = of.tiny(of.lerobot())
have = load_file(folder / "model.safetensors")
shared = dict(m.named_parameters(remove_duplicate=False)) | dict(m.named_buffers(remove_duplicate=False))
# files have tied matrices once, and all else must be there, what a model keeps beside its parameters too
missing = m.load_state_dict({k.removeprefix("model."): v for k, v in have.items()}, strict=False)
assert not missing.unexpected_keys, missing
assert all(any(shared[k] is shared[j] for j in shared if "model." + j in have) for k in missing.missing_keys), missing
m.eval()
steps = json.loads((folder / "policy_preprocessor.json").read_text())["steps"]
stats = load_file(folder / next(s["state_file"] for s in steps if s["registry_name"] == "normalizer_processor"))
words = json.loads((folder / "tokenizer.json").read_text())
words["added_tokens"] = [dict(single_word=False, lstrip=False, rstrip=False, normalized=False) | t for t in words["added_tokens"]]
words = Tokenizer.from_str(json.dumps(words))
begins = [t["id"] for t in json.loads((folder / "tokenizer.json").read_text())["added_tokens"] if t["content"] == "<bos>"]
cameras = [k for k, f in c["input_features"].items() if f["type"] == "VISUAL"]
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
scaled = lambda key, x: 2 * (x - stats[key + ".q01"]) / (stats[key + ".q99"] - stats[key + ".q01"]) - 1
for seed in range(5):
    state = g.normal(size=c["input_features"]["observation.state"]["shape"]).astype(np.float32)
    seen = {k: g.integers(0, 256, (c["view_size"], c["view_size"], 3), dtype=np.uint8) for k in cameras}
    images = [torch.from_numpy(v).permute(2, 0, 1).float()[None] / 255 * 2 - 1 for v in seen.values()]
    told = scaled("observation.state", torch.from_numpy(state))
    task = "reach the red disc"
    prompt = task + "\n"
    if c["type"] == "pi05":  # as lerobot's pi05_prepare_state_tokenizer_processor_step
        bins = np.digitize(told.numpy(), bins=np.linspace(-1, 1, 256 + 1)[:-1]) - 1
        prompt = f"Task: {task}, State: {' '.join(map(str, bins))};\nAction: "
    ids = torch.tensor([begins + words.encode(prompt, add_special_tokens=False).ids])
    more = []
    if c["type"] == "pi0":
        more = [torch.zeros(1, c["max_state_dim"])]
        more[0][0, : len(state)] = told
    with torch.no_grad():
        want = m.sample_actions(images, [torch.ones(1, dtype=torch.bool)] * len(images), ids, torch.ones_like(ids, dtype=torch.bool), *more, noise=drawn(seed, 1, c["chunk_size"], c["max_action_dim"]))
    low, high = (stats["action." + k] for k in ("q01", "q99"))
    want = ((want[0, :, : len(low)] + 1) / 2 * (high - low) + low).numpy()
    got = client.infer({"observation.state": state, "prompt": task, "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print(c["type"], "largest difference, relative:", worst)
