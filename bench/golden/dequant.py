"""Writes stages/checkpoint/quant/testdata/quantized.safetensors: matrices as DeepSeek V3 keeps them (FP8 E4M3 with a float32 scale for each block of
128x128, the last blocks short) and as compressed-tensors packs them (four-bit integers in groups of 32 columns), with what PyTorch and
compressed-tensors make of them under names that begin with want; and mxfp4.safetensors: experts in four-bit numbers as gpt-oss keeps them, with
what transformers makes of them.

Run from the repository's root: python bench/golden/dequant.py
"""

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


def main():
    gen, out = torch.Generator().manual_seed(1), {}
    for name, (n, k) in dict(long=(200, 300), short=(64, 130), whole=(128, 256)).items():
        w = (torch.randn(n, k, generator=gen) * 50).to(torch.float8_e4m3fn)
        s = torch.rand(-(-n // 128), -(-k // 128), generator=gen) * 0.01
        out[f"{name}.weight"], out[f"{name}.weight_scale_inv"] = w, s
        spread = s.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n, :k]
        out[f"want.{name}.weight"] = w.float() * spread
    for name, (n, k, dtype) in dict(packed=(24, 96, torch.bfloat16), wide=(5, 256, torch.float32)).items():
        q = torch.randint(-8, 8, (n, k), generator=gen, dtype=torch.int8)
        s = (torch.rand(n, k // 32, generator=gen) * 0.1).to(dtype)
        words = pack_to_int32(q, 4)
        assert torch.equal(unpack_from_int32(words, 4, torch.Size((n, k))), q)
        out[f"{name}.weight_packed"], out[f"{name}.weight_scale"] = words.contiguous(), s
        out[f"{name}.weight_shape"] = torch.tensor([n, k])
        out[f"want.{name}.weight"] = q.float() * s.float().repeat_interleave(32, 1)
    out["norm.weight"] = torch.randn(7, generator=gen)
    save_file(out, "stages/checkpoint/quant/testdata/quantized.safetensors")
    out = {"norm.weight": torch.randn(7, generator=gen)}
    for name, (e, n, b) in dict(gate_up_proj=(3, 10, 2), down_proj=(2, 7, 3)).items():
        blocks = torch.randint(0, 256, (e, n, b, 16), generator=gen, dtype=torch.uint8)
        scales = torch.randint(100, 140, (e, n, b), generator=gen, dtype=torch.uint8)
        out[f"{name}_blocks"], out[f"{name}_scales"] = blocks, scales
        out[f"want.{name}"] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
    save_file(out, "stages/checkpoint/quant/testdata/mxfp4.safetensors")


if __name__ == "__main__":
    main()
