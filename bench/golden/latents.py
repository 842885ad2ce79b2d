"""Golden data of stages/latent: tiny autoencoders with random weights, and what diffusers computes with them.

For each case stages/latent/testdata/<case>/ gets
  config.json, diffusion_pytorch_model.safetensors   as diffusers saves them, weights in bfloat16
  golden.safetensors   pixels [n c (t) h w]; mean and logvar [n z (t) h w] of them; latents [n z (t) h w] and the pixels
                       decoded of them; noise, which draws latents of mean and logvar; gradients of the loss by all
                       weights that have one, in order of their names: the largest of each, and all as shares of it in
                       32767ths, which are some 1e-5 off
  golden.json          the kind of loss, the weight of the divergence, and the values of both parts

The loss is that of pixels and of what is decoded of drawn latents: the mean of squares or of absolute values, and the weight times
the divergence of each sample, of which the mean over samples is taken. Everything is computed in float64
and rounded, but for what Wan's doubling of sides has in float32; of random weights, the first are taken whose numbers float32
leaves within a seventh of the tests' bounds, since norms of two channels may turn a rounding into much more. Attention at levels of
Wan's encoder (attn_scales) does not run in diffusers, whose blocks are handed caches that attention does not take: they are dropped
here.

With `check FOLDER` the script reads a folder that lfactor has written and prints as JSON what is missing and unexpected in it, and
how far what it computes of a case's golden data is off. With `fuzz FOLDER COUNT` it makes cases of random settings.

Run from the repository's root: python bench/golden/latents.py [CASE ...]; needs diffusers 0.42.1 and torch.
"""

import copy
import json
import pathlib
import random
import sys

import diffusers
import torch
import torch.nn.functional as F
from diffusers.models.autoencoders import autoencoder_kl_qwenimage, autoencoder_kl_wan
from safetensors.torch import load_file, save_file

OUT = pathlib.Path("stages/latent/testdata")
KL, WAN, QWEN = "AutoencoderKL", "AutoencoderKLWan", "AutoencoderKLQwenImage"


def levels(n, down="DownEncoderBlock2D", up="UpDecoderBlock2D"):
    return dict(down_block_types=[down] * n, up_block_types=[up] * n)


# class, keys, shape of the pixels, kind of loss
CASES = {
    "kl": (KL, dict(levels(2), block_out_channels=[2, 4], norm_num_groups=2, latent_channels=2, sample_size=8), (2, 3, 6, 8), "l2"),
    "kl-flux": (KL, dict(levels(3), block_out_channels=[2, 2, 4], norm_num_groups=1, latent_channels=3, layers_per_block=2,
                         scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False,
                         mid_block_add_attention=False, force_upcast=False, act_fn="mish"), (1, 3, 8, 12), "l1"),
    "kl-attention": (KL, dict(levels(2, "AttnDownEncoderBlock2D", "AttnUpDecoderBlock2D"), in_channels=1, out_channels=1,
                              block_out_channels=[2, 4], norm_num_groups=2, latent_channels=1, act_fn="gelu", sample_size=[4, 8],
                              latents_mean=[0.25], latents_std=[1.5]), (2, 1, 4, 8), "l2"),
    "wan": (WAN, dict(base_dim=2, dim_mult=[1, 2, 2], z_dim=2, num_res_blocks=1, temperal_downsample=[True, True],
                      latents_mean=[0.1, -0.2], latents_std=[1.5, 0.75], scale_factor_spatial=4), (1, 3, 9, 8, 8), "l2"),
    "wan-attention": (WAN, dict(base_dim=2, dim_mult=[1, 2], z_dim=1, num_res_blocks=1, temperal_downsample=[True],
                                attn_scales=[0.5], latents_mean=[0.0], latents_std=[1.0], scale_factor_spatial=2,
                                scale_factor_temporal=2), (2, 3, 5, 4, 4), "l1"),
    "wan-residual": (WAN, dict(base_dim=2, decoder_base_dim=2, dim_mult=[1, 1, 2, 2], z_dim=2, num_res_blocks=1, is_residual=True,
                               temperal_downsample=[False, False, True], in_channels=12, out_channels=12, patch_size=2,
                               latents_mean=[0.0, 0.5], latents_std=[1.0, 2.0], scale_factor_spatial=16,
                               scale_factor_temporal=2), (1, 3, 5, 16, 16), "l2"),
    "qwen": (QWEN, dict(base_dim=2, dim_mult=[1, 2], z_dim=2, num_res_blocks=2, temperal_downsample=[True],
                        latents_mean=[0.1, -0.2], latents_std=[1.5, 0.75]), (2, 3, 1, 4, 6), "l2"),
}
WEIGHT = 0.01  # of the divergence


