"""Golden data of models of diffusion: stages/family/denoisers/testdata/<case>/ with config.json and weights as diffusers
writes them, golden.json (loss, 20 steps of AdamW) and golden.safetensors (clean latents, noise, states of captions, what the
model predicts, the gradient of every parameter). Two samples of unequal size are trained together: the loss is the mean over
all tokens of the mean squared error of a token's numbers.

Run from the repository's root: python bench/golden/denoisers.py [case ...], with torch and diffusers 0.42.1.
"""

import json
import pathlib
import shutil
import sys
import zlib

import diffusers
import torch
from safetensors.torch import save_file

ROOT = pathlib.Path("stages/family/denoisers/testdata")
torch.use_deterministic_algorithms(True)


class Wan:
    """Latents [C, T, H, W], captions padded with zeros to text_rows, times 1000·sigma."""

    rows = 8

    def samples(self, c):
        return [((c["in_channels"], 3, 4, 6), 5, 0.7), ((c["in_channels"], 1, 6, 4), 8, 0.25)]

    def predict(self, m, x, text, sigma, pool):
        padded = torch.zeros(self.rows, text.shape[1])
        padded[: len(text)] = text
        return m(x[None], torch.tensor([1000.0 * sigma]), padded[None], return_dict=False)[0][0]

    def tokens(self, c, shape):
        p = c["patch_size"]
        return shape[1] // p[0] * (shape[2] // p[1]) * (shape[3] // p[2])

    def more(self):
        return dict(text_rows=self.rows)


class WanGiven(Wan):
    """Channels beside the noisy ones that are given, and rows of an image's features where the model reads some: the text is
    what diffusers takes the last 512 rows for. Captions fill them: keys of padding are equal, so that gradients through them cancel."""

    rows = 512

    def samples(self, c):
        return [((c["out_channels"], 3, 4, 6), 500, 0.7), ((c["out_channels"], 1, 6, 4), 512, 0.25)]

    def make(self, c, g, i, shape):
        out = {f"given.{i}": torch.randn(c["in_channels"] - c["out_channels"], *shape[1:], generator=g)}
        if c.get("image_dim"):
            out[f"image.{i}"] = torch.randn(5, c["image_dim"], generator=g)
        return out

    def given(self, tensors, i):
        return dict(given=tensors[f"given.{i}"], image=tensors.get(f"image.{i}"))

    def predict(self, m, x, text, sigma, pool, given, image):
        padded = torch.zeros(self.rows, text.shape[1])
        padded[: len(text)] = text
        return m(torch.cat([x, given])[None], torch.tensor([1000.0 * sigma]), padded[None], None if image is None else image[None], return_dict=False)[0][0]

    def more(self):
        return dict(text_rows=self.rows, image_rows=5)


