"""Composed models that transformers 5.23 does not have, in plain PyTorch over its parts.

LLaVA-OneVision-1.5 (arXiv:2509.23661): RICE-ViT (arXiv:2507.20025) is written here from the description and the weight names of the
published model, and stands before transformers' Qwen3. Names are those of the family in later versions of transformers.
InternLM: transformers' InternViT and projector before InternLM2 of family_modules.py, as in InternVL 2.5 8B and 26B (arXiv:2412.05271).
Llava: transformers' SiglipVisionModel, a projector of two linear layers, and any decoder of transformers (arXiv:2304.08485).

Forwards take the arguments of transformers' composed models and return an object with logits.
"""

from types import SimpleNamespace

import torch
from torch import nn
from transformers import InternVLVisionModel, SiglipVisionModel
from transformers.models.internvl.modeling_internvl import InternVLModel, InternVLMultiModalProjector


def turn(x, angle):
    """x [T, heads, D], angle [T, D/2]: pairs (i, i + D/2)."""
    a, b = x.chunk(2, -1)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class RiceAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c["num_heads"]
        self.qkv = nn.Linear(c["hidden_size"], 3 * c["hidden_size"])
        self.proj = nn.Linear(c["hidden_size"], c["hidden_size"])

    def forward(self, x, angle):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(1)
        q, k = turn(q, angle), turn(k, angle)
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        return self.proj(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))


class RiceMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc1 = nn.Linear(c["hidden_size"], c["intermediate_size"])
        self.fc2 = nn.Linear(c["intermediate_size"], c["hidden_size"])

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class RiceBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm1 = nn.LayerNorm(c["hidden_size"], eps=c["layer_norm_eps"])
        self.norm2 = nn.LayerNorm(c["hidden_size"], eps=c["layer_norm_eps"])
        self.attn, self.mlp = RiceAttention(c), RiceMLP(c)

    def forward(self, x, angle):
        x = x + self.attn(self.norm1(x), angle)
        return x + self.mlp(self.norm2(x))


class RiceMerger(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wide = c["hidden_size"] * c["spatial_merge_size"] ** 2
        self.ln_q = nn.LayerNorm(c["hidden_size"], eps=c["layer_norm_eps"])
        self.mlp = nn.Sequential(nn.Linear(self.wide, self.wide), nn.GELU(), nn.Linear(self.wide, c["out_hidden_size"]))

    def forward(self, x):
        return self.mlp(self.ln_q(x).view(-1, self.wide))


class Rice(nn.Module):
    """Each frame is a sequence: a class token whose rotary angle is a parameter, then patches, square after square, that turn by row
    and column."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(c["in_channels"], c["hidden_size"], c["patch_size"], c["patch_size"], bias=False)
        self.class_embedding = nn.Parameter(torch.zeros(c["hidden_size"]))
        self.class_pos_emb = nn.Parameter(torch.zeros(1, c["hidden_size"] // c["num_heads"] // 2))
        self.pre_layernorm = nn.LayerNorm(c["hidden_size"], eps=c["layer_norm_eps"])
        self.blocks = nn.ModuleList(RiceBlock(c) for _ in range(c["depth"]))
        self.merger = RiceMerger(c)

    def angles(self, h, w):
        m, n = self.c["spatial_merge_size"], self.c["hidden_size"] // self.c["num_heads"] // 4
        freq = 1.0 / 10000.0 ** (torch.arange(n, dtype=torch.float32) / n)
        row, col = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        squares = lambda x: x.view(h // m, m, w // m, m).permute(0, 2, 1, 3).flatten()
        return torch.cat([squares(row)[:, None].float() * freq, squares(col)[:, None].float() * freq], -1)

    def forward(self, pixels, grids):
        p, at, out = self.c["patch_size"], 0, []
        for t, h, w in grids.tolist():
            for _ in range(t):
                rows = pixels[at:at + h * w].view(-1, self.c["in_channels"], p, p)
                at += h * w
                x = torch.cat([self.class_embedding[None], self.patch_embed.proj(rows).flatten(1)])
                angle = torch.cat([self.class_pos_emb, self.angles(h, w)])
                x = self.pre_layernorm(x)
                for block in self.blocks:
                    x = block(x, angle)
                out.append(x[1:])
        return self.merger(torch.cat(out))


class LlavaOnevision(nn.Module):
    """LLaVA-OneVision-1.5; body is transformers' Qwen3Model."""

    def __init__(self, vision, body):
        super().__init__()
        self.model = nn.Module()
        self.model.visual, self.model.language_model = Rice(vision), body
        self.lm_head = nn.Linear(body.config.hidden_size, body.config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask, image_token_id, video_token_id, pixel_values=None, image_grid_thw=None, pixel_values_videos=None,
                video_grid_thw=None, use_cache=False):
        x = self.model.language_model.embed_tokens(input_ids)
        for token, values, grids in ((image_token_id, pixel_values, image_grid_thw), (video_token_id, pixel_values_videos, video_grid_thw)):
            if values is not None:
                x = x.masked_scatter((input_ids == token)[..., None], self.model.visual(values, grids))
        x = self.model.language_model(inputs_embeds=x, attention_mask=attention_mask, use_cache=use_cache).last_hidden_state
        return SimpleNamespace(logits=self.lm_head(x))


class Llava(nn.Module):
    """A custom pair: SigLIP, all of whose patches are features, a projector, and a causal language model of transformers."""

    def __init__(self, vision, decoder):
        super().__init__()
        self.vision_tower, self.language_model = SiglipVisionModel(vision), decoder
        self.multi_modal_projector = nn.Module()
        width = decoder.config.hidden_size
        self.multi_modal_projector.linear_1 = nn.Linear(vision.hidden_size, width)
        self.multi_modal_projector.linear_2 = nn.Linear(width, width)

    def forward(self, input_ids, attention_mask, image_token_id, pixel_values=None, use_cache=False):
        x = self.language_model.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            p, f = self.multi_modal_projector, self.vision_tower(pixel_values).last_hidden_state
            x = x.masked_scatter((input_ids == image_token_id)[..., None], p.linear_2(nn.functional.gelu(p.linear_1(f))))
        return self.language_model(inputs_embeds=x, attention_mask=attention_mask, use_cache=use_cache)


class InternLM(nn.Module):
    """InternVL of a configuration of transformers, whose text_config is not read, with a decoder of family_modules.py."""

    def __init__(self, config, decoder):
        super().__init__()
        self.vision_tower, self.language_model = InternVLVisionModel(config.vision_config), decoder
        self.multi_modal_projector = InternVLMultiModalProjector(config)

    def features(self, pixels):
        f = self.vision_tower(pixel_values=pixels).last_hidden_state[:, 1:]
        side = int(f.shape[1] ** 0.5)
        return self.multi_modal_projector(InternVLModel.pixel_shuffle(self, f.unflatten(1, (side, side))).flatten(1, 2))

    def forward(self, input_ids, attention_mask, image_token_id, pixel_values=None, use_cache=False):
        embed, layers, norm, head, _ = self.language_model.parts()
        x, n = embed(input_ids), input_ids.shape[1]
        if pixel_values is not None:
            x = x.masked_scatter((input_ids == image_token_id)[..., None], self.features(pixel_values))
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        for layer in layers:
            x = layer(x, torch.arange(n)[None], mask)
        return SimpleNamespace(logits=head(norm(x)))
