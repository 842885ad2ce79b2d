"""Golden data of stages/checkpoint/gguf: what llama.cpp's Python package says of blocks, names and files.

Writes to stages/checkpoint/gguf/testdata:
  blocks.json   per type: random blocks and the float32 numbers that they are (gguf.quants.dequantize), rows and
                the blocks that they become (gguf.quants.quantize)
  kquants.json  rows of 512 numbers, and per type of 256 the blocks that llama.cpp's reference makes of them
                (quantize_row_*_K_ref; with the argument that follows, ggml's source directory, and gcc)
  names.json    per architecture: names of Hugging Face's tensors and of llama.cpp's (gguf.get_tensor_name_map)
  small.gguf    a file of gguf.GGUFWriter with metadata of every kind, and tensors of three types

Run from the repository's root with gguf and numpy installed.
"""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

OUT = pathlib.Path("stages/checkpoint/gguf/testdata")


def blocks():
    rng = np.random.default_rng(1)
    out = {"decode": {}, "encode": {}}
    for t in [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K]:
        elements, size = gguf.GGML_QUANT_SIZES[t]
        raw = rng.integers(0, 256, (3, size if elements > 1 else 64), dtype=np.uint8)
        halves = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
                  T.Q6_K: [208]}.get(t, [])
        for at in halves:  # scales are finite
            raw[:, at:at + 2] = (rng.standard_normal(3) * 0.01).astype(np.float16).view(np.uint8).reshape(3, 2)
        if elements == 1:
            with np.errstate(all="ignore"):
                values = rng.standard_normal((3, 32)).astype(np.float32)
            raw = quants.quantize(values, t).view(np.uint8).reshape(3, 64)
        y = quants.dequantize(raw, t).astype(np.float32)
        out["decode"][t.name] = {"raw": raw.tobytes().hex(), "values": y.tobytes().hex()}
    x = rng.standard_normal((4, 64)).astype(np.float32)
    x[1] *= 1e-3
    x[2, :32] = 0
    x[3, 5] = -40
    out["rows"] = x.tobytes().hex()
    for t in [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1]:
        out["encode"][t.name] = quants.quantize(x, t).tobytes().hex()
    (OUT / "blocks.json").write_text(json.dumps(out, indent=1) + "\n")


def kquants(ggml):
    """Rows are normal, of outliers, of one sign, small, of few values, and zero in parts."""
    with tempfile.TemporaryDirectory() as d:
        (pathlib.Path(d) / "none.c").write_text("float ggml_table_f32_f16[1<<16];")
        subprocess.check_call(["gcc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-w", f"-I{ggml}/include", f"-I{ggml}/src",
                               f"{ggml}/src/ggml-quants.c", f"{d}/none.c", "-lm", "-o", f"{d}/k.so"])
        lib = ctypes.CDLL(f"{d}/k.so", mode=os.RTLD_LAZY)
        rng = np.random.default_rng(7)
        x = rng.standard_normal((8, 512)).astype(np.float32) * 0.05
        x[1, ::37] *= 20
        x[2] = np.abs(x[2])
        x[3] *= 1e-4
        x[4] = np.round(x[4] * 40) / 64
        x[5, 32:64] = 0
        x[6] = rng.standard_t(3, 512)
        x[7] = -np.abs(x[7]) - 0.1
        out = {"rows": x.tobytes().hex()}
        for t in [T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K]:
            _, size = gguf.GGML_QUANT_SIZES[t]
            raw = np.zeros(x.size // 256 * size, dtype=np.uint8)
            f = lib[f"quantize_row_{t.name.lower().replace('_k', '_K')}_ref"]
            f(x.ctypes.data_as(ctypes.c_void_p), raw.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(x.size))
            out[t.name] = raw.tobytes().hex()
        (OUT / "kquants.json").write_text(json.dumps(out, indent=1) + "\n")


def names():
    layer = ["input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.bias", "self_attn.v_proj.weight",
             "self_attn.o_proj.weight", "post_attention_layernorm.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
             "mlp.down_proj.weight"]
    norms = ["pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"]
    qk = ["self_attn.q_norm.weight", "self_attn.k_norm.weight"]
    out = {}
    for arch, more in {"llama": [], "qwen2": [], "qwen3": qk, "gemma2": norms, "gemma3": norms + qk}.items():
        kind = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch]
        table = gguf.get_tensor_name_map(kind, 3)
        out[arch] = {}
        for name in ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"] + ["model.layers.2." + n for n in layer + more]:
            their = table.get_name(name, try_suffixes=(".weight", ".bias"))
            if more and arch.startswith("gemma") and name.endswith("post_attention_layernorm.weight"):
                their = "blk.2.post_attention_norm.weight"  # as convert_hf_to_gguf.py names it by hand
            out[arch][name] = their
    # experts are joined before they are named (LlamaModel and Qwen2MoeModel of convert_hf_to_gguf.py)
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 3)
    at = "model.layers.2.block_sparse_moe."
    out["mixtral"] = {f"{at}experts.1.{w}.weight": table.get_name(f"layers.2.feed_forward.experts.{w}.weight", try_suffixes=(".weight",)) for w in ("w1", "w2", "w3")}
    out["mixtral"][f"{at}gate.weight"] = table.get_name(f"{at}gate.weight", try_suffixes=(".weight",))
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3MOE, 3)
    at = "model.layers.2.mlp."
    out["qwen3_moe"] = {f"{at}experts.1.{w}.weight": table.get_name(f"{at}experts.{w}.weight", try_suffixes=(".weight",)) for w in ("gate_proj", "up_proj", "down_proj")}
    out["qwen3_moe"][f"{at}gate.weight"] = table.get_name(f"{at}gate.weight", try_suffixes=(".weight",))
    for name in ["model.embed_tokens.weight"] + ["model.layers.2." + n for n in layer[:6] + qk]:
        out["qwen3_moe"][name] = table.get_name(name, try_suffixes=(".weight", ".bias"))
    (OUT / "names.json").write_text(json.dumps(out, indent=1) + "\n")


def small():
    w = gguf.GGUFWriter(OUT / "small.gguf", "llama")
    w.add_uint8("a.u8", 200)
    w.add_int8("a.i8", -100)
    w.add_uint16("a.u16", 60000)
    w.add_int16("a.i16", -30000)
    w.add_uint32("a.u32", 4000000000)
    w.add_int32("a.i32", -2000000000)
    w.add_uint64("a.u64", 1 << 40)
    w.add_int64("a.i64", -(1 << 40))
    w.add_float32("a.f32", 0.5)
    w.add_float64("a.f64", 0.1)
    w.add_bool("a.bool", True)
    w.add_string("a.text", "é ✓")
    w.add_array("a.texts", ["x", "", "yz"])
    w.add_array("a.numbers", [1, -2, 3])
    w.add_array("a.reals", [0.5, -1.5])
    rng = np.random.default_rng(2)
    w.add_tensor("plain", np.arange(12, dtype=np.float32).reshape(3, 4))
    w.add_tensor("half", np.arange(8, dtype=np.float16).reshape(2, 4))
    x = rng.standard_normal((2, 64)).astype(np.float32)
    w.add_tensor("blocks", quants.quantize(x, T.Q8_0), raw_dtype=T.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


OUT.mkdir(parents=True, exist_ok=True)
blocks()
names()
small()
if len(sys.argv) > 1:
    kquants(sys.argv[1])
