"""Golden data of stages/checkpoint: what the Python libraries write, and what they read of it.

Writes to stages/checkpoint/testdata:
  types.safetensors   one tensor of every type torch has (safetensors)
  types.json          per tensor: dtype, shape, the bytes, and the bytes of some slices (torch)
  sharded/            four tensors in two shards with an index (huggingface_hub)
  adapter/            a LoRA adapter of a two-layer network (peft)

Run from the repository's root with torch, safetensors, huggingface_hub and peft installed. The same
versions give the same bytes.
"""

import json
import pathlib
import shutil

import torch
from huggingface_hub import save_torch_state_dict
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

OUT = pathlib.Path("stages/checkpoint/testdata")

TYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2, "F8_E4M3": torch.float8_e4m3fn,
    "I16": torch.int16, "U16": torch.uint16, "F16": torch.float16, "BF16": torch.bfloat16,
    "I32": torch.int32, "U32": torch.uint32, "F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U64": torch.uint64,
    "C64": torch.complex64,
}


def raw(t):
    return t.contiguous().flatten().view(torch.uint8).numpy().tobytes().hex() if t.numel() else ""


def types():
    gen = torch.Generator().manual_seed(1)
    tensors, expect = {}, {}
    for name, dtype in TYPES.items():
        t = (torch.randn(3, 4, 5, generator=gen) * 10).abs().to(dtype)
        tensors[f"all.{name.lower()}"] = t
        expect[f"all.{name.lower()}"] = {
            "dtype": name, "shape": list(t.shape), "bytes": raw(t),
            "slices": [
                {"ranges": [[1, 3], [0, 4], [0, 5]], "bytes": raw(t[1:3])},
                {"ranges": [[0, 3], [2, 3], [0, 5]], "bytes": raw(t[:, 2:3])},
                {"ranges": [[0, 3], [1, 4], [1, 3]], "bytes": raw(t[:, 1:4, 1:3])},
                {"ranges": [[2, 2], [0, 4], [0, 5]], "bytes": ""},
            ],
        }
    for name, t in {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 7), "odd \"name\" <é>": torch.arange(3)}.items():
        tensors[name] = t
        dtype = "I64" if t.dtype == torch.int64 else "F32"
        expect[name] = {"dtype": dtype, "shape": list(t.shape), "bytes": raw(t), "slices": []}
    save_file(tensors, OUT / "types.safetensors", metadata={"format": "pt"})
    (OUT / "types.json").write_text(json.dumps(expect, indent=1, ensure_ascii=False) + "\n")


def sharded():
    path = OUT / "sharded"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    gen = torch.Generator().manual_seed(2)
    state = {f"layer.{i}.weight": torch.randn(8, 4, generator=gen) for i in range(4)}
    save_torch_state_dict(state, path, max_shard_size=260)


def adapter():
    path = OUT / "adapter"
    shutil.rmtree(path, ignore_errors=True)
    torch.manual_seed(3)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = torch.nn.Linear(6, 4, bias=False)
            self.o_proj = torch.nn.Linear(4, 6, bias=False)

        def forward(self, x):
            return self.o_proj(self.q_proj(x))

    model = get_peft_model(Net(), LoraConfig(r=2, lora_alpha=6, lora_dropout=0.1, target_modules=["q_proj", "o_proj"], init_lora_weights=False))
    model.save_pretrained(path)
    (path / "README.md").unlink(missing_ok=True)
    config = json.loads((path / "adapter_config.json").read_text())
    config["target_modules"].sort()  # peft keeps a set
    (path / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    types()
    sharded()
    adapter()
