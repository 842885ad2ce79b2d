"""The longest sequence that a model of 58 M parameters trains on within 2 GiB a rank: lfactor's chunks, PyTorch, and PyTorch with checkpointing and a chunked loss.

    sudo python bench/longest.py --lfactor ./lfactor [--ways plain checkpointing lfactor offload cp2] [--precision fp32] [--gib 2] [--threads 2] [--most 65536]

Every attempt is a process of its own in a memory cgroup (version 1) with that limit, which needs root: a process that passes the limit is killed. Lengths are powers of
two times 1, 1.25 and 1.5; the longest that trains is found by bisection, on the assumption that whatever is shorter trains too. plain: transformers' Llama in PyTorch,
fused AdamW, SDPA. checkpointing: the same with gradient checkpointing, and logits and loss for 512 tokens at a time, computed again in the backward. lfactor: full
recompute and chunks of 512 tokens. offload: the same with what backwards need and the optimizer's state in mapped files. cp2 and cp4: the same with the sequence shared out over two or four ranks by a ring, all in one process, whose limit is as many times
as high, one thread each. Prints for each way the longest length and its ratio to plain, tokens a second, the peak of the cgroup, and for lfactor the share of the
roofline floor of that length (bench/step.py). Needs torch and transformers for PyTorch's ways.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

CGROUP = pathlib.Path("/sys/fs/cgroup/memory")
CONFIG = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, vocab_size=32000, tie_word_embeddings=False)
CHUNK = 512
WAYS = ["plain", "checkpointing", "lfactor", "offload", "cp2", "cp4"]


def torch_step(length, precision, threads, way):
    import torch
    import transformers
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**CONFIG, max_position_embeddings=length)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, targets = torch.randint(0, config.vocab_size, (2, 1, length))
    loss_of = lambda logits, t: torch.nn.functional.cross_entropy(logits.float(), t, reduction="sum")

    def chunked():
        model.gradient_checkpointing_enable()
        hidden = model.model(ids, use_cache=False).last_hidden_state[0]
        part = lambda h, t: loss_of(model.lm_head(h), t)
        return sum(checkpoint(part, hidden[i : i + CHUNK], targets[0, i : i + CHUNK], use_reentrant=False) for i in range(0, length, CHUNK)) / length

    seconds = []
    for _ in range(2):
        t = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = chunked() if way == "checkpointing" else loss_of(model(ids, use_cache=False).logits[0], targets[0]) / length
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - t)
    print(json.dumps(dict(tokens_per_second=length / min(seconds))))


def attempt(a, way, length):
    """What one length gives within the limit, or None."""
    ranks = int(way[2:]) if way.startswith("cp") else 1
    group = CGROUP / f"lfactor-longest-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(int(a.gib * 2**30) * ranks))
        if way in ("plain", "checkpointing"):
            command = [sys.executable, __file__, "--torch-step", str(length), a.precision, str(a.threads), way]
        else:
            command = [a.lfactor, "bench", "step", "-o", "json", "--seq", str(length), "--batch", "1", "--chunk", str(min(CHUNK, length)), "--recompute", "full", "--steps", "1",
                       "--precision", a.precision, "--cp", str(ranks), "--threads", str(max(1, a.threads // ranks))]
        if way == "offload":
            command += ["--offload", "--offload-optimizer"]
        enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
        r = subprocess.run(command, capture_output=True, text=True, preexec_fn=enter)
        if r.returncode != 0:
            print(f"  {way} {length}: status {r.returncode} {r.stderr.strip()[-120:]}", file=sys.stderr, flush=True)
            return None
        out = json.loads(r.stdout) | dict(peak=int((group / "memory.max_usage_in_bytes").read_text()))
        print(f"  {way} {length}: {out['tokens_per_second']:.0f} tokens/s", file=sys.stderr, flush=True)
        return out
    finally:
        for _ in range(50):  # until the kernel has let go of what was killed
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def longest(a, way):
    lengths = [int(p * f) for p in (2**i for i in range(9, 21)) for f in (1, 1.25, 1.5)]
    lengths = [n for n in lengths if n % CHUNK == 0 and n <= a.most]
    best, lo, hi = (0, None), -1, len(lengths)
    at = 0
    while hi - lo > 1:  # doubling first, for attempts that are too long take longest
        got = attempt(a, way, lengths[at])
        if got:
            lo, best = at, (lengths[at], got)
        else:
            hi = at
        at = min(2 * at + 3, hi - 1) if got and hi == len(lengths) else (lo + hi) // 2
    return best


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    p.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    p.add_argument("--gib", type=float, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--most", type=int, default=65536)
    p.add_argument("--torch-step", nargs=4, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_step:
        length, precision, threads, way = a.torch_step
        torch_step(int(length), precision, int(threads), way)
        return
    print(f"{'':15}{'tokens':>8}{'ratio':>8}{'tokens/s':>10}{'MiB':>8}{'floor':>9}", flush=True)
    plain = None
    for way in a.ways:
        n, got = longest(a, way)
        plain = n if way == "plain" else plain
        ratio = f"{n / plain:8.1f}" if plain else f"{'-':>8}"
        if got is None:
            print(f"{way:15}{'-':>8}", flush=True)
            continue
        floor = f"{100 * got['of_floor']:8.1f}%" if "of_floor" in got else ""
        print(f"{way:15}{n:8}{ratio}{got['tokens_per_second']:10.0f}{got['peak'] / 2**20:8.0f}{floor}", flush=True)


if __name__ == "__main__":
    main()