def without_caches(attention):
    forward = attention.forward
    attention.forward = lambda self, x, *_, **__: forward(self, x)


without_caches(autoencoder_kl_wan.WanAttentionBlock)
without_caches(autoencoder_kl_qwenimage.QwenImageAttentionBlock)


def bf16(t):
    return t.to(torch.bfloat16).double()


def model(cls, keys):
    m = getattr(diffusers, cls)(**keys).double()
    with torch.no_grad():
        for name, p in m.named_parameters():
            if p.dim() == 1 or "gamma" in name:  # norms about 1, biases about 0
                about = 1.0 if "norm" in name and not name.endswith("bias") else 0.0
                p.copy_(bf16(torch.randn(p.shape) * (0.2 if "norm" in name else 0.6) + about))
            else:
                p.copy_(bf16(torch.randn(p.shape) * (p[0].numel() ** -0.5) * (1.6 if name.startswith("decoder.conv_out") else 1.0)))
    return m


def compute(m, pixels, latents, noise, kind):
    """What the test compares: tensors, gradients by name, and the parts of the loss."""
    with torch.no_grad():
        d, decoded = m.encode(pixels).latent_dist, m.decode(latents).sample
    data = dict(mean=d.mean, logvar=d.logvar, decoded=decoded)
    d = m.encode(pixels).latent_dist
    y = m.decode(d.mean + d.std * noise).sample
    rec = F.mse_loss(y, pixels) if kind == "l2" else F.l1_loss(y, pixels)
    kl = WEIGHT * 0.5 * torch.sum(d.mean**2 + d.var - 1 - d.logvar) / len(pixels)
    (rec + kl).backward()
    return data, {n: p.grad for n, p in sorted(m.named_parameters()) if p.grad is not None}, rec.item(), kl.item()


def off(a, b):
    """How far float32 is from float64: as a share of the bounds of the tests."""
    tensors = max((a[0][k] - b[0][k]).abs().max().item() / max(1, a[0][k].abs().max().item()) for k in a[0])
    every = max(g.abs().max().item() for g in a[1].values())
    grads = max((g - b[1][n]).abs().max().item() / (1e-4 * g.abs().max().item() + 1e-6 * every) for n, g in a[1].items())
    return max(tensors / 1e-5, grads)


def make(to, cls, keys, shape, kind, tries=1000):
    for seed in range(tries):
        torch.manual_seed(seed)
        m = model(cls, keys)
        pixels = bf16(torch.rand(shape) * 2 - 1)
        with torch.no_grad():
            z = m.encode(pixels).latent_dist.mean.shape
        noise, latents = bf16(torch.randn(z)), bf16(torch.randn(z))
        narrow = [t.float() for t in (pixels, latents, noise)]
        rough = compute(copy.deepcopy(m).float(), *narrow, kind)
        data, grads, rec, kl = exact = compute(m, pixels, latents, noise, kind)
        apart = off(exact, rough)
        outside = (data["decoded"].abs() >= 1).float().mean().item()
        # pixels that are clamped and those that are not, and numbers that another order of sums hardly changes
        if apart < 0.15 and (cls == KL or 0.005 < outside < 0.5):
            break
    else:
        return False
    data["largest"] = torch.stack([g.abs().max() for g in grads.values()])
    shares = [(g / max(g.abs().max().item(), 1e-300) * 32767).round().flatten() for g in grads.values()]
    data["gradients"] = torch.cat(shares).to(torch.int16)
    data = {k: v.float() if v.is_floating_point() else v for k, v in data.items()}
    data |= {k: v.bfloat16() for k, v in dict(pixels=pixels, latents=latents, noise=noise).items()}  # made in it
    to.mkdir(parents=True, exist_ok=True)
    m.to(torch.bfloat16).save_pretrained(to)
    save_file({k: v.contiguous() for k, v in data.items()}, to / "golden.safetensors")
    text = dict(kind=kind, weight=WEIGHT, reconstruction=rec, divergence=kl)
    (to / "golden.json").write_text(json.dumps(text) + "\n")
    print(to.name, seed, sum(p.numel() for p in m.parameters()), f"{outside:.2f} {apart:.3f}", text)
    return True


