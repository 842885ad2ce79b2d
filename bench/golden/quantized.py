"""Writes stages/checkpoint/quant/testdata/packed_<way>.safetensors: matrices as GPTQ, AWQ, bitsandbytes and compressed-tensors keep them, with what
those libraries make of them again under names that begin with want.

bitsandbytes and compressed-tensors make and read their own. GPTQ's and AWQ's layouts are written by the formulas of AutoGPTQ's QuantLinear.pack
(version 1 of the format stores zeros less 1, as GPTQModel's convert_gptq_v1_to_v2_format undoes) and of AutoAWQ's WQLinear_GEMM.from_linear, and
read by those of their dequantizations, in float16 as there: neither package can be installed without a GPU.

Run from the repository's root: python bench/golden/quantized.py
"""

import bitsandbytes.functional as F
import torch
from compressed_tensors.compressors.naive_quantized import NaiveQuantizationCompressor
from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import save_file

GEN = torch.Generator().manual_seed(36)
DIR = "stages/checkpoint/quant/testdata"


def ints(most, *shape):
    return torch.randint(0, most + 1, shape, generator=GEN, dtype=torch.int64)


def stream(codes, bits, axis):
    """Codes as one stream of bits along an axis, from the low bits of each word on."""
    codes = codes.movedim(axis, 0)
    words = torch.zeros(codes.shape[0] * bits // 32, *codes.shape[1:], dtype=torch.int64)
    for i in range(codes.shape[0]):
        at, off = divmod(i * bits, 32)
        words[at] |= (codes[i] << off) & 0xFFFFFFFF
        if off + bits > 32:
            words[at + 1] |= codes[i] >> (32 - off)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return words.movedim(0, axis).contiguous()


def gptq(name, n, k, bits, group, act_order, form, out):
    groups, top = k // group, 2**bits - 1
    q, z = ints(top, k, n), ints(top, groups, n)
    scales = (torch.rand(groups, n, generator=GEN) * 0.02).half()
    g = torch.arange(k) // group
    if act_order:
        g = g[torch.randperm(k, generator=GEN)]
    out[f"{name}.qweight"], out[f"{name}.scales"], out[f"{name}.g_idx"] = stream(q, bits, 0), scales, g.int()
    out[f"{name}.qzeros"] = stream((z - 1) & top if form == 1 else z, bits, 1)
    out[f"want.{name}.weight"] = (scales[g] * (q - z[g]).to(torch.int16)).t().contiguous()


def awq(name, n, k, group, out):
    q, z = ints(15, k, n), ints(15, k // group, n)
    scales = (torch.rand(k // group, n, generator=GEN) * 0.02).half()
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(v):
        v = v.reshape(v.shape[0], -1, 8)[:, :, order].reshape(v.shape)
        return stream(v, 4, 1)

    out[f"{name}.qweight"], out[f"{name}.qzeros"], out[f"{name}.scales"] = pack(q), pack(z), scales
    of = torch.arange(k) // group
    out[f"want.{name}.weight"] = ((q - z[of]).to(torch.int8) * scales[of]).t().contiguous()


def bnb(name, n, k, kind, nested, block, out):
    w = torch.randn(n, k, generator=GEN) * 0.05
    codes, state = F.quantize_4bit(w, blocksize=block, compress_statistics=nested, quant_type=kind)
    out[f"{name}.weight"] = codes
    for key, value in state.as_dict(packed=True).items():
        out[f"{name}.weight.{key}"] = value
    out[f"want.{name}.weight"] = F.dequantize_4bit(codes, state).contiguous()


def compressed(name, n, k, args, compressor, out, zeros=False):
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**args))
    w = torch.randn(n, k, generator=GEN) * 0.05
    state = {"weight": w}
    top = {4: 7, 8: 127}[args["num_bits"]]
    if args["strategy"] == "group" or args["strategy"] == "tensor_group":
        grouped = w.abs().reshape(n, -1, args["group_size"]).amax(-1)
    elif args["strategy"] == "channel":
        grouped = w.abs().amax(1, keepdim=True)
    elif args["strategy"] == "block":
        grouped = torch.stack([torch.stack([c.abs().max() for c in r.split(128, 1)]) for r in w.split(128, 0)])
    else:
        grouped = w.abs().max().reshape(1)
    if args["type"] == "int":
        state["weight_scale"] = grouped / top
        if zeros:
            state["weight_zero_point"] = ints(6, *grouped.shape).to(torch.int8) - 3
    elif args["num_bits"] == 8:
        state["weight_scale"] = grouped / 448
    else:
        state["weight_global_scale"] = (448 * 6 / w.abs().max()).reshape(1)
        state["weight_scale"] = (grouped / 6 * state["weight_global_scale"]).to(torch.float8_e4m3fn).float()
    packed = compressor.compress(state, scheme)
    for key, value in packed.items():
        out[f"{name}.{key}"] = value.contiguous()
    if args["strategy"] == "tensor_group":  # its decompressor goes by way of bfloat16; this is the same function in float32
        codes = unpack_fp4_from_uint8(packed["weight_packed"], n, k, torch.float32)
        want = dequantize(codes, packed["weight_scale"].float(), args=scheme.weights, global_scale=packed["weight_global_scale"], dtype=torch.float32)
    else:
        want = compressor.decompress(dict(packed), scheme)["weight"].float()
    out[f"want.{name}.weight"] = want.contiguous()


def main():
    for form in (1, 2):
        out = {}
        for bits, (n, k, group) in {2: (32, 64, 32), 3: (32, 96, 32), 4: (40, 64, 16), 8: (8, 32, 8)}.items():
            gptq(f"b{bits}", n, k, bits, group, False, form, out)
        gptq("order", 16, 64, 4, 16, True, form, out)
        gptq("whole", 16, 64, 4, 64, False, form, out)
        save_file(out, f"{DIR}/packed_gptq{form}.safetensors")
    out = {}
    awq("a", 24, 64, 16, out)
    awq("b", 8, 32, 32, out)
    save_file(out, f"{DIR}/packed_awq.safetensors")
    out = {}
    bnb("nf4", 12, 128, "nf4", False, 64, out)
    bnb("nested", 40, 576, "nf4", True, 64, out)
    bnb("fp4", 6, 64, "fp4", True, 64, out)
    bnb("odd", 5, 40, "nf4", False, 64, out)
    w = torch.randn(12, 40, generator=GEN)
    q, scb, _ = F.int8_vectorwise_quant(w.half())
    out["int8.weight"], out["int8.SCB"], out["int8.weight_format"] = q, scb.float(), torch.tensor(0, dtype=torch.uint8)
    out["want.int8.weight"] = F.int8_vectorwise_dequant(q, scb.float())
    save_file(out, f"{DIR}/packed_bitsandbytes.safetensors")
    out = {}
    group = dict(num_bits=4, type="int", strategy="group", group_size=16, symmetric=True)
    compressed("int4", 12, 48, group, PackedQuantizationCompressor, out)
    compressed("zeros", 12, 48, dict(group, symmetric=False), PackedQuantizationCompressor, out, zeros=True)
    compressed("int8", 6, 40, dict(group, num_bits=8, group_size=8), PackedQuantizationCompressor, out)
    compressed("rows", 6, 20, dict(num_bits=8, type="int", strategy="channel", symmetric=True), NaiveQuantizationCompressor, out)
    compressed("rowzeros", 6, 20, dict(num_bits=8, type="int", strategy="channel", symmetric=False), NaiveQuantizationCompressor, out, zeros=True)
    compressed("fp8", 6, 20, dict(num_bits=8, type="float", strategy="channel", symmetric=True), NaiveQuantizationCompressor, out)
    compressed("fp8all", 6, 20, dict(num_bits=8, type="float", strategy="tensor", symmetric=True), NaiveQuantizationCompressor, out)
    compressed("nvfp4", 6, 64, dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True), NVFP4PackedCompressor, out)
    save_file(out, f"{DIR}/packed_compressed.safetensors")
    for key, value in sorted(out.items()):
        print(key, value.dtype, list(value.shape))


if __name__ == "__main__":
    main()
