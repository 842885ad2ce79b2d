"""Golden data of readout tokens (policy.expert_readouts): stages/family/robots/testdata/readouts*/. Octo (arXiv:2405.12213, octo/model/octo_module.py and
octo/model/components/action_heads.py) is in JAX; what is said there of readouts is written here in torch around transformers' Qwen3-VL: rows that are
learned places and nothing else stand behind a prompt, they read it and readouts before them, no row of the prompt reads one, which the mask says to every
layer of the language model, and the heads read them alone. The heads are GR00T's (lerobot's classes, as in policies_groot17.py), by flow matching, by L1 at
once, and by Octo's diffusion (20 levels of the cosine schedule, the noise as the target), whose levels are told in the place of the time.

With transformers 4.57, diffusers 0.35 and a checkout of lerobot's main branch of 2026-08; from the repository: python bench/golden/policies_readouts.py CHECKOUT
"""

import json
import math
import pathlib
import sys

import diffusers
import torch
from diffusers.schedulers import scheduling_ddpm as ddpm
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.feature_extraction_utils import BatchFeature

import policies_groot17 as g17

C, lib = g17.C, g17.lib
READS, WIDTH, HEADS, LAYERS, LEVELS = 3, 12, 3, 4, 20
EXPERT = "action_expert."


class Readouts(nn.Module):
    def __init__(self):
        super().__init__()
        qwen = Qwen3VLConfig(image_token_id=C["image"], video_token_id=C["video"], vision_start_token_id=C["start"], tie_word_embeddings=True, text_config=g17.text_of(C), vision_config=C["vision"])
        qwen._attn_implementation = "eager"
        self.host = Qwen3VLForConditionalGeneration._from_config(qwen, attn_implementation="eager")
        self.readouts = nn.Embedding(READS, C["hidden"])
        self.head = lib.GR00TN17ActionHead(lib.GR00TN17Config(backbone_embedding_dim=C["hidden"], max_state_dim=C["state"], max_action_dim=C["actions"], action_horizon=C["chunk"], hidden_size=WIDTH, input_embedding_dim=WIDTH, max_seq_len=C["chunk"], max_num_embodiments=C["robots"], num_inference_timesteps=10, state_dropout_prob=0.0, use_alternate_vl_dit=False,
            diffusion_model_cfg=dict(positional_embeddings=None, num_layers=LAYERS, num_attention_heads=HEADS, attention_head_dim=WIDTH // HEADS, norm_type="ada_norm", dropout=0.2, final_dropout=True, output_dim=WIDTH, interleave_self_attention=True), vl_self_attention_cfg=dict(num_layers=0)))

    def read(self, tokens, images):
        """What the readouts gather of prompts [samples tokens], [samples readouts width]."""
        m, (b, n) = self.host.model, tokens.shape
        # rows of readouts have a token of their own, in whose place their embeddings stand
        ids = torch.cat((tokens, torch.full((b, READS), 1)), 1)
        embeds = self.host.get_input_embeddings()(ids)
        seen, deep = m.get_image_features(images, torch.tensor([[1, 4, 4]] * (2 * b)))
        at = (ids == C["image"])[..., None].expand_as(embeds)
        embeds = embeds.masked_scatter(at, torch.cat(seen))
        embeds = torch.cat((embeds[:, :n], self.readouts.weight[None].expand(b, -1, -1)), 1)
        places, _ = m.get_rope_index(ids, torch.tensor([[1, 4, 4]] * (2 * b)), None, attention_mask=torch.ones_like(ids))
        rule = torch.zeros(n + READS, n + READS, dtype=torch.bool)
        for q in range(n + READS):
            for k in range(q + 1):
                rule[q, k] = k < n or q >= n  # a prompt reads no readout, and readouts read all that comes before them
        mask = torch.where(rule, 0.0, torch.finfo(torch.float32).min)[None, None].expand(b, 1, -1, -1)
        states = m.language_model(inputs_embeds=embeds, attention_mask=mask, position_ids=places, visual_pos_masks=at[..., 0], deepstack_visual_embeds=deep, use_cache=False).last_hidden_state
        return states[:, n:]

    def says(self, told, state, robots, noisy, step):
        """The numbers of actions, [samples chunk numbers]. Noisy is None where they are given at once."""
        h, places = self.head, self.head.position_embedding.weight[: C["chunk"]]
        x = places[None].expand(len(robots), -1, -1)
        if noisy is not None:
            x = h.action_encoder(noisy, step, robots) + places
        rows = torch.cat((h.state_encoder(state[:, None], robots), x), 1)
        return h.action_decoder(h.model(hidden_states=rows, encoder_hidden_states=h.vlln(told), timestep=step), robots)[:, -C["chunk"] :]


def name(n):
    part, _, rest = n.partition(".")
    return rest if part == "host" else EXPERT + (n if part == "readouts" else rest)


def betas():
    bar = lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
    return torch.tensor([min(1 - bar((i + 1) / LEVELS) / bar(i / LEVELS), 0.999) for i in range(LEVELS)])


def main(kind, out):
    m = Readouts()
    if kind == "l1":
        del m.head.action_encoder  # no noisy actions are read
    g = torch.Generator().manual_seed(101)
    for n, p in m.named_parameters():
        p.requires_grad = True
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") and p.ndim == 1 else 0)
    m.eval()
    n, chunk, real = 4, C["chunk"], C["real"]
    samples = [dict(tokens=[3, 9] + [7] * n + [5, 9] + [7] * n + [14, 2, 6], views=[True, True], time=0.7, step=13, robot=2), dict(tokens=[3, 9] + [7] * n + [11, 9] + [7] * n + [12, 4, 1], views=[True, True], time=0.253, step=4, robot=0)]
    tensors = {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(chunk, C["actions"], generator=g), torch.randn(chunk, C["actions"], generator=g)
        tensors[f"state.{i}"] = torch.randn(C["state"], generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(16, 3 * 2 * 16, generator=g) * 2 - 1
    stack = lambda what: torch.stack([tensors[f"{what}.{i}"] for i in range(2)])
    images = torch.cat([tensors[f"image.{i}.{k}"] for i in range(2) for k in range(2)])
    tokens, robots = torch.tensor([s["tokens"] for s in samples]), torch.tensor([s["robot"] for s in samples])
    actions, noise, state = stack("actions"), stack("noise"), stack("state")
    bar = torch.cumprod(1 - betas(), 0)
    steps = torch.tensor([s["step"] for s in samples])

    def loss():
        """What is said, in this program's direction, and the mean loss of the real numbers."""
        told = m.read(tokens, images)
        if kind == "flow":
            t = 1 - torch.tensor([s["time"] for s in samples])
            y = -m.says(told, state, robots, (1 - t)[:, None, None] * noise + t[:, None, None] * actions, (t * 1000).long())
            return y, ((y - (noise - actions)) ** 2)[..., :real].mean()
        if kind == "l1":
            y = m.says(told, state, robots, None, torch.full((2,), 1000))
            return y, (y - actions).abs()[..., :real].mean()
        a = bar[steps][:, None, None]
        y = -m.says(told, state, robots, a.sqrt() * actions + (1 - a).sqrt() * noise, steps)
        return y, ((y - noise) ** 2)[..., :real].mean()

    said, first = loss()
    first.backward()
    for i in range(2):
        tensors[f"acted.{i}" if kind == "l1" else f"pred.{i}"] = said[i].detach().clone()
    grads = {"grad." + name(n): p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [name(n) for n, p in m.named_parameters() if p.grad is None]
    weights = {name(n): p.detach().clone() for n, p in m.named_parameters()}
    if kind == "flow":
        x = torch.randn(2, chunk, C["actions"], generator=g)
        for i in range(2):
            tensors[f"start.{i}"] = x[i].clone()
        with torch.no_grad():
            told = m.read(tokens, images)
            for k in range(10):
                x = x + 0.1 * m.says(told, state, robots, x, torch.full((2,), int(k / 10.0 * 1000)))
        for i in range(2):
            tensors[f"acted.{i}"] = x[i]
    if kind == "diffusion":
        start, added = torch.randn(2, chunk, C["actions"], generator=g), torch.randn(10, 2, chunk, C["actions"], generator=g)
        for i in range(2):
            tensors[f"start.{i}"] = start[i].clone()
            for k in range(10):
                tensors[f"added.{i}.{k}"] = added[k][i]
        for what, cls in (("acted", ddpm.DDPMScheduler), ("implicit", diffusers.DDIMScheduler)):
            s = cls(num_train_timesteps=LEVELS, beta_schedule="squaredcos_cap_v2", clip_sample=True, clip_sample_range=5.0, prediction_type="epsilon")
            s.set_timesteps(10)
            used = iter(range(10))
            ddpm.randn_tensor = lambda *a, **k: added[next(used)]
            x = start.clone()
            with torch.no_grad():
                told = m.read(tokens, images)
                for t in s.timesteps:
                    x = s.step(-m.says(told, state, robots, x, t.expand(2)), t, x).prev_sample
            for i in range(2):
                tensors[f"{what}.{i}"] = x[i]
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()[1]
        v.backward()
        opt.step()
        losses.append(v.item())
    c = dict(architectures=["Qwen3VLForConditionalGeneration"], model_type="qwen3_vl", tie_word_embeddings=True, text_config=g17.text_of(C) | dict(model_type="qwen3_vl_text"), vision_config=C["vision"] | dict(model_type="qwen3_vl"), image_token_id=C["image"], video_token_id=C["video"], vision_start_token_id=C["start"], vision_end_token_id=10)
    policy = dict(Expert=kind, Horizon=chunk, ExpertWidth=WIDTH, ExpertHeads=HEADS, ExpertLayers=LAYERS, ExpertActions=C["actions"], ExpertState=C["state"], ExpertRobots=C["robots"], ExpertReads=READS, ViewSize=16)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, out / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=real, grid=[1, 4, 4], policy=policy), indent=1) + "\n")
    print(kind, "loss", first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)


if __name__ == "__main__":
    for kind in ("flow", "l1", "diffusion"):
        torch.manual_seed(0)
        main(kind, pathlib.Path("stages/family/robots/testdata") / ("readouts_" + kind))