def random_kl(r):
    n, groups = r.randint(1, 4), r.choice([1, 2, 4])
    attention = [r.random() < 0.3 for _ in range(2 * n)]
    z, c = r.randint(1, 4), r.randint(1, 4)
    keys = dict(down_block_types=["AttnDownEncoderBlock2D" if a else "DownEncoderBlock2D" for a in attention[:n]],
                up_block_types=["AttnUpDecoderBlock2D" if a else "UpDecoderBlock2D" for a in attention[n:]],
                block_out_channels=[groups * r.randint(2, 3) for _ in range(n)], norm_num_groups=groups, latent_channels=z,
                layers_per_block=r.randint(1, 2), in_channels=c, out_channels=c, act_fn=r.choice(["silu", "swish", "mish", "gelu", "relu"]),
                use_quant_conv=r.random() < 0.5, use_post_quant_conv=r.random() < 0.5, mid_block_add_attention=r.random() < 0.5,
                scaling_factor=r.uniform(0.1, 2), sample_size=r.choice([8, [8, 4]]))
    keys |= r.choice([{}, dict(shift_factor=0.3), dict(latents_mean=[0.1] * z, latents_std=[0.5] * z)])
    side = 2 ** (n - 1)
    return KL, keys, (r.randint(1, 2), c, side * r.randint(1, 3), side * r.randint(1, 3))


def random_clip(r, cls):
    n = r.randint(1, 4)
    times = [r.random() < 0.5 for _ in range(n - 1)]
    while sum(times) > 2:
        times[times.index(True)] = False
    z = r.randint(1, 3)
    keys = dict(base_dim=r.choice([4, 6]), dim_mult=[r.randint(1, 2) for _ in range(n)], z_dim=z, num_res_blocks=r.randint(1, 2),
                temperal_downsample=times, latents_mean=[r.uniform(-1, 1) for _ in range(z)], latents_std=[r.uniform(0.5, 2)] * z)
    side, frames, patch, c = 2 ** (n - 1), 2 ** sum(times), 1, 3
    residual = cls == WAN and r.random() < 0.5
    if not residual:
        keys["attn_scales"] = [0.5**i for i in range(n) if r.random() < 0.3]
    if cls == WAN:
        patch = r.choice([1, 1, 2, 3])
        keys |= dict(is_residual=residual, decoder_base_dim=r.choice([None, 4, 6]), patch_size=r.choice([None, 1]) if patch == 1 else patch,
                     in_channels=c * patch**2, out_channels=c * patch**2, scale_factor_spatial=side * patch, scale_factor_temporal=frames)
    else:
        c = keys["input_channels"] = r.randint(1, 4)
    side *= patch
    return cls, keys, (r.randint(1, 2), c, r.choice([1, 5, 9]), side * r.randint(1, 2), side * r.randint(1, 2))


def fuzz(folder, count):
    """Random settings that diffusers builds."""
    for i in range(count):
        r = random.Random(i)
        cls, keys, shape = random_kl(r) if i % 3 == 0 else random_clip(r, [None, WAN, QWEN][i % 3])
        try:
            getattr(diffusers, cls)(**keys)
        except (ValueError, AssertionError) as e:  # shortcuts that do not divide
            print(i, cls, "is not built:", e)
            continue
        if not make(pathlib.Path(folder) / f"{i}-{cls}", cls, keys, shape, r.choice(["l1", "l2"]), 20):
            print(i, cls, "has no well-conditioned weights")


def check(folder, case):
    cls = getattr(diffusers, CASES[case][0])
    m, info = cls.from_pretrained(folder, output_loading_info=True)
    data = {k: v.float() for k, v in load_file(OUT / case / "golden.safetensors").items()}
    with torch.no_grad():
        d, y = m.encode(data["pixels"]).latent_dist, m.decode(data["latents"]).sample
    off = max((a - b).abs().max().item() for a, b in ((d.mean, data["mean"]), (d.logvar, data["logvar"]), (y, data["decoded"])))
    print(json.dumps(dict(missing=sorted(info["missing_keys"]), unexpected=sorted(info["unexpected_keys"]), off=off)))


torch.set_num_threads(1)
if sys.argv[1:2] == ["check"]:
    check(sys.argv[2], sys.argv[3])
elif sys.argv[1:2] == ["fuzz"]:
    fuzz(sys.argv[2], int(sys.argv[3]))
else:
    for name in sys.argv[1:] or CASES:
        if not make(OUT / name, *CASES[name]):
            raise SystemExit(f"{name}: no seed will do")
