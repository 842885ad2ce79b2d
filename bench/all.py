"""Every task beside its peer in one table: runs the scripts of this folder by turns and prints a row for each comparison, in Markdown.

    python bench/all.py --lfactor ./lfactor [--only pretrain tuning …] [--rounds 3] [--quick] [--model SMOLLM2] [--out rows.jsonl]

Each script runs lfactor and the peers that a user would take in alternating rounds; of several peers the fastest counts. A ratio above 1 says that lfactor is faster; behind it stands the
95 % interval over the rounds. Memory is the whole process's peak, lfactor's over the peer's; floor is the share of what the machine could do by its measured peaks. A task whose
packages or models are missing is listed with the reason. --quick takes one size, precision and number of threads of each. --model is SmolLM2-135M as bench/smollm2.py prepares it, for
decoding, serving and QLoRA. Held to AVX2: LFACTOR_CPU=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell around it.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from rows import interval

HERE = pathlib.Path(__file__).parent
# by task: what the goal of its ratio is, and the command's words; {l} is lfactor, {m} the model, {w} a scratch folder, {r} rounds
TASKS = {
    "pretrain": (1.25, "step.py --lfactor {l} --rounds {r}", "--threads 2"),
    "experts": (1.25, "experts.py --lfactor {l} --rounds {r}", "--shape dense qwen3-30b-a3b --precision fp32"),
    "long": (1.25, "long.py --lfactor {l} --part steps", "--precision fp32 --length 8192"),
    "tuning": (1.25, "tuning.py --lfactor {l} --rounds {r}", ""),
    "qlora": (1.5, "qlora.py --lfactor {l} --model {m} --work {w}/qlora", "--steps 6"),
    "diffusion": (1.25, "diffusion.py --lfactor {l} --rounds {r}", "--precision fp32 --threads 2"),
    "policy": (1.25, "policy.py {l}", ""),
    "decode": (1.0, "sample.py --lfactor {l} --model {m} --rounds {r}", "--threads 2 --tokens 64"),
    "serve": (1.0, "serve.py --lfactor {l} --rounds {r}", "--new 24"),
    "tokenize": (1.0, "tokens.py --rounds {r}", "--mb 8"),
    "ingest": (1.25, "data.py --lfactor {l} --rounds {r} --memory 0 --decode", "--samples 900"),
    "curate": (1.25, "data_curate.py --lfactor {l} --rounds {r}", "--documents 1500"),
    "convert": (0.9, "convert.py --lfactor {l} --dir {w} --kills 0 --turns {r}", "--layers 4"),
}
REPEATED = {"qlora", "policy"}  # one round of a script


def run(a, name, work):
    goal, words, quick = TASKS[name]
    if "{m}" in words and not a.model:
        return "--model is not given"
    words = (words + (" " + quick if a.quick else "")).format(l=a.lfactor, m=a.model, w=work, r=a.rounds).split()
    env = os.environ | dict(LFACTOR_ROWS=a.out, LFACTOR_TASK=name)
    for _ in range(a.rounds if name in REPEATED else 1):
        p = subprocess.run([sys.executable, str(HERE / words[0]), *words[1:]], cwd=HERE.parent, env=env, capture_output=True, text=True)
        print(p.stdout, file=sys.stderr, end="", flush=True)
        if p.returncode:
            said = [x for x in p.stderr.strip().splitlines() if x.strip()]
            return said[-1][:200] if said else f"exit {p.returncode}"
    return None


def table(path, missing):
    rows = {}
    for line in open(path):
        r = json.loads(line)
        rows.setdefault(r["task"], []).append(r)
    print("| task | peer | ratio, 95 % interval | goal | memory | floor |\n|---|---|---|---|---|---|")
    for task, rs in rows.items():
        ratios = [x for r in rs for x in r["ratios"]]
        within = interval(ratios)
        said = f"{statistics.median(ratios):.2f}" + (f", {within[0]:.2f} to {within[1]:.2f}" if within else "")
        goal = TASKS.get(rs[0].get("group"), (None,))[0]
        memory = f"{rs[0]['memory'][0] / rs[0]['memory'][1]:.2f}" if rs[0]["memory"] else ""
        floor = f"{100 * rs[0]['floor']:.0f} %" if rs[0]["floor"] else ""
        print(f"| {task} | {rs[0]['peer']} | {said} | {goal or ''} | {memory} | {floor} |")
    for name, why in missing.items():
        print(f"| {name} | | not measured: {why} | | | |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--only", nargs="+", default=list(TASKS), choices=list(TASKS))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--model", default="")
    p.add_argument("--out", default="bench-rows.jsonl")
    a = p.parse_args()
    a.lfactor, a.out, a.model = os.path.abspath(a.lfactor), os.path.abspath(a.out), a.model and os.path.abspath(a.model)
    open(a.out, "w").close()
    missing, began = {}, time.time()
    with tempfile.TemporaryDirectory() as work:
        for name in a.only:
            print(f"# {name}, after {(time.time() - began) / 60:.0f} min", file=sys.stderr, flush=True)
            if why := run(a, name, work):
                missing[name] = why
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}, {a.rounds} rounds, load {os.getloadavg()[0]:.1f} at the end\n")
    table(a.out, missing)


if __name__ == "__main__":
    main()
