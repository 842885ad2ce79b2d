"""Types of matrices in llama.cpp's mixtures, for stages/checkpoint/gguf/testdata/mixtures.json.

    python bench/golden/gguf_mixtures.py FOLDER MODEL.gguf… > stages/checkpoint/gguf/testdata/mixtures.json

FOLDER holds libllama's shared objects, as the npm package @node-llama-cpp/linux-x64 brings them; the models are float32 files.
With --ours LFACTOR each mixture is written by lfactor from the folder beside MODEL.gguf too, and tensors whose bytes differ are told.
"""

import argparse
import collections
import ctypes
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

import gguf

FILES = {"q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17}
LETTERS = {"F32": ".", "F16": "h", "Q3_K": "3", "Q4_K": "4", "Q5_K": "5", "Q6_K": "6", "Q8_0": "8", "Q4_0": "D", "Q5_0": "E", "Q5_1": "F"}


class Params(ctypes.Structure):
    """llama_model_quantize_params: nthread and ftype come first; the rest stays as the library fills it."""

    _fields_ = [("nthread", ctypes.c_int32), ("ftype", ctypes.c_int32), ("rest", ctypes.c_uint8 * 512)]


def library(folder):
    for name in ("libggml-base", "libggml-cpu-haswell", "libggml", "libllama"):
        found = sorted(glob.glob(os.path.join(folder, name + "*.so*")), key=len)
        if name == "libggml":
            found = [f for f in found if "-cpu" not in f and "-base" not in f]
        lib = ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL)
    lib.llama_model_quantize_default_params.restype = Params
    lib.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Params)]
    lib.llama_model_quantize.restype = ctypes.c_uint32
    lib.llama_backend_init()
    return lib


def types(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def number(reader, key):
    field = reader.get_field(reader.get_field("general.architecture").contents() + "." + key)
    return int(field.contents()) if field else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("models", nargs="+")
    p.add_argument("--ours", help="lfactor's binary")
    args = p.parse_args()
    lib, out = library(args.folder), []
    for model in args.models:
        r = gguf.GGUFReader(model)
        case = {"layers": number(r, "block_count"), "heads": number(r, "attention.head_count"), "kv_heads": number(r, "attention.head_count_kv"),
                "experts": number(r, "expert_count"), "tied": all(t.name != "output.weight" for t in r.tensors),
                "shapes": {re.sub(r"^blk\.\d+", "blk.*", t.name): [int(n) for n in t.shape[::-1][-2:]] for t in r.tensors if len(t.shape) > 1}, "types": {}}
        for name, ftype in FILES.items():
            with tempfile.TemporaryDirectory() as d:
                theirs, ours = os.path.join(d, "theirs.gguf"), os.path.join(d, "ours.gguf")
                params = lib.llama_model_quantize_default_params()
                params.ftype = ftype
                if code := lib.llama_model_quantize(model.encode(), theirs.encode(), ctypes.byref(params)):
                    sys.exit(f"{model} as {name}: {code}")
                got = types(theirs)
                runs = collections.defaultdict(str)  # a letter a layer
                for t in sorted(got.values(), key=lambda t: [int(n) if n.isdigit() else n for n in t.name.split(".")]):
                    runs[re.sub(r"^blk\.\d+", "blk.*", t.name)] += LETTERS[t.tensor_type.name]
                case["types"][name] = {t: runs[t] for t in case["shapes"]}
                if args.ours:
                    subprocess.run([args.ours, "ckpt", "convert", model.removesuffix(".gguf"), ours, "--dtype", name], check=True, capture_output=True)
                    own, count = types(ours), collections.Counter()
                    for t, theirs_one in got.items():
                        if own[t].tensor_type != theirs_one.tensor_type:
                            print(model, name, t, "is", own[t].tensor_type.name, "want", theirs_one.tensor_type.name, file=sys.stderr)
                        count["tensors"] += 1
                        count["equal bytes"] += hashlib.sha256(own[t].data).digest() == hashlib.sha256(theirs_one.data).digest()
                    print(model, name, dict(count), file=sys.stderr)
        out.append(case)
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
