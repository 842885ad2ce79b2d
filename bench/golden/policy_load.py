"""Loads a policy that lfactor exported into lerobot's own class, strictly, and compares what it does with what lfactor serve answers, from the
same noise: that of Go's noise.Key, whose quantile is NormalDist's.

lfactor serve FOLDER --port 8765, then with lerobot 0.4.4 and openpi-client: python bench/golden/policy_load.py FOLDER 8765
"""

import json
import pathlib
import statistics
import sys

import numpy as np
import torch
from openpi_client import websocket_client_policy

from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

MASK, STEP, INVERSE = (1 << 64) - 1, 0x9E3779B97F4A7C15, statistics.NormalDist().inv_cdf


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def drawn(seed, draw, *shape):
    first = mix((seed + (draw + 1) * STEP) & MASK)
    v = [INVERSE(((mix((first + e * STEP) & MASK) >> 11) + 0.5) / (1 << 53)) for e in range(int(np.prod(shape)))]
    return torch.tensor(v, dtype=torch.float64).float().reshape(shape)


def said(m, batch, seed):
    """What VQ-BeT does, whose codes are drawn by the noise of draw 7 (stages/family/latents.go)."""
    c, turn = m.config, [0]
    windows = c.n_obs_steps + c.n_action_pred_token - 1
    first = mix((seed + 8 * STEP) & MASK)
    noise = [-np.log(-np.log(((mix((first + e * STEP) & MASK) >> 11) + 0.5) / (1 << 53))) for e in range(windows * 2 * c.vqvae_n_embed)]
    noise = torch.tensor(np.array(noise)).float().reshape(windows, 2, -1)

    def multinomial(probs, num_samples):
        of = noise.reshape(-1, c.vqvae_n_embed) if len(probs) > windows else noise[:, turn[0]]
        turn[0] = 1 - turn[0]
        return (probs.log() + of).argmax(-1, keepdim=True)

    torch.multinomial = multinomial
    return m.vqbet(batch, rollout=True)[:, : c.action_chunk_size]


worst = [0]


def compare(client, looks, seed, want):
    got = client.infer({k: np.stack([l[k] for l in looks]) for k in looks[0]} | {"prompt": "-", "seed": seed})["actions"]
    worst.append(np.abs(got - want).max() / np.abs(want).max())


def main():
    folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    config = PreTrainedConfig.from_pretrained(folder)
    m = get_policy_class(config.type).from_pretrained(folder, config=config, strict=True).eval()
    before, after = make_pre_post_processors(config, pretrained_path=str(folder))
    client, g = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2)
    steps = config.n_obs_steps
    for seed in range(5):
        looks = []
        for _ in range(steps):
            state = g.normal(size=config.robot_state_feature.shape).astype(np.float32)
            looks.append({"observation.state": state} | {k: g.integers(0, 256, (*f.shape[1:], 3), dtype=np.uint8) for k, f in config.image_features.items()})
        batches = [before({k: torch.from_numpy(v).permute(2, 0, 1).float() / 255 if v.ndim == 3 else torch.from_numpy(v) for k, v in l.items()}) for l in looks]
        batch = {k: torch.stack([b[k] for b in batches], dim=1) for k in looks[0]}
        batch["observation.images"] = torch.stack([batch[k] for k in config.image_features], dim=-4)
        if config.type == "vqbet":
            with torch.no_grad():
                compare(client, looks, seed, after(said(m, batch, seed))[0].numpy())
            continue
        shape = (1, config.horizon, *config.action_feature.shape)
        import diffusers.schedulers.scheduling_ddpm as ddpm

        used = iter(range(1, 1000))
        ddpm.randn_tensor = lambda *a, **k: drawn(seed, next(used), *shape)
        with torch.no_grad():
            want = after(m.diffusion.generate_actions(batch, noise=drawn(seed, 0, *shape)))[0].numpy()
        compare(client, looks, seed, want)
    print(config.type, "largest difference, relative:", max(worst))


main()
