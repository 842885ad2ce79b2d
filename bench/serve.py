"""lfactor serve beside transformers' generate: tokens a second of 1, 8 and 32 requests at once, in float32, greedy, the same prompts.

    python bench/serve.py --lfactor ./lfactor [--work DIR] [--threads 2] [--new 48] [--prompt 48] [--rounds 3]

The model is SmolLM2-135M-Instruct, as bench/smollm2.py prepares it. transformers gets all prompts of a round as one batch without padding,
which is its best case; lfactor gets each as a request of its own, all at once. Rounds alternate; speeds are medians, prompts included. What
both say is compared token by token: the share of equal answers is printed (products of other shapes round otherwise in transformers).
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import statistics
import subprocess
import time
import urllib.request

import smollm2


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--work", default="/tmp/lfactor-smollm2", type=pathlib.Path)
    p.add_argument("--wheel")
    p.add_argument("--threads", default=2, type=int)
    p.add_argument("--new", default=48, type=int)
    p.add_argument("--prompt", default=48, type=int)
    p.add_argument("--rounds", default=3, type=int)
    p.add_argument("--requests", default="1,8,32")
    p.add_argument("--precision", default="fp32")
    p.add_argument("--alone", action="store_true", help="lfactor only")
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    folder = smollm2.model_folder(args.work, args.wheel)
    server = subprocess.Popen([args.lfactor, "serve", str(folder), "--port", "0", "-o", "json", "--precision", args.precision],
                              stdout=subprocess.PIPE, text=True, env=dict(os.environ, GOMAXPROCS=str(args.threads)))
    try:
        url = json.loads(server.stdout.readline())["url"]
        measure(args, folder, url)
    finally:
        server.terminate()
        server.wait()


def ask(url, ids, new):
    body = json.dumps({"model": "model", "prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
    r = urllib.request.Request(url + "/completions", body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r) as f:
        return json.load(f)["choices"][0]["token_ids"]


def measure(args, folder, url):
    peer = None
    if not args.alone:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(args.threads)
        peer = AutoModelForCausalLM.from_pretrained(folder, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[args.precision]).eval()
    ask(url, [1, 2, 3], 2)
    for n in map(int, args.requests.split(",")):
        ours, theirs, same = [], [], []
        for k in range(args.rounds):
            r = random.Random(100 * n + k)
            prompts = [[r.randrange(1000, 40000) for _ in range(args.prompt)] for _ in range(n)]
            began = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(n) as pool:
                said = list(pool.map(lambda ids: ask(url, ids, args.new), prompts))
            ours.append(n * args.new / (time.perf_counter() - began))
            if peer is None:
                continue
            import torch

            began = time.perf_counter()
            with torch.no_grad():
                ids = torch.tensor(prompts)
                out = peer.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=args.new, min_new_tokens=args.new,
                                    do_sample=False, pad_token_id=2)
            theirs.append(n * args.new / (time.perf_counter() - began))
            same += [a == b for a, b in zip(said, out[:, args.prompt :].tolist())]
        line = {"requests": n, "lfactor": round(statistics.median(ours), 1)}
        if theirs:
            line |= {"transformers": round(statistics.median(theirs), 1),
                     "ratio": round(statistics.median(a / b for a, b in zip(ours, theirs)), 2), "same": sum(same) / len(same)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
