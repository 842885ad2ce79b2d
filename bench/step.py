"""Training steps of one small model, lfactor and PyTorch + transformers side by side, in alternating rounds.

    python bench/step.py --lfactor ./lfactor [--shape llama58m llama5m qwen3-0.6b] [--precision fp32 bf16] [--threads 1 2] [--rounds 3] [--reference eager compile]

Both train the same shapes. llama58m: hidden 512, 8 layers, 8 heads of 64, intermediate 1408, vocabulary 32000 (untied), 4 sequences
of 512 tokens. llama5m: hidden 256, 4 layers, 4 heads, intermediate 704, vocabulary 4096, 2 sequences of 256, for what takes the reference
minutes with llama58m: bf16 without instructions for it. qwen3-0.6b: the published model's shape, 1 sequence of 1024. AdamW (fused in PyTorch), gradient clipping at norm 1,
SDPA. PyTorch computes bf16 under autocast with float32 weights, its usual mixed precision. The reference is the best of PyTorch's
settings, eager and torch.compile; the latter wants a C++ compiler.

Prints, as medians over the rounds: tokens per second and the ratio; lfactor's share of the roofline floor (products and attention at
the multiply-add peak of the same threads, plus the memory that must move, once; all probed in the same process) and what of its time
lay outside kernels; peak resident memory above float32 parameters, gradients and two moments, and in all: PyTorch's less what the
process had before the model, lfactor's in full. With two numbers of threads: the gain, over the gain of the probe. In fp32 also what the
floor would be at the rate of the fastest product of this Python's numpy. Needs torch and transformers; lfactor needs neither.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

from rows import row

SHAPES = {
    "llama58m": dict(
        family="Llama", seq=512, batch=4,
        config=dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, vocab_size=32000, tie_word_embeddings=False),
    ),
    "llama5m": dict(
        family="Llama", seq=256, batch=2, flags="--shape llama58m --layers 4 --hidden 256 --intermediate 704 --vocab 4096 --batch 2 --seq 256",
        config=dict(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, vocab_size=4096, tie_word_embeddings=False),
    ),
    "qwen3-0.6b": dict(
        family="Qwen3", seq=1024, batch=1,
        config=dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936,
                    tie_word_embeddings=True, rms_norm_eps=1e-6),
    ),
}


def torch_round(shape, reference, precision, threads, steps):
    """Runs in a process of its own: peak memory is the process's, less what it had before the model."""
    import time

    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    s = SHAPES[shape]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    config = getattr(transformers, s["family"] + "Config")(**s["config"], max_position_embeddings=s["seq"])
    model = getattr(transformers, s["family"] + "ForCausalLM")._from_config(config, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, targets = torch.randint(0, config.vocab_size, (2, s["batch"], s["seq"]))

    def loss_of(ids, targets):
        logits = model(ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    if reference == "compile":
        loss_of = torch.compile(loss_of)
    seconds = []
    for _ in range(steps + 1):
        t = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - t)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps(dict(tokens_per_second=s["batch"] * s["seq"] / statistics.median(seconds[1:]), peak_rss=peak)))


def run(command, env=None):
    out = subprocess.run(command, capture_output=True, text=True, env=env)
    if out.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {out.returncode}\n{out.stderr[-2000:]}")
    return json.loads(out.stdout.splitlines()[-1])


def median(rounds, key):
    return statistics.median(key(r) for r in rounds)


def measure(a, shape, precision):
    """All rounds of one shape and precision: by threads, the results of lfactor and of each reference."""
    results = {n: {} for n in a.threads}
    failed = set()
    for i in range(a.rounds):
        for n in a.threads:
            with tempfile.TemporaryDirectory() as d:
                ours = run([a.lfactor, "bench", "step", "-o", "json", *SHAPES[shape].get("flags", f"--shape {shape}").split(), "--precision", precision, "--threads", str(n), "--steps", str(a.steps), "--numpy", sys.executable, f"--profile={d}/p"])
            results[n].setdefault("lfactor", []).append(ours)
            # Fresh pages cost PyTorch 5-30 % with glibc's defaults; these make it the fair peer.
            env = os.environ | dict(OMP_NUM_THREADS=str(n), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="8000000000", MALLOC_TOP_PAD_="268435456")
            for ref in a.reference:
                if ref in failed:
                    continue
                try:
                    results[n].setdefault(ref, []).append(run([sys.executable, __file__, "--torch-round", shape, ref, precision, str(n), str(a.steps)], env))
                except RuntimeError as e:
                    failed.add(ref)
                    print(f"no reference {ref}: {e}", file=sys.stderr, flush=True)
            rates = "  ".join(f"{who} {rs[-1]['tokens_per_second']:.0f}" for who, rs in results[n].items())
            print(f"# {shape} {precision} {n} thread(s), round {i + 1}: {rates} tokens/s", file=sys.stderr, flush=True)
    return results


