"""Writes stages/checkpoint/quant/testdata/published.safetensors: matrices in the forms of FP8 that transformers reads (scales of five types, blocks of
several sizes, of whole matrices, of all experts, pairs of four-bit numbers) and in compressed-tensors' MX forms, with what those libraries make of
them under names that begin with want, and scales of activations beside.

Run from the repository's root: python bench/golden/published_fp8.py     (transformers, compressed-tensors)
"""

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

gen, out = torch.Generator().manual_seed(3), {}
reader = Fp8Dequantize(None)


def scales(shape, kind):
    if kind in ("e8m0", "u8"):
        e = torch.randint(110, 134, shape, generator=gen, dtype=torch.uint8)
        return e if kind == "u8" else e.view(torch.float8_e8m0fnu)
    return (torch.rand(shape, generator=gen) * 0.01 + 1e-4).to(kind)


def fp8(name, shape, scale, dtype=torch.float8_e4m3fn, block=None):
    w = (torch.randn(shape, generator=gen) * 50).to(dtype)
    out[name], out[name + "_scale_inv"] = w, scale
    if block is None:
        out["want." + name] = reader._dequantize_one(w, scale, torch.float32).contiguous()
        return
    s = torch.exp2(scale.float() - 127) if scale.dtype == torch.uint8 else scale.float()
    s = s.repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)
    out["want." + name] = w.float() * s[..., : shape[-2], : shape[-1]]


KINDS = dict(f32=torch.float32, bf16=torch.bfloat16, f16=torch.float16, e8m0="e8m0", u8="u8")
for short, kind in KINDS.items():
    fp8(f"{short}.blocks.weight", (64, 32), scales((2, 2), kind))  # 32×16, as the configuration says
    fp8(f"{short}.short.weight", (40, 18), scales((2, 2), kind), block=(32, 16))
    fp8(f"{short}.experts.up_proj", (2, 64, 32), scales((2, 2, 2), kind))
    fp8(f"{short}.whole.weight", (8, 12), scales((1, 1), kind))
for short, shape in dict(none=(), one=(1,)).items():
    fp8(f"{short}.weight", (8, 12), scales(shape, torch.bfloat16))
fp8("rows.weight", (8, 12), scales((8, 1), torch.float32))
fp8("groups.weight", (8, 64), scales((8, 4), torch.bfloat16))
fp8("big.weight", (130, 129), scales((2, 2), torch.bfloat16), block=(128, 128))
fp8("wide.weight", (64, 48), scales((2, 3), torch.float32), dtype=torch.float8_e5m2)
fp8("experts.down_proj", (3, 8, 12), scales((3, 1, 1), torch.float32))
for name, shape in {"four.weight": (8, 32), "experts4.up_proj": (2, 8, 32)}.items():  # two numbers in a byte
    w = torch.randint(-128, 128, shape, generator=gen, dtype=torch.int8)
    s = scales((*shape[:-1], shape[-1] * 2 // 32), "e8m0")
    out[name], out[name + "_scale_inv"] = w, s
    out["want." + name] = reader._dequantize_one(w, s, torch.float32).contiguous()
out["f32.blocks.activation_scale"] = torch.ones(())
out["experts.down_proj_activation_scale"] = torch.ones(3)
for name, bits, compressor in (("mxfp4", 4, MXFP4PackedCompressor), ("mxfp8", 8, MXFP8QuantizationCompressor)):
    args = QuantizationArgs(num_bits=bits, type="float", strategy="group", group_size=32, symmetric=True, scale_dtype=torch.uint8, zp_dtype=torch.uint8)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    w = torch.randn(6, 64, generator=gen)
    s = 2.0 ** torch.randint(-6, 2, (6, 2), generator=gen).float()
    packed = compressor.compress({"weight": w, "weight_scale": s}, scheme)
    for key, value in packed.items():
        out[f"{name}.{key}"] = value.detach().clone()
    out[f"want.{name}.weight"] = compressor.decompress(packed, scheme)["weight"].float().contiguous()
save_file(out, "stages/checkpoint/quant/testdata/published.safetensors")
print(sum(k.startswith("want.") for k in out))