class WanFirst(Wan):
    """The first frame of latents is given clean: its tokens are told time 0, and the loss is that of the others."""

    def samples(self, c):
        return [((c["in_channels"], 3, 4, 6), 5, 0.7), ((c["in_channels"], 2, 6, 4), 8, 0.25)]

    def noisy(self, x0, eps, sigma):
        x = (1 - sigma) * x0 + sigma * eps
        x[:, 0] = x0[:, 0]
        return x

    def error(self, d):
        return (d[:, 1:] ** 2).mean()

    def predict(self, m, x, text, sigma, pool):
        padded = torch.zeros(self.rows, text.shape[1])
        padded[: len(text)] = text
        p = m.config.patch_size
        times = torch.full((x.shape[1] // p[0], x.shape[2] // p[1], x.shape[3] // p[2]), 1000.0 * sigma)
        times[0] = 0
        return m(x[None], times.reshape(1, -1), padded[None], return_dict=False)[0][0]

    def more(self):
        return dict(text_rows=self.rows, first=1)


class Qwen:
    """Latents [C, 1, H, W], packed in squares of 2; captions as long as they are; times sigma."""

    def samples(self, c):
        return [((c["in_channels"] // 4, 1, 6, 8), 5, 0.7), ((c["in_channels"] // 4, 1, 4, 6), 7, 0.25)]

    def width(self, c):
        return c["joint_attention_dim"]

    def predict(self, m, x, text, sigma, pool):
        c, _, h, w = x.shape
        rows = x.view(c, h // 2, 2, w // 2, 2).permute(1, 3, 0, 2, 4).reshape(1, h * w // 4, 4 * c)
        y = m(rows, encoder_hidden_states=text[None], encoder_hidden_states_mask=torch.ones(1, len(text)), timestep=torch.tensor([1000.0 * sigma]) / 1000, img_shapes=[[(1, h // 2, w // 2)]],
              return_dict=False)[0]
        return y.view(h // 2, w // 2, c, 2, 2).permute(2, 0, 3, 1, 4).reshape(c, 1, h, w)

    def tokens(self, c, shape):
        return shape[2] * shape[3] // 4

    def more(self):
        return {}


class QwenEdit(Qwen):
    """Two further images of the sequence, or one, are given clean: behind the tokens that are predicted, in order."""

    sizes = [[(4, 6), (6, 4)], [(8, 4)]]

    def behind(self, i):
        return sum(h * w // 4 for h, w in self.sizes[i])

    def make(self, c, g, i, shape):
        return {f"with.{i}.{k}": torch.randn(shape[0], 1, h, w, generator=g) for k, (h, w) in enumerate(self.sizes[i])}

    def given(self, tensors, i):
        return dict(images=[tensors[f"with.{i}.{k}"] for k in range(len(self.sizes[i]))])

    def predict(self, m, x, text, sigma, pool, images):
        c, _, h, w = x.shape
        pack = lambda x: x.view(c, x.shape[2] // 2, 2, x.shape[3] // 2, 2).permute(1, 3, 0, 2, 4).reshape(1, -1, 4 * c)
        rows = torch.cat([pack(v) for v in [x] + images], 1)
        y = m(rows, encoder_hidden_states=text[None], encoder_hidden_states_mask=torch.ones(1, len(text)), timestep=torch.tensor([1000.0 * sigma]) / 1000,
              img_shapes=[[(1, v.shape[2] // 2, v.shape[3] // 2) for v in [x] + images]], return_dict=False)[0][:, : h * w // 4]
        return y.view(h // 2, w // 2, c, 2, 2).permute(2, 0, 3, 1, 4).reshape(c, 1, h, w)

    def more(self):
        return dict(further=self.sizes)


class Flux(Qwen):
    """As Qwen's, with a pooled row of each caption and a guidance of 3.5; latents [C, 1, H, W]."""

    def pool(self, c):
        return c["pooled_projection_dim"]

    def samples(self, c):
        return [(s, n, t) for (s, n, _), t in zip(super().samples(c), (0.75, 0.25))]

    def predict(self, m, x, text, sigma, pool):
        c, _, h, w = x.shape
        rows = x.view(c, h // 2, 2, w // 2, 2).permute(1, 3, 0, 2, 4).reshape(1, h * w // 4, 4 * c)
        ids = torch.zeros(h // 2, w // 2, 3)
        ids[..., 1] += torch.arange(h // 2)[:, None]
        ids[..., 2] += torch.arange(w // 2)[None]
        guidance = torch.tensor([3.5]) if m.config.guidance_embeds else None
        y = m(rows, encoder_hidden_states=text[None], pooled_projections=pool[None], timestep=torch.tensor([sigma]), img_ids=ids.reshape(-1, 3), txt_ids=torch.zeros(len(text), 3),
              guidance=guidance, return_dict=False)[0]
        return y.view(h // 2, w // 2, c, 2, 2).permute(2, 0, 3, 1, 4).reshape(c, 1, h, w)

    def more(self):
        return dict(guidance=3.5)


class SD3(Flux):
    """As Flux's, without a guidance; places are those in the middle of the model's table. Latents [C, 1, H, W], times 1000·sigma."""

    deviation = 0.15  # places are numbers of up to one: with larger weights 20 steps of AdamW amplify the last bit

    def samples(self, c):
        return [((c["in_channels"], 1, h, w), n, t) for (h, w), n, t in (((6, 8), 5, 0.75), ((4, 6), 7, 0.25))]

    def predict(self, m, x, text, sigma, pool):
        return m(x.transpose(0, 1), encoder_hidden_states=text[None], pooled_projections=pool[None], timestep=torch.tensor([1000.0 * sigma]), return_dict=False)[0].transpose(0, 1)

    def more(self):
        return {}


class UNet:
    """Latents [C, 1, H, W]; captions as long as they are; times 1000·sigma. SDXL's are told a pooled row and a frame."""

    def samples(self, c):
        return [((c["in_channels"], 1, 7, 10), 5, 0.7), ((c["in_channels"], 1, 7, 10), 8, 0.25)]

    def width(self, c):
        return c["cross_attention_dim"]

    def given(self, tensors, i):
        return dict(i=i)

    def frame(self, i):
        return [40.0 + i, 70.0, 3.0 * i, 5.0, 28.0, 40.0]

    def predict(self, m, x, text, sigma, pool, i=0):
        more = None
        if m.config.addition_embed_type:
            more = dict(text_embeds=pool[None], time_ids=torch.tensor([self.frame(i)]))
        return m(x.transpose(0, 1), torch.tensor([1000.0 * sigma]), text[None], added_cond_kwargs=more, return_dict=False)[0].transpose(0, 1)

    def tokens(self, c, shape):
        return shape[2] * shape[3]

    def more(self):
        return {}


class UNetXL(UNet):
    def pool(self, c):
        return c["projection_class_embeddings_input_dim"] - 6 * c["addition_time_embed_dim"]

    def more(self):
        return dict(frames=[self.frame(0), self.frame(1)])


UNET = dict(in_channels=3, out_channels=3, cross_attention_dim=10, norm_num_groups=4)
SD = dict(block_out_channels=(8, 12), layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=2)
SDXL = dict(block_out_channels=(8, 8, 16), layers_per_block=1, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=[1, 2, 4], transformer_layers_per_block=[1, 1, 2], use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=4, projection_class_embeddings_input_dim=30)
FLUX = dict(patch_size=1, in_channels=12, num_layers=1, num_single_layers=2, attention_head_dim=12, num_attention_heads=2, joint_attention_dim=10, pooled_projection_dim=6, axes_dims_rope=(4, 4, 4))
SD3S = dict(sample_size=12, patch_size=2, in_channels=3, out_channels=3, num_layers=3, attention_head_dim=12, num_attention_heads=2, joint_attention_dim=10, caption_projection_dim=24, pooled_projection_dim=6, pos_embed_max_size=9)
QWEN = dict(patch_size=2, in_channels=12, out_channels=3, num_layers=2, attention_head_dim=12, num_attention_heads=2, joint_attention_dim=10, axes_dims_rope=(4, 4, 4))
WAN = dict(patch_size=[1, 2, 2], num_attention_heads=2, attention_head_dim=12, in_channels=3, out_channels=3, text_dim=10, freq_dim=8, ffn_dim=28, num_layers=2)
CASES = {
    "flux": ("FluxTransformer2DModel", Flux(), FLUX | dict(guidance_embeds=True)),
    "flux-schnell": ("FluxTransformer2DModel", Flux(), FLUX | dict(num_layers=2, num_single_layers=1)),
    "qwen-image": ("QwenImageTransformer2DModel", Qwen(), QWEN),
    "qwen-image-edit": ("QwenImageTransformer2DModel", QwenEdit(), QWEN | dict(zero_cond_t=True)),
    "qwen-image-edit-2509": ("QwenImageTransformer2DModel", QwenEdit(), QWEN | dict(num_layers=2)),
    "sd3": ("SD3Transformer2DModel", SD3(), SD3S),
    "sd3.5": ("SD3Transformer2DModel", SD3(), SD3S | dict(num_layers=2, qk_norm="rms_norm", dual_attention_layers=(0,))),
    "unet": ("UNet2DConditionModel", UNet(), UNET | SD),
    "unet-xl": ("UNet2DConditionModel", UNetXL(), UNET | SDXL),
    "wan-i2v": ("WanTransformer3DModel", WanGiven(), WAN | dict(in_channels=8, image_dim=6, added_kv_proj_dim=24)),
    "wan-i2v-2.2": ("WanTransformer3DModel", WanGiven(), WAN | dict(in_channels=7)),
    "wan-ti2v": ("WanTransformer3DModel", WanFirst(), WAN),
    "wan": ("WanTransformer3DModel", Wan(), WAN),
    "wan-plain": ("WanTransformer3DModel", Wan(), WAN | dict(cross_attn_norm=False, patch_size=[1, 1, 2], eps=1e-5, attention_head_dim=16)),
}


def seeded(name):
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))


def case(name):
    kind, how, config = CASES[name]
    g = seeded(name)
    torch.manual_seed(zlib.crc32(name.encode()))
    m = getattr(diffusers, kind)(**config)
    for p in m.parameters():  # nothing is zero, so that every gradient says something
        p.data = torch.randn(p.shape, generator=g) * (getattr(how, "deviation", 0.3) if p.ndim > 1 else 0.2) + (1.0 if p.ndim == 1 and float(p.data.mean()) > 0.5 else 0.0)
    m.train()
    out = ROOT / name
    shutil.rmtree(out, ignore_errors=True)
    m.save_pretrained(out)
    tensors, meta, samples = {}, [], how.samples(config)
    for i, (shape, words, sigma) in enumerate(samples):
        tensors[f"x0.{i}"], tensors[f"noise.{i}"] = torch.randn(shape, generator=g), torch.randn(shape, generator=g)
        tensors[f"text.{i}"] = torch.randn(words, how.width(config) if hasattr(how, "width") else config["text_dim"], generator=g)
        if hasattr(how, "make"):
            tensors |= how.make(config, g, i, shape)
        meta.append(dict(shape=list(shape), sigma=sigma, tokens=how.tokens(config, shape) + (how.behind(i) if hasattr(how, "behind") else 0)))
        if hasattr(how, "pool"):
            tensors[f"pool.{i}"] = torch.randn(how.pool(config), generator=g)

    def loss(keep=False):
        total, rows = 0.0, sum(s["tokens"] for s in meta)
        for i, (shape, words, sigma) in enumerate(samples):
            x0, eps = tensors[f"x0.{i}"], tensors[f"noise.{i}"]
            noisy = how.noisy(x0, eps, sigma) if hasattr(how, "noisy") else (1 - sigma) * x0 + sigma * eps
            y = how.predict(m, noisy, tensors[f"text.{i}"], sigma, tensors.get(f"pool.{i}"), **(how.given(tensors, i) if hasattr(how, "given") else {}))
            if keep:
                tensors[f"pred.{i}"] = y.detach().clone()
            error = how.error if hasattr(how, "error") else lambda d: (d**2).mean()
            total = total + error(y - (eps - x0)) * meta[i]["tokens"] / rows
        return total

    first = loss(True)
    first.backward()
    grads = {"grad." + n: p.grad for n, p in m.named_parameters() if p.grad is not None}
    learnt = {n for n, p in m.named_parameters() if p.grad is not None}
    dead = [n for n in m.state_dict() if n not in learnt]
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps(dict(samples=meta, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.state_dict().values()), **how.more()), indent=1) + "\n")
    print(name, first.item(), losses[-1], sum(p.numel() for p in m.parameters()))


W14 = dict(num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, num_layers=40)
SD15 = dict(cross_attention_dim=768, attention_head_dim=8)
SDXL10 = dict(block_out_channels=(320, 640, 1280), down_block_types=SDXL["down_block_types"], up_block_types=SDXL["up_block_types"], attention_head_dim=[5, 10, 20], transformer_layers_per_block=[1, 2, 10],
              cross_attention_dim=2048, use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816)
PUBLISHED = {
    "stable-diffusion/1.5": ("UNet2DConditionModel", SD15),
    "stable-diffusion/2.1": ("UNet2DConditionModel", dict(cross_attention_dim=1024, attention_head_dim=[5, 10, 20, 20], use_linear_projection=True)),
    "stable-diffusion/xl-base-1.0": ("UNet2DConditionModel", SDXL10),
    "wan/2.1-t2v-1.3b": ("WanTransformer3DModel", dict(num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=30)),
    "wan/2.1-t2v-14b": ("WanTransformer3DModel", W14),
    "wan/2.2-t2v-a14b": ("WanTransformer3DModel", W14),
    "wan/2.2-ti2v-5b": ("WanTransformer3DModel", dict(num_attention_heads=24, attention_head_dim=128, ffn_dim=14336, num_layers=30, in_channels=48, out_channels=48)),
    "wan/2.1-i2v-14b": ("WanTransformer3DModel", W14 | dict(in_channels=36, image_dim=1280, added_kv_proj_dim=5120)),
    "wan/2.2-i2v-a14b": ("WanTransformer3DModel", W14 | dict(in_channels=36)),
    "qwen-image/edit-2509": ("QwenImageTransformer2DModel", {}),
    "qwen-image/edit-2511": ("QwenImageTransformer2DModel", dict(zero_cond_t=True)),
    "qwen-image/20b": ("QwenImageTransformer2DModel", {}),
    "flux/1-dev": ("FluxTransformer2DModel", dict(guidance_embeds=True)),
    "flux/1-schnell": ("FluxTransformer2DModel", {}),
    "stable-diffusion/3-medium": ("SD3Transformer2DModel", dict(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=192)),
    "stable-diffusion/3.5-medium": ("SD3Transformer2DModel", dict(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=384, dual_attention_layers=tuple(range(13)), qk_norm="rms_norm")),
    "stable-diffusion/3.5-large": ("SD3Transformer2DModel", dict(num_layers=38, num_attention_heads=38, caption_projection_dim=2432, pos_embed_max_size=192, qk_norm="rms_norm")),
}


def count():
    """Enters what torch counts in the published sizes into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    all = json.loads(path.read_text())
    for name, (kind, config) in PUBLISHED.items():
        with torch.device("meta"):
            all[name] = sum(p.numel() for p in getattr(diffusers, kind)(**config).state_dict().values())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["count"]:
        count()
        sys.exit()
    for name in sys.argv[1:] or CASES:
        case(name)
