"""Loads a LingBot-VA that lfactor exported into lerobot's own class by its from_pretrained, strictly, and compares what it does with what lfactor serve answers, from the same
noise. The class is that of lerobot's main branch (2026-08), put into PyPI's 0.4.4, whose configurations, policies and pipelines it is made of; its autoencoder has the export's
size and lies beside its encoder of captions, where lerobot takes the published one of the hub.

lfactor serve FOLDER --port 8765, then with lerobot 0.4.4, diffusers, einops and openpi-client: LEROBOT=CHECKOUT python bench/golden/lingbot_load.py FOLDER 8765
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
from openpi_client import websocket_client_policy

import lerobot.configs
import lerobot.optim.schedulers
import lerobot.utils.import_utils as has
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.processor import PolicyProcessorPipeline
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from policy_noise import INVERSE, MASK, STEP, mix
from transformers import AutoTokenizer

for name, v in dict(FeatureType=FeatureType, NormalizationMode=NormalizationMode, PolicyFeature=PolicyFeature, PreTrainedConfig=PreTrainedConfig).items():
    setattr(lerobot.configs, name, v)
lerobot.optim.schedulers.ConstantWithWarmupSchedulerConfig = object
has._diffusers_available = has._transformers_available = True
has.require_package = lambda *a, **k: None
sys.modules["lerobot.policies.lingbot_va"] = types.ModuleType("lerobot.policies.lingbot_va")
sys.modules["lerobot.policies.lingbot_va"].__path__ = [str(pathlib.Path(os.environ["LEROBOT"]) / "src/lerobot/policies/lingbot_va")]
mod = importlib.import_module("lerobot.policies.lingbot_va.modeling_lingbot_va")

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
keys = json.loads((folder / "config.json").read_text())
root = pathlib.Path(keys["wan_pretrained_path"])
if keys.pop("video_scale", None):  # of another autoencoder than the published one, which lerobot knows none of
    whole, folder = folder, pathlib.Path(tempfile.mkdtemp())
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    (folder / "config.json").write_text(json.dumps(keys))


def drawn(seed, draw, *shape):
    first = mix((seed + (draw + 1) * STEP) & MASK)
    v = [INVERSE(((mix((first + e * STEP) & MASK) >> 11) + 0.5) / (1 << 53)) for e in range(int(np.prod(shape)))]
    return torch.tensor(v, dtype=torch.float64).float().reshape(shape)


class Given:
    """torch, but for what is given here."""

    def __init__(self, **own):
        self.__dict__.update(own)

    def __getattr__(self, name):
        return getattr(torch, name)


mod.load_tokenizer = lambda path, subfolder: AutoTokenizer.from_pretrained(root / "text_encoder")
config = PreTrainedConfig.from_pretrained(folder)
config.dtype, config.device = "float32", "cpu"
m = mod.LingBotVAPolicy.from_pretrained(folder, config=config, strict=True).eval()
frames, each, real, side = config.frame_chunk_size, config.action_per_frame, len(config.used_action_channel_ids), 4  # pixels of the small autoencoder's
grid = (config.height // side, config.width // side * len(config.obs_cam_keys))
mod.LingBotVAPolicy._latent_hw = property(lambda self: grid)


def clip(seed):
    """The noise of a clip, which is counted token by token."""
    p, h, w = config.patch_size, *grid
    v = drawn(seed, 12, frames // p[0], h // p[1], w // p[2], config.in_channels, *p)
    return v.permute(3, 0, 4, 1, 5, 2, 6).reshape(1, config.in_channels, frames, h, w)


before = PolicyProcessorPipeline.from_pretrained(folder, config_filename="policy_preprocessor.json")
after = PolicyProcessorPipeline.from_pretrained(folder, config_filename="policy_postprocessor.json", to_transition=policy_action_to_transition, to_output=transition_to_policy_action)
client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
for seed in range(5):
    state = g.normal(size=config.input_features["observation.state"].shape).astype(np.float32)
    seen = {k: g.integers(0, 256, (*f.shape[1:], 3), dtype=np.uint8) for k, f in config.image_features.items()}
    task = ["reach the red disc", "reach it"][seed % 2]
    batch = before({k: torch.from_numpy(v).permute(2, 0, 1).float() / 255 for k, v in seen.items()} | {"observation.state": torch.from_numpy(state), "task": task})
    acts = drawn(seed, 0, frames * each, config.action_dim)
    acts[:, real:] = 0
    starts = iter([clip(seed), acts.reshape(frames, each, -1).permute(2, 0, 1)[None, ..., None].clone()])
    mod.torch = Given(randn=lambda *a, **k: next(starts))
    m.reset()
    with torch.no_grad():
        want = m.predict_action_chunk(batch)[0]
    want = torch.stack([after(a[None])[0] for a in want]).numpy()
    got = client.infer({"observation.state": state, "prompt": task, "seed": seed} | seen)["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("lingbot_va largest difference, relative:", worst)
