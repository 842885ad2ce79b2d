"""Sixteen tenants of lfactor serve --train at once beside the same sixteen runs one after another: throughput, weights, memory.

    python bench/tenants.py --lfactor ./lfactor --model DIR [--tenants 16] [--steps 4] [--tokens 32] [--draw 0] [--threads 2] [--rank 16]

DIR is a Hugging Face folder, as bench/smollm2.py prepares SmolLM2-135M. A tenant's step is one sequence of drawn tokens and an update. The runs
one after another have the server to themselves, with one slot. What both leave behind is compared byte by byte. Memory is the largest resident
size of each server (VmHWM) above the file of weights and the adapters with their gradients and moments.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time
import urllib.request


def ask(url, path, body):
    r = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r) as f:
        return json.load(f)


def begin(url, k):
    ask(url, "/adapters", {"name": f"tenant-{k}", "seed": k})


def life(args, url, k):
    at, draw = f"/adapters/tenant-{k}", random.Random(k)
    for _ in range(args.steps):
        ids = [draw.randrange(1000, 40000) for _ in range(args.tokens + 1)]
        if args.draw:
            ids += ask(url, "/completions", {"model": f"tenant-{k}", "prompt": ids, "max_tokens": args.draw, "seed": k, "ignore_eos": True,
                                             "return_token_ids": True})["choices"][0]["token_ids"]
        ask(url, at + "/forward_backward", {"data": [{"tokens": ids[:-1], "targets": ids[1:]}]})
        ask(url, at + "/optim_step", {"lr": 1e-3})


def warm(args, url, ks):
    """Two steps of other tenants, so that what is recorded and allocated once is there."""
    for k in ks:
        begin(url, k)
    with concurrent.futures.ThreadPoolExecutor(len(ks)) as pool:
        list(pool.map(lambda k: life(argparse.Namespace(**{**vars(args), "steps": 2}), url, k), ks))
    for k in ks:
        urllib.request.urlopen(urllib.request.Request(url + f"/adapters/tenant-{k}", method="DELETE"))


def serve(args, slots, work):
    p = subprocess.Popen([args.lfactor, "serve", args.model, "--train", "--adapters", str(slots), "--rank", str(args.rank), "--port", "0",
                          "--pages", "64", "--adapters-dir", str(work), "-o", "json"], stdout=subprocess.PIPE, text=True,
                         env=dict(os.environ, GOMAXPROCS=str(args.threads)))
    return p, json.loads(p.stdout.readline())["url"]


def leave(args, url, work, ks):
    out = {}
    for k in ks:
        ask(url, f"/adapters/tenant-{k}/save", {"label": "last"})
        file = work / f"tenant-{k}" / "last" / "adapter_model.safetensors"
        out[k] = (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size)
    return out


def peak(p):
    return next(int(l.split()[1]) * 1024 for l in open(f"/proc/{p.pid}/status") if l.startswith("VmHWM"))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--lfactor", required=True)
    a.add_argument("--model", required=True)
    a.add_argument("--tenants", default=16, type=int)
    a.add_argument("--steps", default=4, type=int)
    a.add_argument("--tokens", default=32, type=int)
    a.add_argument("--draw", default=0, type=int, help="tokens of an answer that is drawn first, and trained on behind the others")
    a.add_argument("--threads", default=2, type=int)
    a.add_argument("--rank", default=16, type=int)
    args = a.parse_args()
    ks = range(args.tenants)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        p, url = serve(args, 1, work / "alone")
        warm(args, url, [999])
        one, alone = 0.0, {}
        for k in ks:
            begin(url, k)
            began = time.perf_counter()
            life(args, url, k)
            one += time.perf_counter() - began
            alone |= leave(args, url, work / "alone", [k])
            urllib.request.urlopen(urllib.request.Request(url + f"/adapters/tenant-{k}", method="DELETE"))
        small = peak(p)
        p.terminate()
        p.wait()
        p, url = serve(args, args.tenants, work / "all")
        warm(args, url, range(1000, 1000 + args.tenants))
        for k in ks:
            begin(url, k)
        began = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(args.tenants) as pool:
            list(pool.map(lambda k: life(args, url, k), ks))
        together = time.perf_counter() - began
        same = leave(args, url, work / "all", ks)
        large = peak(p)
        p.terminate()
        p.wait()
    base = sum(f.stat().st_size for f in pathlib.Path(args.model).glob("*.safetensors"))
    adapters = 4 * sum(size for _, size in same.values())  # weights, gradients, two moments
    tokens = args.tenants * args.steps * (args.tokens + args.draw)
    print(json.dumps({"one_after_another": round(tokens / one, 1), "together": round(tokens / together, 1), "ratio": round(one / together, 2),
                      "weights_equal": alone == same, "peak_one": small, "peak_all": large, "base": base, "adapters": adapters,
                      "above": round(large / (base + adapters) - 1, 3)}))


if __name__ == "__main__":
    main()
