"""Counts LoongForge's files of diffusion: which lfactor accepts, which it refuses and why, and which have nothing left to do. Scripts of
training are run by bash with a torchrun that prints its arguments in the place of the real one: read them first.

Run with a clone of LoongForge, and keys that launches are given besides:
    python bench/loong_diffusion.py --lfactor ./lfactor CLONE diffusion.autoencoder=FOLDER diffusion.text_encoder=none
"""

import argparse
import os
import pathlib
import subprocess
import tarfile
import tempfile

KINDS = ("wan", "qwen_image")


def check(lfactor, args):
    r = subprocess.run([lfactor, "config", "check", *args], capture_output=True, text=True)
    lines = [line for line in (r.stdout if r.returncode == 0 else r.stderr).splitlines() if line.strip()]
    return ("accepted", lines[-1]) if r.returncode == 0 else ("refused", lines[0])


def launches(script):
    """What a script gives to train.py, each time that it does; its shards are one that is there."""
    with tempfile.TemporaryDirectory() as folder:
        stub, out = pathlib.Path(folder, "torchrun"), pathlib.Path(folder, "out")
        stub.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" >> {out}\nprintf '\\n\\0' >> {out}\n")
        stub.chmod(0o755)
        r = subprocess.run(["bash", script], cwd=folder, env=dict(PATH=f"{folder}:{os.defpath}"), capture_output=True, text=True, timeout=60)
        if not out.exists():
            raise SystemExit(f"{script} launches nothing: {r.stderr.strip()}")
        for line in out.read_text().split("\n\0")[:-1]:
            args = line.split("\0")[:-1]
            shard = pathlib.Path(folder, "shard.tar")
            with tarfile.open(shard, "w") as t:
                t.addfile(tarfile.TarInfo("0.txt"))
            args[args.index("--data-path") + 1] = str(shard)
            yield args[next(i for i, x in enumerate(args) if x.endswith("train.py")) + 1 :]


def verdict(lfactor, path):
    if path.suffix == ".yaml":
        return check(lfactor, ["--config-file", str(path)])
    if path.name.startswith("pretrain"):
        return max((check(lfactor, [*args, *MORE]) for args in launches(path)), key=lambda v: v[0] == "refused")
    return "not needed", "diffusers' folders are read and written" if path.name.startswith("convert") else "a run encodes and keeps latents"


p = argparse.ArgumentParser()
p.add_argument("clone", type=pathlib.Path)
p.add_argument("--lfactor", default="./lfactor")
p.add_argument("more", nargs="*", help="keys that launch scripts are given besides, as diffusion.autoencoder=FOLDER")
a = p.parse_args()
MORE = a.more
count = {}
for kind in KINDS:
    for path in sorted([*(a.clone / "configs/models" / kind).glob("*.yaml"), *(a.clone / "examples" / kind).glob("*.sh")]):
        what, why = verdict(a.lfactor, path)
        count[what] = count.get(what, 0) + 1
        print(f"{what:10}  {path.relative_to(a.clone)}  {why}")
print(f"{sum(count.values())} files: " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))
