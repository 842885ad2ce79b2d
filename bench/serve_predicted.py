"""Times that clients of lfactor serve see, beside those that lfactor sim serve says beforehand.

    python bench/serve_predicted.py --lfactor ./lfactor --model DIR [--loads 1,8,24] [--prompt 64] [--answer 32] [--requests 12]

Steps are measured once (sim serve MODEL --keep), then for each load so many clients ask again when they are answered, a dozen times each, with
prompts and answers of lengths around the medians. Printed: p50 and p99 of the time to the first token, of that between tokens and of whole answers,
measured : predicted, with the deviation. Nothing but Python's library is needed.
"""

import argparse
import http.client
import json
import math
import pathlib
import random
import subprocess
import tempfile
import threading
import time
import urllib.parse


def client(address, lengths, out, fault):
    try:
        c = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
        for prompt, answer in lengths:
            body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": answer, "temperature": 0, "ignore_eos": True, "stream": True})
            began = last = time.monotonic()
            c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            r, n = c.getresponse(), 0
            while line := r.readline():
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                out["between" if n else "first"].append(now - last)
                last, n = now, n + 1
            out["whole"].append(last - began)
    except Exception as e:  # a thread's fault is the run's
        fault.append(e)


def quantiles(x):
    x = sorted(x)
    return [x[min(len(x) - 1, int(q * len(x)))] for q in (0.5, 0.99)]


def lengths(args, rng, n):
    draw = lambda median: max(1, math.ceil(median * math.exp(args.spread * rng.gauss(0, 1))))
    return [([rng.randrange(1000, 30000) for _ in range(draw(args.prompt))], draw(args.answer)) for _ in range(n)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--loads", default="1,8,24")
    p.add_argument("--prompt", default=64, type=int)
    p.add_argument("--answer", default=32, type=int)
    p.add_argument("--spread", default=0.3, type=float)
    p.add_argument("--requests", default=12, type=int, help="of each client")
    args = p.parse_args()
    steps = pathlib.Path(tempfile.mkdtemp()) / "steps.csv"
    load = ["--prompt", str(args.prompt), "--answer", str(args.answer), "--prompt-spread", str(args.spread), "--answer-spread", str(args.spread)]
    subprocess.run([args.lfactor, "sim", "serve", args.model, "--keep", steps, *load], check=True, capture_output=True)
    server = subprocess.Popen([args.lfactor, "serve", args.model, "--port", "0", "-o", "json", "--name", "m"], stdout=subprocess.PIPE, text=True)
    try:
        address = urllib.parse.urlparse(json.loads(server.stdout.readline())["url"])
        rng = random.Random(1)
        worst = 0
        for n in [int(x) for x in args.loads.split(",")]:
            for rounds in (2, args.requests):  # traces are recorded in the first
                out, fault = {"first": [], "between": [], "whole": []}, []
                threads = [threading.Thread(target=client, args=(address, lengths(args, rng, rounds), out, fault)) for _ in range(n)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                if fault:
                    raise fault[0]
            said = json.loads(subprocess.run([args.lfactor, "sim", "serve", "-o", "json", "--steps", steps, "--clients", str(n), "--requests",
                                              str(max(200, n * args.requests)), *load], check=True, capture_output=True, text=True).stdout)
            for name, key in (("first", "time_to_first_token"), ("between", "inter_token_latency"), ("whole", "e2e_request_latency")):
                cells = []
                for q, real, sim in zip(("p50", "p99"), quantiles(out[name]), said[key]):
                    cells.append(f"{q} {1000 * real:.1f} : {1000 * sim:.1f} ms ({100 * (sim / real - 1):+.0f} %)")
                    worst = max(worst, abs(sim / real - 1))
                print(f"{n} clients, {name}: " + ", ".join(cells), flush=True)
        print(f"worst {100 * worst:.0f} %")
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
