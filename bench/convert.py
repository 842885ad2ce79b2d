"""Conversion of a large checkpoint: its speed beside a copy, its memory, and whether one that is killed gives the same bytes.

  python bench/convert.py --lfactor BINARY --dir SCRATCH [--layers 32] [--kills 20]

makes a checkpoint of random bfloat16 numbers with the shapes of Llama-2-7B (13.5 GB, in files of 2 GB) below SCRATCH, and
  1. copies it, as cp does, until it is on the disk, and converts it (to files of 3 GB, so that every byte gets another place), turn by turn;
     the files are taken out of the system's cache before each, and the largest resident memory of the conversion is read;
  2. converts it with as many kills (SIGKILL) as --kills, at moments spread over the bytes to be written, and compares the hashes of
     all files with those of the conversion that was not killed.
Needs numpy; three times the checkpoint's size on the disk for a moment. SCRATCH/convert-* is removed at the end.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time

import numpy as np

from rows import row


def tensors(layers, h=4096, mlp=11008, vocab=32000):
    yield "model.embed_tokens.weight", [vocab, h]
    for n in range(layers):
        p = f"model.layers.{n}."
        for x in "qkvo":
            yield p + f"self_attn.{x}_proj.weight", [h, h]
        yield p + "mlp.gate_proj.weight", [mlp, h]
        yield p + "mlp.up_proj.weight", [mlp, h]
        yield p + "mlp.down_proj.weight", [h, mlp]
        yield p + "input_layernorm.weight", [h]
        yield p + "post_attention_layernorm.weight", [h]
    yield "model.norm.weight", [h]
    yield "lm_head.weight", [vocab, h]


def make(path, layers):
    path.mkdir(parents=True)
    rng, groups, size = np.random.default_rng(1), [[]], 0
    for name, shape in tensors(layers):
        n = 2 * int(np.prod(shape))
        if size + n > 2e9 and groups[-1]:
            groups.append([])
            size = 0
        groups[-1].append((name, shape, n))
        size += n
    index, total = {}, 0
    for i, group in enumerate(groups):
        file, head, at = f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors", {"__metadata__": {"format": "pt"}}, 0
        for name, shape, n in sorted(group):
            head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + n]}
            at += n
            index[name] = file
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path / file, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for _ in range(0, at, 1 << 26):
                f.write(rng.integers(0, 0x3f80, min(1 << 25, (at - f.tell() + 8 + len(text)) // 2), dtype=np.uint16).tobytes())
            os.fsync(f.fileno())
        total += at
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
    (path / "config.json").write_text(json.dumps({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": False, "hidden_act": "silu", "dtype": "bfloat16"}))
    return total


def cold(path):
    os.sync()
    for f in path.glob("*"):
        fd = os.open(f, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def copy(src, dst):
    cold(src)
    start = time.time()
    dst.mkdir()
    for f in sorted(src.glob("*")):
        subprocess.run(["cp", "--reflink=never", f, dst / f.name], check=True)
        fd = os.open(dst / f.name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return time.time() - start


def command(lfactor, src, dst):
    return [lfactor, "ckpt", "convert", str(src), str(dst), "--shard-size", "3GB", "--no-probe"]


def convert(lfactor, src, dst):
    cold(src)
    start = time.time()
    p = subprocess.Popen(command(lfactor, src, dst), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(p.pid, 0)
    assert status == 0, status
    return time.time() - start, usage.ru_maxrss / 1024


def hashes(path):
    out = {}
    for f in sorted(path.glob("*")):
        with open(f, "rb") as x:
            out[f.name] = hashlib.file_digest(x, "sha256").hexdigest()
    return out


def parts(journal):
    try:
        return journal.read_bytes().count(b"\n") - 1
    except FileNotFoundError:
        return -1


def killed(lfactor, src, dst, kills, total):
    journal, done, at = dst.parent / f".{dst.name}.journal", 0, []
    for k in range(kills):
        p = subprocess.Popen(command(lfactor, src, dst), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        goal = max(1, int((k + 1) * total / (8 << 20) / (kills + 1)))
        while p.poll() is None and parts(journal) < goal:
            time.sleep(0.005)
        assert p.returncode is None, "it ended before it was killed"
        p.send_signal(signal.SIGKILL)
        p.wait()
        at.append(parts(journal))
        done += 1
    print(f"killed {done} times, with {at} parts noted")
    convert(lfactor, src, dst)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--lfactor", required=True)
    a.add_argument("--dir", type=pathlib.Path, required=True)
    a.add_argument("--layers", type=int, default=32)
    a.add_argument("--kills", type=int, default=20)
    a.add_argument("--turns", type=int, default=2)
    a = a.parse_args()
    src, dst = a.dir / "convert-src", a.dir / "convert-dst"
    try:
        total = make(src, a.layers)
        ratios, want = [], None
        for _ in range(a.turns):
            c = copy(src, dst)
            shutil.rmtree(dst)
            t, mib = convert(a.lfactor, src, dst)
            ratios.append(c / t)
            print(f"{total / 1e9:.2f} GB: copied in {c:.1f} s ({total / c / 1e9:.2f} GB/s), converted in {t:.1f} s "
                  f"({total / t / 1e9:.2f} GB/s): {c / t:.2f}; at most {mib:.0f} MiB resident", flush=True)
            want = hashes(dst)
            shutil.rmtree(dst)
        row("convert a checkpoint", ratios, {"cp": [1.0] * len(ratios)})
        if a.kills:
            killed(a.lfactor, src, dst, a.kills, total)
            assert hashes(dst) == want
            left = [f.name for f in a.dir.glob(".convert-*")]
            assert not left, left
            print(f"the same bytes in {len(want)} files, nothing else left")
    finally:
        for d in (src, dst, a.dir / ".convert-dst.journal"):
            shutil.rmtree(d, ignore_errors=True) if d.is_dir() else d.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
