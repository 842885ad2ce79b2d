"""Loss curves of products in few bits and of optimizers, beside bf16 and AdamW: the tables of docs/precision.md and docs/optimizers.md.

    python bench/precision.py --lfactor ./lfactor [--dir WORK] [--part llama moe adaptive delayed muon adafactor] [--seeds 1 2 3] [--steps 300] [--threads 1]
    python bench/precision.py --lfactor ./lfactor --part speed update       # wants a machine that does nothing else

Texts and tokenizer are those of `lfactor demo`, which runs once into WORK/demo if it is not there. Every run is 300 steps of 1,024 tokens on windows
of 128, with the loss of texts held out (32 batches) behind the last; a run that has ended is not taken again, so that the script goes on where it was
stopped. Printed: a table a part, losses and what they are beside the first column. Losses do not depend on what else the machine does, nor on threads.
`speed` has the steps of the Llama of 58 M parameters of `lfactor bench step` in few bits beside bf16, by turns; `update` has what an update by Muon takes more than one by AdamW, and
peaks of memory, as measured and as `sim` and `plan` say by a description of this machine that `lfactor calibrate` makes.
Exits with 1 where eight bits in blocks end 0.5 % above bf16, or chosen by weight 0.2 %. Needs Python alone.
"""

import argparse
import concurrent.futures
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

LLAMA = """model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, intermediate_size: 192,
              vocab_size: 1024, max_position_embeddings: 512, rope_scaling: none, initializer_range: 0.03}
"""
MOE = """model:
  name: mixtral/8x7b
  init: random
  overrides: {hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, intermediate_size: 96,
              num_experts: 8, num_experts_per_tok: 2, vocab_size: 1024, max_position_embeddings: 512, initializer_range: 0.03}
"""
RUN = """data: {{kind: text, paths: [{demo}/text], valid: [{demo}/valid], tokenizer: {demo}/tokenizer, seq_len: 128}}
train: {{steps: {steps}, global_batch: 8, micro_batch: 8, seed: {seed}, precision: bf16, eval_interval: {steps}, eval_steps: 32, log_interval: 100{train}}}
optimizer: {{{optimizer}}}
schedule: {{kind: cosine, warmup_steps: 20}}
plan: {{threads: {threads}}}
checkpoint: {{dir: {dir}/checkpoints, interval: {steps}}}
log: {{dir: {dir}/run}}
"""
ADAMW = "lr: 0.002"


def low(kind, more=""):
    return f", low_precision: {kind}{more}"


# Of each part: the model, and by column what follows train and what optimizer has.
PARTS = {
    "llama": (LLAMA, {k: (low(k) if k != "bf16" else "", ADAMW) for k in
                      ("bf16", "block", "block_pow2", "mxfp8", "mxfp4", "nvfp4", "tensor", "tensor_e4m3")}),
    "moe": (MOE, {k: (low(k) if k != "bf16" else "", ADAMW) for k in ("bf16", "block", "block_pow2", "mxfp8", "nvfp4")}),
    "adaptive": (LLAMA, {"bf16": ("", ADAMW), "block, adaptive": (low("block", ", adaptive: {limit: 0.045, every: 5, stay: 20}"), ADAMW),
                         "nvfp4": (low("nvfp4"), ADAMW),
                         "nvfp4, adaptive": (low("nvfp4", ", adaptive: {limit: 0.17, every: 5, stay: 20}"), ADAMW)}),
    "moe-adaptive": (MOE, {"bf16": ("", ADAMW), "block, adaptive": (low("block", ", adaptive: {limit: 0.045, every: 5, stay: 20}"), ADAMW)}),
    "delayed": (LLAMA, {"bf16": ("", ADAMW), "delayed": (low("delayed"), ADAMW),
                        "amax_history: 16": (low("delayed", ", amax_history: 16"), ADAMW)}),
    "muon": (LLAMA, {f"{kind} {rate}": ("", f"kind: {kind}, lr: {rate}") for kind in ("adamw", "muon")
                     for rate in (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)}),
    "adafactor": (LLAMA, {"adamw 0.002": ("", ADAMW)} | {f"adafactor {rate}": ("", f"kind: adafactor, lr: {rate}") for rate in (0.02, 0.05, 0.1)}),
}
BOUNDS = {"block": 0.5, "block_pow2": 0.5, "mxfp8": 0.5, "block, adaptive": 0.2}  # percent above bf16


def held_out(lines):
    for line in reversed(lines.splitlines()):
        got = json.loads(line)
        if got["msg"] == "eval" and "loss" in got:
            return got["loss"]
    raise SystemExit("no loss of held-out texts in what the run printed")


def run(a, model, name, seed, train, optimizer):
    """The held-out loss of one run, which is taken once: equal runs of several parts are one."""
    key = "".join(c if c.isalnum() else "-" for c in name)
    d = a.dir / f"{'moe' if model is MOE else 'llama'}-{key}-{seed}-{a.steps}"
    done = d / "loss.json"
    text = model + RUN.format(demo=a.dir / "demo", steps=a.steps, seed=seed, train=train, optimizer=optimizer, threads=a.threads, dir=d)
    if done.exists():
        got = json.loads(done.read_text())
        if got["run"] == text:
            return got["loss"]
    d.mkdir(parents=True, exist_ok=True)
    (d / "run.yaml").write_text(text)
    out = subprocess.run([a.lfactor, "train", d / "run.yaml", "-o", "jsonl"], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"{d / 'run.yaml'}: rc {out.returncode}\n{out.stderr[-1500:]}")
    loss = held_out((d / "run" / "log.jsonl").read_text())
    done.write_text(json.dumps({"run": text, "loss": loss}))
    print(f"{d.name}: {loss:.4f}", file=sys.stderr, flush=True)
    return loss