def report(shape, precision, n, results):
    ours = results["lfactor"]
    rate = {who: median(rs, lambda r: r["tokens_per_second"]) for who, rs in results.items()}
    refs = [w for w in results if w != "lfactor"]
    mib = 2**20
    total = median(ours, lambda r: r["peak_rss"]) / mib
    state = ours[0]["state_bytes"] / mib
    line = f"{shape:11}{precision:5}{n:4}{rate['lfactor']:10.0f}"
    for w in ("eager", "compile"):
        line += f"{rate[w]:10.0f}" if w in rate else f"{'-':>10}"
    best = max(refs, key=rate.get) if refs else None
    line += f"{rate['lfactor'] / rate[best]:8.2f}" if best else f"{'-':>8}"
    outside = median(ours, lambda r: r["profile"]["outside_share"])
    line += f"{100 * median(ours, lambda r: r['of_floor']):8.1f}%{100 * outside:8.2f}%{total - state:12.0f}"
    if best:
        theirs = median(results[best], lambda r: r["peak_rss"]) / mib
        line += f"{theirs - state:12.0f}{(total - state) / (theirs - state):7.2f}{total:9.0f}{theirs:9.0f}{total / theirs:7.2f}"
    print(line, flush=True)
    if best:
        row(f"pretrain {shape} {precision}, {n} threads", [r["tokens_per_second"] for r in ours], {w: [r["tokens_per_second"] for r in results[w]] for w in refs}, memory=(total, theirs),
            floor=median(ours, lambda r: r["of_floor"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--shape", nargs="+", default=["llama58m"], choices=list(SHAPES))
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--reference", nargs="*", default=["eager", "compile"], choices=["eager", "compile"])
    p.add_argument("--torch-round", nargs=5, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_round:
        shape, reference, precision, threads, steps = a.torch_round
        torch_round(shape, reference, precision, int(threads), int(steps))
        return
    print(f"{'':11}{'':5}{'thr':>4}{'lfactor':>10}{'eager':>10}{'compile':>10}{'':>8}{'of the':>9}{'outside':>9}{'MiB above state':>24}{'':7}{'MiB in all':>18}")
    print(f"{'':11}{'':5}{'':4}{'tok/s':>10}{'tok/s':>10}{'tok/s':>10}{'ratio':>8}{'floor':>9}{'kernels':>9}{'lfactor':>12}{'PyTorch':>12}{'ratio':>7}{'lfactor':>9}{'PyTorch':>9}{'ratio':>7}", flush=True)
    gains, libraries = [], []
    for shape in a.shape:
        for precision in a.precision:
            results = measure(a, shape, precision)
            for n in a.threads:
                report(shape, precision, n, results[n])
                if precision == "fp32":
                    ours = [r for r in results[n]["lfactor"] if r["library"].get("of_floor")]
                    if ours:
                        libraries.append(f"{shape:11}{precision:5}{n} threads: {median(ours, lambda r: r['library']['flops']) / 1e9:.1f} GFLOP/s in "
                                         f"products of {ours[0]['library']['name']}; at that rate the floor is {100 * median(ours, lambda r: r['library']['of_floor']):.1f} %")
            one = results.get(1, {}).get("lfactor")
            for n in a.threads:
                if one and n > 1:
                    many = results[n]["lfactor"]
                    step = median(many, lambda r: r["tokens_per_second"]) / median(one, lambda r: r["tokens_per_second"])
                    probe = median(many, lambda r: r["floor"]["peak_flops"]) / median(one, lambda r: r["floor"]["peak_flops"])
                    gains.append(f"{shape:11}{precision:5}{n} threads over 1: step {step:.2f}, probe {probe:.2f}, ratio {step / probe:.2f}")
    print("\n".join(gains + libraries))


if __name__ == "__main__":
    main()
