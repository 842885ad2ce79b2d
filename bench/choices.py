"""Plans that lfactor chooses where others have published theirs.

    python bench/choices.py --lfactor ./lfactor [--only 70b 405b v3 v3-fp8 235b 8b]

Five runs in bf16 with random weights, DeepSeek-V3 also in FP8 blocks, each by `lfactor plan RUN --hosts HxG --cluster C`.
Prints the number of plans, the plan that is chosen, the tokens a second and device that it is predicted to train, and the
seconds and seconds of processors that the choice took. Nothing is trained. Published figures stand beside it in
docs/simulation.md. Needs the standard library alone.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time

# model, hosts of eight devices, cluster, tokens of a sequence, sequences of a step, keys
RUNS = {
    "70b": ("llama/3.1-70b", 8, "h100", 8192, 1024, []),
    "405b": ("llama/3.1-405b", 128, "h100", 8192, 2048, []),
    "v3": ("deepseek/v3", 256, "h800", 4096, 15360, []),
    "v3-fp8": ("deepseek/v3", 256, "h800", 4096, 15360, ["train.low_precision=block"]),
    "235b": ("qwen/3-235b-a22b", 16, "h100", 4096, 1024, []),
    "8b": ("llama/3.1-8b", 8, "h100", 1 << 20, 16, []),
}


def chosen(a, name):
    model, hosts, cluster, seq, batch, keys = RUNS[name]
    with tempfile.TemporaryDirectory() as d:
        run = os.path.join(d, "run.yaml")
        with open(run, "w") as f:
            f.write(f"model: {{name: {model}, init: random}}\n"
                    f"data: {{kind: text, paths: [text], tokenizer: tokenizer, seq_len: {seq}}}\n"
                    f"train: {{steps: 10, global_batch: {batch}, micro_batch: 1, precision: bf16}}\n")
        command = [a.lfactor, "plan", run, *keys, "--hosts", f"{hosts}x8", "--cluster", cluster]
        before, t = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        out = subprocess.run(command, capture_output=True, text=True)
        wall, after = time.monotonic() - t, resource.getrusage(resource.RUSAGE_CHILDREN)
        if out.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit {out.returncode}\n{out.stderr[-2000:]}")
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    plans = int(re.match(r"(\d+) plans", out.stdout).group(1))
    rows = [[c.strip() for c in line.strip("│").split("│")] for line in out.stdout.splitlines() if line.startswith("│")]
    best = dict(zip(rows[0], rows[1]))
    seconds = {"s": 1, "ms": 1e-3}
    step, unit = best["STEP"].split()
    rate = seq * batch / (float(step) * seconds[unit]) / hosts / 8
    plan = ", ".join(f"{k.lower()} {best[k]}" for k in rows[0] if k not in ("STEP", "CLOSED FORM", "BUBBLE", "MEMORY", ""))
    return dict(run=name, model=model, devices=hosts * 8, plans=plans, plan=plan, step_s=float(step) * seconds[unit],
                tokens_per_second_and_device=rate, memory=best["MEMORY"], seconds=wall, processor_seconds=used)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--only", nargs="+", default=list(RUNS), choices=list(RUNS))
    p.add_argument("--json", action="store_true", help="one object a line")
    a = p.parse_args()
    for name in a.only:
        r = chosen(a, name)
        if a.json:
            print(json.dumps(r), flush=True)
            continue
        print(f"{r['run']:7} {r['plans']:7} plans, {r['tokens_per_second_and_device']:8.1f} tokens/s a device, "
              f"{r['memory']}, {r['seconds']:.0f} s, {r['processor_seconds']:.0f} s of processors: {r['plan']}", flush=True)


if __name__ == "__main__":
    main()
