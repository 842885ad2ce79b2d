"""Loads a Cosmos3 that lfactor exported into diffusers' own class by its from_pretrained, and compares what it does with what lfactor serve answers, from the same noise. Views are
encoded by diffusers' autoencoder, which the export names, places in time are those of diffusers' pipeline, and steps are of Euler.

lfactor serve FOLDER --port 8765, then with torch, diffusers, tokenizers and openpi-client: python bench/golden/cosmos3_load.py FOLDER 8765
"""

import json
import pathlib
import sys

import numpy as np
import torch
from diffusers import AutoencoderKLWan, Cosmos3OmniTransformer
from diffusers.pipelines.cosmos.pipeline_cosmos3_omni import get_3d_mrope_ids_text_tokens, get_3d_mrope_ids_vae_tokens
from openpi_client import websocket_client_policy
from policy_noise import INVERSE, MASK, STEP, mix
from safetensors.torch import load_file
from tokenizers import Tokenizer

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
c = json.loads((folder / "config.json").read_text())
m, found = Cosmos3OmniTransformer.from_pretrained(folder, output_loading_info=True)
assert not any(found[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), found
m = m.float().eval()
vae = AutoencoderKLWan.from_pretrained(pathlib.Path(c["encoders"]) / "vae").eval()
words = Tokenizer.from_file(str(folder / "tokenizer.json"))
scale = load_file(next(folder.glob("policy_preprocessor_step_*_normalizer_processor.safetensors")))
around = {k: (scale[k + ".q01"] + (scale[k + ".q99"] - scale[k + ".q01"]) / 2, 2 / (scale[k + ".q99"] - scale[k + ".q01"])) for k in ("observation.state", "action")}
side, patch, dim, chunk, real = c["video_scale"], c["latent_patch_size"], c["action_dim"], c["chunk_size"], len(scale["action.q01"])
rate, base = c["robot_rate"] / c["video_every"], float(c["base_fps"])
frames = (c["video_frames"] - 1) // side[0] + 1
grid = (frames, c["view_height"] // side[1], c["view_width"] * len(c["cameras"]) // side[2])
tokens = (frames, grid[1] // patch, grid[2] // patch)
DRAW_FILM = 12


def drawn(seed, draw, *shape):
    first = mix((seed + (draw + 1) * STEP) & MASK)
    v = [INVERSE(((mix((first + e * STEP) & MASK) >> 11) + 0.5) / (1 << 53)) for e in range(int(np.prod(shape)))]
    return torch.tensor(v, dtype=torch.float64).float().reshape(shape)


def prompt(task):
    say = [f"The video is {int(c['video_frames'] / rate):.1f} seconds long and is of {rate:.0f} FPS.", f"This video is of {c['view_height']}x{c['view_width'] * len(c['cameras'])} resolution."]
    if len(c["cameras"]) > 1:
        say.insert(0, "This video contains concatenated views from multiple camera perspectives.")
    for s in say:
        task = task.rstrip() + ("" if task.rstrip().endswith(".") else ".") + " " + s
    return f"<|im_start|>user\n{task}<|im_end|>\n<|im_start|>assistant\n<|im_end|><|vision_start|>"


def latents(views):
    x = torch.from_numpy(np.concatenate(views, 1)).permute(2, 0, 1)[None, :, None].float() / 127.5 - 1
    z = vae.encode(x).latent_dist.mode()
    mean, std = (torch.tensor(vae.config[k]).view(1, -1, 1, 1, 1) for k in ("latents_mean", "latents_std"))
    return ((z - mean) / std)[0]


def act(state, views, task, seed):
    ids = torch.tensor(words.encode(prompt(task), add_special_tokens=False).ids)
    told, frame = len(ids), tokens[1] * tokens[2]
    rows = frames * frame
    text, at = get_3d_mrope_ids_text_tokens(told, 0, True)
    at += c["unified_3d_mrope_temporal_modality_margin"]
    fps = dict(base_fps=base, reset_spatial_indices=True)
    clip_at, _ = get_3d_mrope_ids_vae_tokens(*tokens, at, fps=rate, temporal_compression_factor=side[0], **fps)
    acts_at, _ = get_3d_mrope_ids_vae_tokens(chunk + 1, 1, 1, at, fps=float(c["robot_rate"]), temporal_compression_factor=1, base_temporal_compression_factor=side[0], start_frame_offset=0, **fps)
    clip = torch.einsum("thwpqc->cthpwq", drawn(seed, DRAW_FILM, *tokens, patch, patch, c["latent_channel"])).reshape(c["latent_channel"], *grid)
    clip[:, :1] = latents(views)
    acts = drawn(seed, 0, chunk, dim)
    acts[:, real:] = 0
    first = torch.zeros(1, dim)
    mid, by = around["observation.state"]
    first[0, : len(state)] = (torch.from_numpy(state) - mid) * by
    vision, action = torch.arange(told, told + rows), torch.arange(told + rows, told + rows + chunk + 1)
    shifted = lambda k: (lambda s: (torch.tensor(c["acting_shift"]) * s / (1 + torch.tensor(c["acting_shift"] - 1.0) * s)).item())(torch.tensor(1 - k / c["acting_steps"]))
    for k in range(c["acting_steps"]):
        t, by = shifted(k), shifted(k) - shifted(k + 1)
        with torch.no_grad():
            out = m(ids, torch.arange(told), torch.cat([text, clip_at, acts_at], 1), told, told + rows + chunk + 1, [clip[None]], [tokens], vision, vision[frame:], torch.full((rows - frame,), 1000 * t), [torch.arange(1, frames)],
                    action_tokens=[torch.cat([first, acts])], action_token_shapes=[(chunk + 1, 1, 1)], action_sequence_indexes=action, action_mse_loss_indexes=action[1:], action_timesteps=torch.full((chunk,), 1000 * t),
                    action_noisy_frame_indexes=[torch.arange(1, chunk + 1)], action_domain_ids=[torch.tensor([0])])
        clip[:, 1:] -= by * out.sample[0][0][:, 1:]
        acts -= by * out.action[0][1:]
        acts[:, real:] = 0
    mid, by = around["action"]
    return (acts[:, :real] / by + mid).numpy()


client, g, worst = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", port), np.random.default_rng(2), 0
for seed in range(5):
    state = g.normal(size=len(scale["observation.state.q01"])).astype(np.float32)
    views = [g.integers(0, 256, (c["view_height"], c["view_width"], 3), dtype=np.uint8) for _ in c["cameras"]]
    task = ["reach the red disc", "reach it."][seed % 2]
    want = act(state, views, task, seed)
    got = client.infer({"observation.state": state, "prompt": task, "seed": seed} | dict(zip(c["cameras"], views)))["actions"]
    worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
print("cosmos3 largest difference, relative:", worst)
