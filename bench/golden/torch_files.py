"""Golden data of stages/checkpoint/torch: what PyTorch writes, and what it makes of what lfactor wrote.

  python bench/golden/torch_files.py            writes to stages/checkpoint/torch/testdata:
    expected.safetensors   the tensors that all of the following hold
    plain.bin, parameters.pt, nested.pt, views.pt    files of torch.save
    shards/                two files with an index, as transformers wrote them
    dcp-one, dcp-rows, dcp-columns, dcp-grid, dcp-cached   directories of torch.distributed.checkpoint, of 1, 2, 3 and 4 processes
    evil.bin               a pickle that would call os.system
  python bench/golden/torch_files.py read DIR   loads DIR/pytorch_model.bin with weights_only=True and DIR/dcp with PyTorch's
                                                reader, and compares both with expected.safetensors

Run from the repository's root with torch, safetensors and numpy installed.
"""

import json
import os
import pathlib
import pickle
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

OUT = pathlib.Path("stages/checkpoint/torch/testdata")


def tensors():
    g = torch.Generator().manual_seed(3)
    t = {"a.weight": torch.randn(7, 6, generator=g), "b.weight": torch.randn(5, 4, generator=g).to(torch.bfloat16),
         "b.bias": torch.randn(5, generator=g).to(torch.float16), "c": torch.randn(3, 4, 5, generator=g).double(),
         "n": torch.arange(6).reshape(2, 3), "scalar": torch.tensor(2.5), "flags": torch.tensor([True, False, True]),
         "f8": torch.randn(4, 4, generator=g).to(torch.float8_e4m3fn)}
    return t


def files():
    t = tensors()
    save_file(t, OUT / "expected.safetensors")
    torch.save(t, OUT / "plain.bin")
    torch.save({k: torch.nn.Parameter(v) if v.is_floating_point() and v.dtype != torch.float8_e4m3fn else v for k, v in t.items()},
               OUT / "parameters.pt")
    torch.save({"epoch": 3, "lr": 1e-3, "model": t, "more": [1, "x", None, (True, 2.5)], "big": 1 << 80}, OUT / "nested.pt")
    base = torch.empty(9, 13, dtype=torch.float32)
    base[1:8, 2:8] = t["a.weight"]
    views = dict(t, **{"a.weight": base[1:8, 2:8]})
    views["c"] = t["c"].permute(2, 0, 1).contiguous().permute(1, 2, 0)
    views["n"] = t["n"].t().contiguous().t()
    torch.save(views, OUT / "views.pt")
    d = OUT / "shards"
    d.mkdir(exist_ok=True)
    names = sorted(t)
    parts = {"pytorch_model-00001-of-00002.bin": names[:4], "pytorch_model-00002-of-00002.bin": names[4:]}
    for file, some in parts.items():
        torch.save({k: t[k] for k in some}, d / file)
    index = {"metadata": {}, "weight_map": {k: f for f, some in parts.items() for k in some}}
    (d / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")

    class Evil:
        def __reduce__(self):
            return os.system, ("echo it was run",)

    torch.save({"a.weight": t["a.weight"], "x": Evil()}, OUT / "evil.bin")


def worker(rank, world, name, placements, shape, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", shape)
    state = {}
    for k, v in tensors().items():
        if v.dim() >= len(shape) and v.dim() > 1 and v.dtype != torch.float8_e4m3fn:
            state[k] = distribute_tensor(v, mesh, placements)
        else:
            state[k] = v
    state["step"] = {"n": 3}
    dcp.save(state, checkpoint_id=str(OUT / name))
    dist.destroy_process_group()


def sharded():
    shutil.rmtree(OUT / "dcp-one", ignore_errors=True)
    dcp.save(dict(tensors(), step={"n": 3}), checkpoint_id=str(OUT / "dcp-one"), no_dist=True)
    cases = {"dcp-rows": (2, [Shard(0)], (2,)), "dcp-columns": (3, [Shard(1)], (3,)), "dcp-grid": (4, [Shard(0), Shard(1)], (2, 2)),
             "dcp-cached": (4, [Replicate(), Shard(0)], (2, 2))}
    for i, (name, (world, placements, shape)) in enumerate(cases.items()):
        shutil.rmtree(OUT / name, ignore_errors=True)
        mp.spawn(worker, (world, name, placements, shape, 29611 + i), nprocs=world)


def read(path):
    want = load_file(OUT / "expected.safetensors")
    got = torch.load(path / "pytorch_model.bin", weights_only=True)
    assert sorted(got) == sorted(want)
    for k, v in want.items():
        assert got[k].dtype == v.dtype and got[k].shape == v.shape and got[k].flatten().view(torch.uint8).equal(v.flatten().view(torch.uint8)), k
    state = {k: torch.zeros_like(v) for k, v in want.items()}
    dcp.load(state, checkpoint_id=str(path / "dcp"), no_dist=True)
    for k, v in want.items():
        assert state[k].flatten().view(torch.uint8).equal(v.flatten().view(torch.uint8)), k
    print("equal")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        read(pathlib.Path(sys.argv[2]))
    else:
        OUT.mkdir(parents=True, exist_ok=True)
        files()
        sharded()
