"""Slow and hostile clients beside honest ones: what 500 connections that send a byte now and then cost 64 clients of lfactor serve.

    python bench/serve_flood.py --lfactor ./lfactor --model DIR [--seconds 20] [--clients 64] [--slow 500] [--rounds 3]

By turns: 64 clients ask for short answers, alone and beside the others, which open connections, say that a megabyte will come, and send a byte a
second (some of the body, some of the headers). Garbage, wrong types and oversized bodies are sent too, and each must be answered with an error in
OpenAI's form. Printed: answers a second and p50, p99 of both, the median over rounds, and their ratio. Nothing but Python's library is needed.
"""

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import threading
import time
import urllib.parse

BAD = [b"{", b"[]", b'{"model": 3}', b'{"model": "m", "prompt": {"a": 1}}', b'{"model": "m", "prompt": "x", "max_tokens": "many"}',
       b'{"model": "m", "prompt": "x", "temperature": -1}', b'{"model": "m", "prompt": "x", "nonsense": 1}', b'\xff\xfe', b'{"model": "m", "prompt": ' + b'"a"' * 9,
       b'{"model": "m", "prompt": "x", "guided_json": {"type": "string", "maxLength": 99999999}}']


def honest(host, port, end, times):
    c = http.client.HTTPConnection(host, port, timeout=120)
    body = json.dumps({"model": "m", "prompt": "One two three", "max_tokens": 4, "temperature": 0})
    while time.monotonic() < end:
        began = time.monotonic()
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        r = c.getresponse()
        text = r.read()
        assert r.status == 200, text
        times.append(time.monotonic() - began)


def slow(host, port, stop, n):
    """A connection that never comes to its end, opened again whenever it is closed."""
    while not stop.is_set():
        try:
            s = socket.create_connection((host, port), timeout=5)
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n"
            s.sendall(head if n % 2 else head + b"\r\n{")
            while not stop.wait(1):
                s.sendall(b"a" if not n % 2 else b"X-A: b\r\n")
        except OSError:
            stop.wait(0.2)


def round_of(host, port, args, beside):
    stop, times = threading.Event(), []
    others = [threading.Thread(target=slow, args=(host, port, stop, n), daemon=True) for n in range(args.slow if beside else 0)]
    for t in others:
        t.start()
    time.sleep(2 if beside else 0.2)
    end = time.monotonic() + args.seconds
    clients = [threading.Thread(target=honest, args=(host, port, end, times)) for _ in range(args.clients)]
    for t in clients:
        t.start()
    refused = 0
    while beside and time.monotonic() < end - 1:
        c = http.client.HTTPConnection(host, port, timeout=60)
        c.request("POST", "/v1/completions", BAD[refused % len(BAD)], {"Content-Type": "application/json"})
        r = c.getresponse()
        said = json.loads(r.read())
        assert 400 <= r.status < 500 and said["error"]["message"], said
        refused += 1
        time.sleep(0.3)
    for t in clients:
        t.join()
    stop.set()
    for t in others:
        t.join(timeout=10)
    times.sort()
    return {"answers a second": len(times) / args.seconds, "p50": times[len(times) // 2], "p99": times[int(len(times) * 0.99)], "refused": refused}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--slow", type=int, default=500)
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    server = subprocess.Popen([args.lfactor, "serve", args.model, "--port", "0", "--name", "m", "-o", "json"], stdout=subprocess.PIPE, text=True)
    try:
        at = urllib.parse.urlparse(json.loads(server.stdout.readline())["url"])
        round_of(at.hostname, at.port, argparse.Namespace(**vars(args) | {"seconds": 3}), False)  # classes of microbatches are recorded
        quiet, flooded = [], []
        for _ in range(args.rounds):
            quiet.append(round_of(at.hostname, at.port, args, False))
            flooded.append(round_of(at.hostname, at.port, args, True))
    finally:
        server.terminate()
        server.wait()
    for key in ("answers a second", "p50", "p99"):
        a, b = (statistics.median(r[key] for r in rounds) for rounds in (quiet, flooded))
        print(f"{key:18} {a:8.3f} alone {b:8.3f} beside {args.slow} slow ones, ratio {b / a:.3f}")
    print("bad requests, each answered with an error:", sum(r["refused"] for r in flooded))


main()
