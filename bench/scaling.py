"""Simulates the scaling of two large trainings and prints, for docs/simulation.md, how each step's time is spent.

Llama 3.1 405B with the plan that its paper gives (arXiv:2407.21783, table 4: tp 8, pp 16, sequences of 8,192, 16 M tokens a step on
8,192 and on 16,384 H100; achieved 430 and 400 TFLOP/s a device), and Qwen2.5 72B with the tp 4, pp 8 that LoongForge ships for it on
up to 5,120 Kunlun P800, whose description (configs/clusters/p800.yaml) is an estimate: of that run no figures are published.
A share is one of the step of the rank that has most to do, as lfactor sim --explain says; what the devices of the smallest run reach
is 100 %.

Run: python bench/scaling.py --lfactor ./lfactor [--most 2048]   (devices of the largest run; all take about half an hour on one core)
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

LLAMA = """model: {name: llama/3.1-405b, init: random}
data: {paths: [none], tokenizer: none, seq_len: 8192}
train: {steps: 1, micro_batch: 1, precision: bf16}
plan: {tp: 8, pp: 16, zero: 1, sequence_parallel: true, schedule: interleaved, virtual_stages: 4, recompute: selective, layers: %s}
""" % ([1] + [2] * 62 + [1])
QWEN = """model: {name: qwen/2.5-72b, init: random}
data: {paths: [none], tokenizer: none, seq_len: 4096}
train: {steps: 1, micro_batch: 1, precision: bf16}
plan: {tp: 4, pp: 8, zero: 1, sequence_parallel: true, schedule: interleaved, virtual_stages: 2, recompute: selective}
"""
RUNS = [("Llama 3.1 405B", "h100", LLAMA, 8192, 128, [(8, 256), (32, 1024), (64, 2048), (128, 2048)], {8192: 430, 16384: 400}),
        ("Qwen2.5 72B", "p800", QWEN, 4096, 32, [(2, 64), (8, 256), (32, 1024), (160, 5120)], {})]
COLUMNS = ["arithmetic of kernels", "memory traffic of kernels", "launches of kernels", "collectives inside a pass that nothing hides",
           "waiting for other stages", "exchange of gradients and weights that nothing hides", "optimizer step"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--most", type=int, default=1 << 20)
    p.add_argument("--model", default="")
    a = p.parse_args()
    print("| model | devices | sequences a step | step | TFLOP/s a device | published | tokens/s, a device | of the smallest | kernels: arithmetic | memory | "
          "launches | collectives | bubble | gradients | optimizer |\n|" + "---|" * 15)
    for name, cluster, text, length, model, sizes, published in RUNS:
        first = None
        for dp, batch in sizes:
            if dp * model > a.most or a.model not in name:
                continue
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "run.yaml"
                file.write_text(text)
                out = subprocess.run([a.lfactor, "sim", file, "--cluster", cluster, f"plan.dp={dp}", f"train.global_batch={batch}", "--explain", "-o", "json"],
                                     capture_output=True, text=True)
            if out.returncode:
                raise SystemExit(out.stderr)
            d = json.loads(out.stdout)
            rate = batch * length / d["step_s"] / (dp * model)
            first = first or rate
            parts = {x["what"]: x["share"] for x in d["explanation"]["parts"]}
            shown = published.get(dp * model, "")
            print(f"| {name} | {dp * model} | {batch} | {d['step_s']:.2f} s | {d['step_flops'] / d['step_s'] / dp / model / 1e12:.0f} | {shown} | {rate:.1f} | "
                  f"{100 * rate / first:.1f} % | " + " | ".join(f"{100 * parts[c]:.1f} %" for c in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main()
