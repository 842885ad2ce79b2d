"""lfactor serve beside transformers' generate and llama.cpp: tokens a second of 1, 8 and 32 requests at once, greedy, the same prompts.

    python bench/serve.py --lfactor ./lfactor [--work DIR] [--threads 2] [--new 48] [--prompt 48] [--rounds 3]
    python bench/serve.py --lfactor ./lfactor --llama VENV/bin/python [--forms f32,f16,bf16,q8_0,q4_k]
    python bench/serve.py --lfactor ./lfactor --draft ngram [--new 96]

The model is SmolLM2-135M-Instruct, as bench/smollm2.py prepares it. transformers gets all prompts of a round as one batch without padding,
which is its best case; lfactor gets each as a request of its own, all at once. With --llama, a Python that has xllamacpp, both serve one GGUF
file of each form, which lfactor writes, and answer the same requests over HTTP, lfactor in float32 (--precision says otherwise). Rounds
alternate; speeds are medians, prompts included. What both say is compared token by token: the share of equal answers is printed (products of
other shapes round otherwise in transformers, and llama.cpp rounds activations to the form of its weights).

With --draft, lfactor with drafts (a model's folder, or ngram) answers beside lfactor without, which has to say the same: conversations that
ask to repeat a text with a change, as edits of code and summaries do, so that drafts have something to find.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import time
import urllib.request

import smollm2
from rows import row


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
    p.add_argument("--llama", help="a Python that has xllamacpp, in place of transformers")
    p.add_argument("--busy", action="store_true", help="with --llama: speeds of a second of processor time, for a machine that others use; with --threads 1, "
                   "since llama.cpp's threads turn while they wait for each other")
    p.add_argument("--draft", help="lfactor with these drafts beside lfactor without")
    p.add_argument("--forms", default="f32,f16,q8_0", help="of the GGUF files")
    args = p.parse_args()
    if args.busy and not args.llama:
        p.error("--busy goes with --llama")
    args.work.mkdir(parents=True, exist_ok=True)
    folder = smollm2.model_folder(args.work, args.wheel)
    if args.draft:
        with served(args, folder, "--draft", args.draft) as ours, served(args, folder) as plain:
            drafted(args, ours[0], plain[0])
        return
    if not args.llama:
        with served(args, folder) as (url, _):
            measure(args, folder, url)
        return
    for form in args.forms.split(","):
        file = args.work / f"model-{form}.gguf"
        file.unlink(missing_ok=True)  # another lfactor may have written it
        subprocess.run([args.lfactor, "ckpt", "convert", str(folder), str(file), "--dtype", form], check=True, stdout=subprocess.DEVNULL)
        with served(args, file) as ours, llama(args, file) as theirs:
            beside(args, form, ours, theirs)


@contextlib.contextmanager
def served(args, model, *flags):
    server = subprocess.Popen([args.lfactor, "serve", str(model), "--port", "0", "-o", "json", "--precision", args.precision, "--name", "model", *flags],
                              stdout=subprocess.PIPE, text=True, env=dict(os.environ, GOMAXPROCS=str(args.threads)))
    try:
        yield json.loads(server.stdout.readline())["url"], server.pid
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def llama(args, file):
    most = max(map(int, args.requests.split(",")))
    script = pathlib.Path(__file__).parent / "serve_llama.py"
    server = subprocess.Popen([args.llama, str(script), str(file), "--threads", str(args.threads), "--requests", str(most), "--tokens",
                               str(args.prompt + args.new + 16)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for line in server.stdout:
            if line.startswith("{"):
                yield json.loads(line)["url"], server.pid
                break
    finally:
        server.stdin.close()
        server.wait()


def post(url, body):
    r = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r) as f:
        return json.load(f)


def ask(url, ids, new):
    return post(url + "/completions", {"model": "model", "prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True,
                                       "return_token_ids": True})["choices"][0]["token_ids"]


def ask_llama(url, ids, new):
    return post(url + "/completion", {"prompt": ids, "n_predict": new, "temperature": 0, "top_k": 1, "ignore_eos": True, "cache_prompt": False,
                                      "return_tokens": True})["tokens"]


def drawn(args, n, k):
    """The prompts of a round of n requests."""
    r = random.Random(100 * n + k)
    return [[r.randrange(1000, 40000) for _ in range(args.prompt)] for _ in range(n)]


def clock(args, pid):
    """Seconds: of the processor in a process, or of the wall."""
    if not args.busy:
        return time.perf_counter()
    with open(f"/proc/{pid}/stat") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def timed(args, say, url, prompts, pid=None):
    """The answers to prompts that are asked at once, and tokens a second."""
    began = clock(args, pid)
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        said = list(pool.map(lambda ids: say(url, ids, args.new), prompts))
    return said, len(prompts) * args.new / (clock(args, pid) - began)


def beside(args, form, ours, theirs):
    """lfactor and llama.cpp by turns."""
    ask(ours[0], [1, 2, 3], 2)
    ask_llama(theirs[0], [1, 2, 3], 2)
    for n in map(int, args.requests.split(",")):
        speeds, same = {"lfactor": [], "llama.cpp": []}, []
        for k in range(args.rounds):
            prompts = drawn(args, n, k)
            turns = [("lfactor", ask, *ours), ("llama.cpp", ask_llama, *theirs)]
            said = {}
            for name, say, url, pid in turns if k % 2 == 0 else turns[::-1]:
                said[name], speed = timed(args, say, url, prompts, pid)
                speeds[name].append(speed)
            same += [a == b for a, b in zip(said["lfactor"], said["llama.cpp"])]
        row(f"serve {form}, {n} requests, {args.threads} threads", speeds["lfactor"], {"llama.cpp": speeds["llama.cpp"]})
        print(json.dumps({"form": form, "requests": n} | {name: round(statistics.median(v), 1) for name, v in speeds.items()} |
                         {"ratio": round(statistics.median(a / b for a, b in zip(*speeds.values())), 2), "same": round(sum(same) / len(same), 2)}), flush=True)


def drafted(args, ours, plain):
    """lfactor with drafts and without, by turns: greedy answers to conversations that repeat what they were given."""

    def say(url, text, new):
        body = {"model": "model", "messages": [{"role": "user", "content": text}], "max_tokens": new, "temperature": 0}
        a = post(url + "/chat/completions", body)
        return a["choices"][0]["message"]["content"], a["usage"]["completion_tokens"]

    for n in map(int, args.requests.split(",")):
        speeds, same = {"drafts": [], "plain": []}, []
        for k in range(args.rounds):
            r = random.Random(100 * n + k)
            texts = []
            for _ in range(n):
                facts = " ".join(f"{name} lives in the {r.choice(smollm2.COLOURS)} house and drinks {r.choice(smollm2.DRINKS)}." for name in r.sample(smollm2.NAMES, 5))
                texts.append(f"Repeat this text word for word, and nothing else:\n{facts}")
            turns = [("drafts", ours), ("plain", plain)]
            said = {}
            for name, url in turns if k % 2 == 0 else turns[::-1]:
                began = time.perf_counter()
                with concurrent.futures.ThreadPoolExecutor(n) as pool:
                    said[name] = list(pool.map(lambda t: say(url, t, args.new), texts))
                speeds[name].append(sum(c for _, c in said[name]) / (time.perf_counter() - began))
            same += [a == b for a, b in zip(said["drafts"], said["plain"])]
        counts = dict(line.split() for line in urllib.request.urlopen(ours[:-3] + "/metrics").read().decode().splitlines() if line.startswith("lfactor_drafts"))
        print(json.dumps({"requests": n} | {name: round(statistics.median(v), 1) for name, v in speeds.items()} |
                         {"ratio": round(statistics.median(a / b for a, b in zip(*speeds.values())), 2), "same": sum(same) / len(same),
                          "accepted": round(int(counts["lfactor_drafts_accepted_total"]) / max(1, int(counts["lfactor_drafts_total"])), 2)}), flush=True)
    if not all(same):
        raise SystemExit("answers with drafts differ")


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
            prompts = drawn(args, n, k)
            said, speed = timed(args, ask, url, prompts)
            ours.append(speed)
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
            row(f"serve {args.precision}, {n} requests, {args.threads} threads", ours, {"transformers": theirs})
            line |= {"transformers": round(statistics.median(theirs), 1),
                     "ratio": round(statistics.median(a / b for a, b in zip(ours, theirs)), 2), "same": sum(same) / len(same)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
