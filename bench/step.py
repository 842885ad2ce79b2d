"""Training steps of one small Llama, lfactor and PyTorch + transformers side by side, in alternating rounds.

    python bench/step.py --lfactor ./lfactor [--precision fp32 bf16] [--threads 1 2] [--rounds 3]

Both train the same shapes: hidden 512, 8 layers, 8 heads of 64, intermediate 1408, vocabulary 32000 (untied), 4 sequences of 512
tokens, AdamW, gradient clipping at norm 1. PyTorch computes bf16 under autocast with float32 weights, its usual mixed precision.
Prints tokens per second (median over rounds), the ratio, and peak resident memory: PyTorch's less what the process has before
the model, lfactor's in full. Needs torch and transformers; lfactor needs neither.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

SHAPE = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, vocab_size=32000)
SEQ, BATCH = 512, 4


def torch_round(precision, threads, steps):
    """Runs in a process of its own: peak memory is the process's, less what it had before the model."""
    import time

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, max_position_embeddings=SEQ, tie_word_embeddings=False, attn_implementation="sdpa"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, targets = torch.randint(0, SHAPE["vocab_size"], (2, BATCH, SEQ))
    seconds = []
    for _ in range(steps + 1):
        t = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits = model(ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - t)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps(dict(tokens_per_second=BATCH * SEQ / statistics.median(seconds[1:]), peak_rss=peak)))


def run(command, env=None):
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return json.loads(out.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--torch-round", nargs=3, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_round:
        torch_round(a.torch_round[0], int(a.torch_round[1]), int(a.torch_round[2]))
        return
    print(f"{'':14}{'lfactor tok/s':>15}{'PyTorch tok/s':>15}{'ratio':>8}{'lfactor MiB':>13}{'PyTorch MiB':>13}")
    for precision in a.precision:
        for threads in a.threads:
            ours, theirs = [], []
            # Fresh pages cost PyTorch 5-30 % with glibc's defaults; these make it the fair peer.
            env = os.environ | dict(OMP_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="8000000000", MALLOC_TOP_PAD_="268435456")
            for _ in range(a.rounds):
                ours.append(run([a.lfactor, "bench", "step", "-o", "json", "--precision", precision, "--threads", str(threads), "--steps", str(a.steps)]))
                theirs.append(run([sys.executable, __file__, "--torch-round", precision, str(threads), str(a.steps)], env))
            us, them = (statistics.median(r["tokens_per_second"] for r in rs) for rs in (ours, theirs))
            m1, m2 = (statistics.median(r["peak_rss"] for r in rs) / 2**20 for rs in (ours, theirs))
            print(f"{precision} {threads} thread(s) {us:>13.0f}{them:>15.0f}{us / them:>8.2f}{m1:>13.0f}{m2:>13.0f}", flush=True)


if __name__ == "__main__":
    main()
