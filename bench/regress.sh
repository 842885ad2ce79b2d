#!/usr/bin/env bash
# Holds a new lfactor to an old one by turns before a release: bench/regress.sh OLD NEW [ROUNDS]
#
# Each row is a command of both binaries, run in a fresh folder by turns; of the rounds (5) the median of the ratios counts.
# The exit is 1 where the new one takes longer than 1/0.97 of the old one's time or more than 1.03 of its resident memory.
# Steps are timed by what lfactor prints of them, the rest by the wall. Run it with nothing else on the machine; no test and
# no CI step runs it, since a clock decides.
set -euo pipefail
old=$(realpath "$1") new=$(realpath "$2")
exec python3 - "$old" "$new" "${3:-5}" <<'PY'
import json, os, statistics, subprocess, sys, tempfile, time

old, new, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
TIME, RESIDENT = 1 / 0.97, 1.03
STEP = "bench step -o json --numpy= --hidden 256 --intermediate 704 --vocab 8000 --layers 4 --steps 6 --threads 2"
ROWS = {  # a command, and what is timed: a key of its JSON, or the wall
    "step fp32": (STEP, "median"), "step bf16": (STEP + " --precision bf16", "median"),
    "step with recomputation": (STEP + " --recompute full", "median"), "step, two stages": (STEP + " --pp 2", "median"),
    "help": ("--help", None), "train a demo model": ("demo --steps 20 --dir d", None), "plan 8B on 64": ("plan run.yaml --hosts 8x8 --cluster h100", None),
}

RUN = """
model: {name: llama/3.1-8b, init: random}
data: {kind: text, paths: [.], seq_len: 4096}
train: {steps: 10, global_batch: 64, micro_batch: 1}
"""


def find(v, key):
    """The first number of a key anywhere in what was printed."""
    if isinstance(v, dict):
        if isinstance(v.get(key), (int, float)):
            return v[key]
        v = list(v.values())
    for x in v if isinstance(v, list) else []:
        if (y := find(x, key)) is not None:
            return y


def once(binary, words, key):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as out:
        with open(folder + "/run.yaml", "w") as f:
            f.write(RUN)
        began = time.perf_counter()
        p = subprocess.Popen([binary, *words.split()], cwd=folder, stdout=out, stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=folder))
        _, status, used = os.wait4(p.pid, 0)
        took = time.perf_counter() - began
        if status:
            raise RuntimeError(f"{binary} {words} ended with {os.waitstatus_to_exitcode(status)}")
        if key:
            out.seek(0)
            took = find(json.loads(out.read()), key)
        return took, used.ru_maxrss / 1024


failed = 0
print(f"{'':26}{'time, new/old':>16}{'resident':>12}{'old':>12}{'MB':>8}")
for name, (words, key) in ROWS.items():
    try:
        pairs = []
        for k in range(rounds):
            turn = [once(b, words, key) for b in ((old, new) if k % 2 == 0 else (new, old))]
            pairs.append(turn if k % 2 == 0 else turn[::-1])
    except (RuntimeError, ValueError, TypeError) as e:
        print(f"{name:26}not run: {e}")
        failed = 1
        continue
    t, m = (statistics.median(b[i] / a[i] for a, b in pairs) for i in (0, 1))
    bad = t > TIME or m > RESIDENT
    failed |= bad
    print(f"{name:26}{t:16.3f}{m:12.3f}{statistics.median(a[0] for a, _ in pairs):12.3f}{statistics.median(a[1] for a, _ in pairs):8.0f}{'  REGRESSED' if bad else ''}", flush=True)
sys.exit(failed)
PY
