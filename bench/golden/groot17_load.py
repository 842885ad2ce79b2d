"""Loads a GR00T N1.7 that lfactor exported into lerobot's classes, strictly, and compares what it does with what lfactor serve answers, from the same noise.
The classes are put together as in policies_groot17.py, because lerobot's own way begins with files of the hub. The prompt follows the folder's template, and
states and actions are scaled as its action_policy.json says.

lfactor serve FOLDER --port 8765, then with transformers 4.57 and openpi-client: LEROBOT=<checkout of lerobot's main branch> python bench/golden/groot17_load.py FOLDER 8765
"""

import json
import os
import pathlib
import sys

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
sys.argv[1] = os.environ["LEROBOT"]  # which policies_groot17 asks for

import numpy as np  # noqa: E402
import torch  # noqa: E402
from openpi_client import websocket_client_policy  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoTokenizer, Qwen2VLImageProcessor  # noqa: E402

import policies_groot17 as groot  # noqa: E402
from policy_noise import drawn  # noqa: E402

c = json.loads((folder / "config.json").read_text())
text, vision, robot = c["text_config"], c["vision_config"], json.loads((folder / "action_policy.json").read_text())
m = groot.Groot(dict(hidden=text["hidden_size"], inter=text["intermediate_size"], layers=text["num_hidden_layers"], heads=text["num_attention_heads"], kv=text["num_key_value_heads"], head_dim=text["head_dim"], vocab=text["vocab_size"], sections=text["rope_scaling"]["mrope_section"], image=c["image_token_id"],
                     video=c["video_token_id"], start=c["vision_start_token_id"], vision={k: v for k, v in vision.items() if k != "model_type"}, chunk=c["action_horizon"], actions=c["max_action_dim"], state=c["max_state_dim"], robots=c["max_num_embodiments"], width=c["input_embedding_dim"], out=c["hidden_size"], most=c["max_seq_len"],
                     dit_heads=c["diffusion_model_cfg"]["num_attention_heads"], dit_layers=c["diffusion_model_cfg"]["num_layers"], vl_heads=c["vl_self_attention_cfg"]["num_attention_heads"], vl_layers=c["vl_self_attention_cfg"]["num_layers"]))
given, tied = load_file(folder / "model.safetensors"), "backbone.model.lm_head.weight"
if tied not in given and tied in m.state_dict():  # which is the embedding
    given[tied] = given["backbone.model.model.language_model.embed_tokens.weight"]
m.load_state_dict(given, strict=True)
m.eval()
m.action_head.num_inference_timesteps = 4  # as published; the golden data take ten
words, pictures = AutoTokenizer.from_pretrained(folder), Qwen2VLImageProcessor.from_pretrained(folder)
cameras, scale, (moves, senses) = robot["robots"][0]["cameras"], robot["robots"][0]["scale"], robot["robots"][0]["numbers"]
side, task = robot["policy"]["ViewSize"], "reach the red disc"
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
said = words.apply_chat_template([dict(role="user", content=[dict(type="image")] * len(cameras) + [dict(type="text", text=task)])], tokenize=False)
each = (side // vision["patch_size"] // vision["spatial_merge_size"]) ** 2
ids = torch.tensor([words.encode(said.replace("<|image_pad|>", "<|image_pad|>" * each), add_special_tokens=False)])
for seed in range(5):
    state = g.normal(size=senses).astype(np.float32)
    seen = {k: g.integers(0, 256, (side, side, 3), dtype=np.uint8) for k in cameras}
    read = pictures(list(seen.values()), return_tensors="pt")
    scaled = torch.zeros(1, 1, c["max_state_dim"])
    scaled[0, 0, :senses] = torch.tensor((state - scale["State"]["Mid"]) * scale["State"]["By"])
    noise = drawn(seed, 1, c["action_horizon"], c["max_action_dim"])
    randn, torch.randn = torch.randn, lambda *a, **k: noise
    seen_by = m.backbone(groot.BatchFeature(data=dict(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=read["pixel_values"], image_grid_thw=read["image_grid_thw"])))
    want = m.action_head.get_action(seen_by, groot.BatchFeature(data=dict(state=scaled, embodiment_id=torch.zeros(1, dtype=torch.long))))["action_pred"]
    torch.randn = randn
    want = want[0, :, :moves].double().numpy() / scale["Action"]["By"] + scale["Action"]["Mid"]
    got = client.infer({"observation.state": state, "prompt": task, "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("largest difference, relative:", worst)
