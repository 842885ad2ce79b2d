"""Writes stages/checkpoint/quant/testdata/layouts.safetensors: matrices packed as NVIDIA's Model Optimizer and FBGEMM publish them, with the numbers that
they stand for under names that begin with want. Packed as modelopt/torch/export/quant_utils.py says (0.33: E2M1 in pairs, the first in the low half, a
scale in E4M3 for 16 columns, a float32 for all) and transformers' integrations/fbgemm_fp8.py (a float32 for each row).

Run from the repository's root: python bench/golden/layouts.py
"""

import torch
from safetensors.torch import save_file

gen, out = torch.Generator().manual_seed(7), {}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def fp8(name, scale):
    w = (torch.randn(8, 48, generator=gen) * 50).to(torch.float8_e4m3fn)
    out[f"{name}.weight"], out[f"{name}.weight_scale"] = w, scale
    out[f"want.{name}.weight"] = w.float() * scale


def nvfp4(name):
    codes = torch.randint(0, 16, (6, 64), generator=gen, dtype=torch.uint8)
    scale = (torch.rand(6, 4, generator=gen) * 100 + 1).to(torch.float8_e4m3fn)
    second = torch.tensor(0.00123)
    out[f"{name}.weight"] = codes[:, ::2] | codes[:, 1::2] << 4
    out[f"{name}.weight_scale"], out[f"{name}.weight_scale_2"] = scale, second
    out[f"{name}.input_scale"] = torch.tensor(0.5)
    out[f"want.{name}.weight"] = E2M1[codes.long()] * (scale.float() * second).repeat_interleave(16, 1)


fp8("modelopt8", torch.tensor(0.0123))
fp8("fbgemm", torch.rand(8, 1, generator=gen) * 0.01 + 1e-4)
nvfp4("modelopt4")
save_file(out, "stages/checkpoint/quant/testdata/layouts.safetensors")
