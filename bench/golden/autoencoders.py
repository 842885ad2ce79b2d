"""Golden data of training autoencoders: stages/family/autoencoders/testdata/<case>/ with config.json and weights as diffusers writes
them, golden.json (loss, 20 steps of AdamW) and golden.safetensors (two pictures, the noise of their latents, what comes back, the gradient of
every parameter). The loss is the mean squared error of pixels and 0.01 of the divergence of latents, summed over a picture, mean over pictures.

Run from the repository's root: python bench/golden/autoencoders.py [case ...], with torch and diffusers 0.42.1.
"""

import json
import pathlib
import shutil
import sys
import zlib

import diffusers
import torch
from safetensors.torch import save_file

ROOT = pathlib.Path("stages/family/autoencoders/testdata")
KL = 0.01
torch.use_deterministic_algorithms(True)
CASES = {
    "kl": ("AutoencoderKL", dict(block_out_channels=[8, 16], down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=3, norm_num_groups=4, layers_per_block=1)),
    "wan": ("AutoencoderKLWan", dict(base_dim=4, z_dim=4, dim_mult=[1, 2, 2], num_res_blocks=1, temperal_downsample=[False, True], scale_factor_temporal=2, scale_factor_spatial=4, latents_mean=[0.0] * 4, latents_std=[1.0] * 4)),
    "qwen-image": ("AutoencoderKLQwenImage", dict(base_dim=4, z_dim=4, dim_mult=[1, 2, 2], num_res_blocks=1, temperal_downsample=[False, True], latents_mean=[0.0] * 4, latents_std=[1.0] * 4)),
}


def case(name):
    kind, config = CASES[name]
    g = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    m = getattr(diffusers, kind)(**config)
    for p in m.parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.15 if p.ndim > 1 else 0.1) + (1.0 if p.ndim == 1 and float(p.data.mean()) > 0.5 else 0.0)
    m.train()
    out = ROOT / name
    shutil.rmtree(out, ignore_errors=True)
    m.save_pretrained(out)
    video = kind != "AutoencoderKL"
    shape = (3, 5 if video else 1, 8, 12)
    tensors = {f"x0.{i}": torch.rand(shape, generator=g) * 2 - 1 for i in range(2)}
    x = torch.stack([tensors["x0.0"], tensors["x0.1"]])
    x = x if video else x[:, :, 0]
    z = m.encode(x).latent_dist.mean
    eps = torch.randn(z.shape, generator=g)
    for i in range(2):
        tensors[f"eps.{i}"] = eps[i].clone()

    def loss(keep=False):
        d = m.encode(x).latent_dist
        y = m.decode(d.mean + d.std * eps).sample
        if keep:
            for i in range(2):
                tensors[f"pred.{i}"] = y[i].detach().reshape(shape).clone()
        kl = 0.5 * (d.mean**2 + d.var - 1 - d.logvar).flatten(1).sum(1).mean()
        return ((y - x) ** 2).mean() + KL * kl

    first = loss(True)
    first.backward()
    grads = {"grad." + n: p.grad for n, p in m.named_parameters() if p.grad is not None}
    dead = [n for n, p in m.named_parameters() if p.grad is None]
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, out / "golden.safetensors")
    meta = [dict(shape=list(shape), sigma=0.0, tokens=shape[1] * shape[2] * shape[3]) for _ in range(2)]
    (out / "golden.json").write_text(json.dumps(dict(samples=meta, kl=KL, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters())), indent=1) + "\n")
    print(name, first.item(), losses[-1], sum(p.numel() for p in m.parameters()), len(dead))


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        case(name)
