"""Golden data of formats of few bits: kernels/ref/testdata/precision.json, with PyTorch's casts to float8 of chosen numbers, and matrices in blocks as
torchao's to_mx and to_nvfp4 make them and by TransformerEngine's rule of scales. Run from the repository's root, with torch and torchao: python bench/golden/precision.py
"""

import json
import pathlib

import numpy as np
import torch
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale


def bits(t):
    return t.float().contiguous().numpy().view(np.uint32).flatten().tolist()


def main():
    g = torch.Generator().manual_seed(11)
    x = torch.cat([torch.randn(150, generator=g), torch.randn(80, generator=g) * 2.0 ** torch.randint(-18, 16, (80,), generator=g),
                   torch.tensor([0.0, -0.0, 448.0, 464.0, 465.0, 1e30, -1e30, 57344.0, 61440.0, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-16, 2.0**-17,
                                 1.5 * 2.0**-17, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, 17.0, 19.0, 2.0**-6, 2.0**-6 * (1 - 2.0**-5)])])
    x = torch.cat([x, -x])
    out = {"x": bits(x)}
    for name, kind, most in (("e4m3", torch.float8_e4m3fn, 448.0), ("e5m2", torch.float8_e5m2, 57344.0)):
        out[name] = bits(x.clamp(-most, most).to(kind))
    m = torch.randn(4, 96, generator=g) * 2.0 ** torch.randint(-6, 6, (4, 1), generator=g)
    m[1, :32] = 0
    m[2, 40] = 900
    out["matrix"] = bits(m)
    for name, kind in (("mxfp8", torch.float8_e4m3fn), ("mxfp4", torch.float4_e2m1fn_x2)):
        out[name] = bits(MXTensor.to_mx(m, kind, block_size=32, scaling_mode=ScaleCalculationMode.FLOOR).dequantize(torch.float32))
    for name, power in (("block", False), ("block_pow2", True)):
        blocks = m.reshape(4, 3, 32)
        most = blocks.abs().amax(-1, keepdim=True)
        f = torch.where(most == 0, torch.ones_like(most), 448.0 / most)
        if power:
            f = (f.view(torch.int32) & 0x7F800000).view(torch.float32)
        out[name] = bits(((blocks * f).to(torch.float8_e4m3fn).float() * (1 / f)).reshape(4, 96))
    scale = per_tensor_amax_to_scale(m.abs().amax())
    out["nvfp4"] = bits(NVFP4Tensor.to_nvfp4(m, per_tensor_scale=scale).dequantize(torch.float32))
    f = 448.0 / m.abs().amax()
    out["tensor"] = out["tensor_e4m3"] = bits((m * f).to(torch.float8_e4m3fn).float() * (1 / f))
    h = torch.ones(1, 1)
    for _ in range(4):
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    signs = torch.tensor([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1.0])  # TransformerEngine, get_wgrad_sign_vector
    runs = torch.randint(-8, 8, (16, 3), generator=g).float()
    out["runs"], out["turned"] = bits(runs), bits((signs[:, None] * h / 4).T @ runs)
    path = pathlib.Path("kernels/ref/testdata/precision.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out) + "\n")


main()