def table(a, part):
    model, columns = PARTS[part]
    first = next(iter(columns))
    print(f"\n{part}\n\n| seed | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    good = True
    for seed in a.seeds:
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            losses = list(pool.map(lambda c: run(a, model, "bf16" if c[1] == ("", ADAMW) else c[0], seed, *c[1]), columns.items()))
        cells = [f"{losses[0]:.4f}"]
        for name, loss in zip(list(columns)[1:], losses[1:]):
            percent = 100 * (loss / losses[0] - 1)
            cells.append(f"{loss:.4f}, {percent:+.2f} %".replace("-", "−"))
            if percent > BOUNDS.get(name, 1e9):
                good = False
                print(f"{part}, {name}, seed {seed}: {percent:.2f} % above {first}", file=sys.stderr)
        print(f"| {seed} | " + " | ".join(cells) + " |", flush=True)
    return good


LARGE = LLAMA.replace("hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, intermediate_size: 192",
                      "hidden_size: 512, num_hidden_layers: 6, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 64, intermediate_size: 1408")
WIDE = LARGE.replace("num_hidden_layers: 6", "num_hidden_layers: 8").replace("num_key_value_heads: 4", "num_key_value_heads: 8").replace("vocab_size: 1024", "vocab_size: 32000")


def timed(a, name, train, optimizer, steps, model=LARGE, precision="bf16"):
    """The seconds of the steps behind the first of a run of the large Llama, and its peak of memory."""
    d = a.dir / f"large-{name}"
    shutil.rmtree(d, ignore_errors=True)
    d.mkdir(parents=True)
    text = model + RUN.format(demo=a.dir / "demo", steps=steps, seed=1, train=train, optimizer=optimizer, threads=1, dir=d)
    text = text.replace("precision: bf16", f"precision: {precision}").replace(f"eval_interval: {steps}, eval_steps: 32, ", "").replace("global_batch: 8", "global_batch: 16").replace(
        f"checkpoint: {{dir: {d}/checkpoints, interval: {steps}}}", f"checkpoint: {{dir: {d}/checkpoints, interval: 1000000}}")
    (d / "run.yaml").write_text(text)
    subprocess.run([a.lfactor, "train", d / "run.yaml", "-o", "jsonl"], capture_output=True, check=True)
    lines = [json.loads(line) for line in (d / "run" / "metrics.jsonl").read_text().splitlines()]
    return [m["seconds"] for m in lines[1:]], max(m["peak_bytes"] for m in lines), d / "run.yaml"


def speed(a):
    print("\nspeed\n\n| recipe | a step | of bf16's speed |\n|---|---|---|")
    kinds = ("bf16", "block_pow2", "mxfp8", "tensor", "nvfp4")
    seconds = {k: [] for k in kinds}
    for _ in range(3):
        for k in kinds:
            seconds[k] += timed(a, k, low(k) if k != "bf16" else "", ADAMW, 3, WIDE)[0]
    medians = {k: statistics.median(v) for k, v in seconds.items()}
    for k in kinds:
        print(f"| {k} | {medians[k]:.2f} s | {medians['bf16'] / medians[k]:.2f} |")
    return all(medians["bf16"] / medians[k] >= 0.8 for k in kinds)


def update(a):
    machine = a.dir / "machine.yaml"
    machine.unlink(missing_ok=True)
    subprocess.run([a.lfactor, "calibrate", machine], capture_output=True, check=True)
    got, said = {}, {}
    for kind in ("adamw", "muon"):
        runs = [timed(a, kind, "", f"kind: {kind}, lr: 0.002", 4, LARGE, "fp32") for _ in range(2)]  # calibrate measures float32
        got[kind] = statistics.median(runs[0][0] + runs[1][0]), runs[0][1]
        sim, plan = (json.loads(subprocess.run([a.lfactor, *args, "-o", "json"], capture_output=True, text=True, check=True).stdout)
                     for args in (["sim", runs[0][2], "--cluster", machine], ["plan", runs[0][2]]))
        said[kind] = sim["step_s"], max(r["worst_total_bytes"] for r in plan["ranks"])
    print("\nupdate\n\n| | measured | predicted |\n|---|---|---|")
    for kind in got:
        print(f"| a step with {kind} | {got[kind][0]:.3f} s | {said[kind][0]:.3f} s |\n| its peak of memory | {got[kind][1] / 2**20:.1f} MiB | "
              f"{said[kind][1] / 2**20:.1f} MiB |")
    more, foretold = (x["muon"][0] - x["adamw"][0] for x in (got, said))
    print(f"| what Muon takes more | {more:.3f} s, {100 * more / got['muon'][0]:.1f} % of a step | {foretold:.3f} s, "
          f"{100 * foretold / said['muon'][0]:.1f} %, {100 * (foretold / more - 1):+.1f} % |")
    return abs((foretold / said["muon"][0]) / (more / got["muon"][0]) - 1) <= 0.05  # of its share of a step


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--lfactor", required=True)
    p.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("/tmp/lfactor-precision"))
    p.add_argument("--part", nargs="+", default=["llama", "moe", "adaptive", "moe-adaptive", "delayed"], choices=[*PARTS, "speed", "update"])
    p.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--jobs", type=int, default=1, help="runs at once")
    a = p.parse_args()
    a.lfactor, a.dir = str(pathlib.Path(a.lfactor).resolve()), a.dir.resolve()
    if not (a.dir / "demo" / "text").exists():
        subprocess.run([a.lfactor, "demo", "--dir", a.dir / "demo"], check=True, stdout=subprocess.DEVNULL)
    sys.exit(0 if all([{"speed": speed, "update": update}.get(part, lambda a, part=part: table(a, part))(a) for part in a.part]) else 1)


if __name__ == "__main__":
    main()
