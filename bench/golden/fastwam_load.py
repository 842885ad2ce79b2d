"""Loads a FastWAM that lfactor exported into lerobot's own class by its from_pretrained, strictly, and compares what it does with what lfactor serve answers, from the same
noise. The class is that of lerobot's main branch (2026-08), put into PyPI's 0.4.4, whose configurations, policies and pipelines it is made of; its autoencoder has the export's
size and lies beside its encoder of captions, where lerobot takes the published one of the hub.

lfactor serve FOLDER --port 8765, then with lerobot 0.4.4, diffusers, einops and openpi-client: LEROBOT=CHECKOUT python bench/golden/fastwam_load.py FOLDER 8765
"""

import importlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
import types

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from openpi_client import websocket_client_policy

import lerobot.configs
import lerobot.optim
import lerobot.utils.import_utils as has
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.optim.optimizers import AdamWConfig
from lerobot.processor import PolicyProcessorPipeline
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from policy_noise import drawn

for name, v in dict(FeatureType=FeatureType, NormalizationMode=NormalizationMode, PolicyFeature=PolicyFeature, PreTrainedConfig=PreTrainedConfig).items():
    setattr(lerobot.configs, name, v)
lerobot.optim.AdamWConfig = AdamWConfig
has._diffusers_available = has._transformers_available = True
has.require_package = lambda *a, **k: None
sys.modules["lerobot.policies.fastwam"] = types.ModuleType("lerobot.policies.fastwam")
sys.modules["lerobot.policies.fastwam"].__path__ = [str(pathlib.Path(os.environ["LEROBOT"]) / "src/lerobot/policies/fastwam")]
fast = importlib.import_module("lerobot.policies.fastwam.modeling_fastwam")
adapters = importlib.import_module("lerobot.policies.fastwam.wan.adapters")

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
keys = json.loads((folder / "config.json").read_text())
root = pathlib.Path(keys["text_encoder_model_id"])
if keys.pop("video_scale", None):  # of another autoencoder than the published one, which lerobot knows none of
    whole, folder = folder, pathlib.Path(tempfile.mkdtemp())
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps(keys))
vae = AutoencoderKLWan.from_pretrained(root / "vae")
adapters.WanVideoVAE38.z_dim, adapters.WanVideoVAE38.upsampling_factor = vae.config.z_dim, 4
fast.load_pretrained_wan_vae = lambda **k: adapters.WanVideoVAE38(dtype=torch.float32, device="cpu", pretrained=vae)
words = fast.build_wan_tokenizer
fast.build_wan_tokenizer = lambda model_id, **k: words(model_id=str(root / "text_encoder"), **k)
config = PreTrainedConfig.from_pretrained(folder)
config.torch_dtype, config.device = "float32", "cpu"
m = fast.FastWAMPolicy.from_pretrained(folder, config=config, strict=True).eval()
before = PolicyProcessorPipeline.from_pretrained(folder, config_filename="policy_preprocessor.json")
after = PolicyProcessorPipeline.from_pretrained(folder, config_filename="policy_postprocessor.json", to_transition=policy_action_to_transition, to_output=transition_to_policy_action)
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
for seed in range(5):
    state = g.normal(size=config.robot_state_feature.shape).astype(np.float32)
    seen = {k: g.integers(0, 256, (*f.shape[1:], 3), dtype=np.uint8) for k, f in config.image_features.items()}
    task = ["reach the red disc", "reach &amp; it"][seed % 2]
    batch = before({k: torch.from_numpy(v).permute(2, 0, 1).float() / 255 for k, v in seen.items()} | {"observation.state": torch.from_numpy(state), "task": task})
    m.model._make_action_latents = lambda n, *a: drawn(seed, 1, n, config.action_dim)
    with torch.no_grad():
        want = m.predict_action_chunk(batch)[0]
    want = torch.stack([after(a[None])[0] for a in want]).numpy()
    got = client.infer({"observation.state": state, "prompt": task, "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("fastwam largest difference, relative:", worst)
