"""Greedy text of a model, lfactor and transformers side by side: tokens a second behind the first, in alternating rounds.

    python bench/sample.py --lfactor ./lfactor --model DIR [--tokens 128] [--threads 1 2] [--rounds 3]

DIR is a model in Hugging Face's format (bench/smollm2.py makes one of SmolLM2-135M). Both compute in float32 and must draw the same ids.
"wall" counts the clock; "CPU" the processor time of all threads, which other work on the machine does not change much. Either is what a text
takes over what its first token takes. Prints medians, and above 1 lfactor is faster. Needs torch and transformers; lfactor needs neither.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

from rows import row

PROMPT = "The history of the lighthouse begins"


def ours(args, threads, tokens):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [args.lfactor, "sample", args.model, "--prompt", PROMPT, "--greedy", "--max", str(tokens), "-o", "json"]
    out = subprocess.run(words, env=dict(os.environ, GOMAXPROCS=str(threads)), check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = json.loads(out)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return r["text"], r["tokens"], r["seconds"] - r["first_token_seconds"], cpu


def theirs(model, threads, tokens):
    """Runs in a process of its own, for the number of threads."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads)
    tok = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ids = tok(PROMPT, return_tensors="pt")["input_ids"]

    def draw(n):
        wall, cpu = time.perf_counter(), time.process_time()
        with torch.no_grad():
            out = net.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False, pad_token_id=2)
        return out[0, ids.shape[1] :], time.perf_counter() - wall, time.process_time() - cpu

    draw(2)
    _, first_wall, first_cpu = draw(1)
    out, wall, cpu = draw(tokens)
    print(json.dumps(dict(text=tok.decode(out, skip_special_tokens=True), tokens=len(out), wall=wall - first_wall, cpu=cpu - first_cpu)))


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--lfactor", default="./lfactor")
    args.add_argument("--model", required=True)
    args.add_argument("--tokens", type=int, default=128)
    args.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--theirs", type=int, nargs=2, help=argparse.SUPPRESS)
    a = args.parse_args()
    if a.theirs:
        return theirs(a.model, *a.theirs)
    print(f"{'threads':>7} {'':5}{'lfactor tokens/s':>18}{'transformers':>14}{'ratio':>7}  text")
    for threads in a.threads:
        rates, same = {}, True
        for _ in range(a.rounds):
            _, _, _, first = ours(a, threads, 1)
            text, n, wall, cpu = ours(a, threads, a.tokens)
            run = [sys.executable, __file__, "--model", a.model, "--theirs", str(threads), str(a.tokens)]
            r = json.loads(subprocess.run(run, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            same = same and text == r["text"]
            for way, us, them in ("wall", wall, r["wall"]), ("CPU", cpu - first, r["cpu"]):
                rates.setdefault(way, []).append(((n - 1) / us, (r["tokens"] - 1) / them))
        for way, pairs in rates.items():
            us, them = (statistics.median(p) for p in zip(*pairs))
            print(f"{threads:7} {way:5}{us:18.1f}{them:14.1f}{us / them:7.2f}  {'equal' if same else 'DIFFERENT'}", flush=True)
            if way == "CPU":
                row(f"decode one text, {threads} threads, CPU", [p[0] for p in pairs], {"transformers": [p[1] for p in pairs]})


main()
