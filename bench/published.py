"""Simulates published training runs and prints predicted beside measured steps, as a table for docs/simulation.md.

Rows are Korthikanti et al., arXiv:2205.05198, table 5 (A100; seconds a step with full recompute, and with sequence parallelism and
selective recompute), and Narayanan et al., arXiv:2104.04473, table 1 (A100; achieved TFLOP/s a GPU by the paper's formula for the
operations of a step). All are simulated with one description of a machine, configs/clusters/a100-2021.yaml, of which the efficiency of
products, a tile's prologue and the passes over attention's scores were chosen by these rows; bandwidths, latencies and launches are data sheets'.
Replicas' gradients are summed behind the last backward, as in Megatron-LM of that time.

Run: python bench/published.py --lfactor ./lfactor [--most 600]   (GPUs of the largest run; all take about ten minutes)
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

SEQ, VOCAB = 2048, 51200


def rows():
    for name, gpus, batch, micro, hidden, heads, layers, pp, loops, full, selective in [
            ("22B", 8, 4, 4, 6144, 64, 48, 1, 1, 1.42, 1.10), ("175B", 64, 64, 1, 12288, 96, 96, 8, 3, 18.13, 13.75),
            ("530B", 280, 280, 1, 20480, 128, 105, 35, 3, 49.05, 37.83), ("1T", 512, 512, 1, 25600, 160, 128, 64, 1, 94.42, 71.49)]:
        for recompute, sp, seconds in (("full", False, full), ("selective", True, selective)):
            yield dict(name=name, gpus=gpus, batch=batch, micro=micro, hidden=hidden, heads=heads, layers=layers, tp=8, pp=pp, loops=loops,
                       recompute=recompute, sp=sp, seconds=seconds, source="2205.05198")
    for name, hidden, heads, layers, tp, pp, gpus, batch, micro, tflops in [
            ("1.7B", 2304, 24, 24, 1, 1, 32, 512, 16, 137), ("3.6B", 3072, 32, 30, 2, 1, 64, 512, 16, 138), ("7.5B", 4096, 32, 36, 4, 1, 128, 512, 16, 142),
            ("18.4B", 6144, 48, 40, 8, 1, 256, 1024, 4, 135), ("39.1B", 8192, 64, 48, 8, 2, 512, 1536, 4, 138), ("76.1B", 10240, 80, 60, 8, 4, 1024, 1792, 2, 140),
            ("145.6B", 12288, 96, 80, 8, 8, 1536, 2304, 2, 148), ("310.1B", 16384, 128, 96, 8, 16, 1920, 2160, 1, 155),
            ("529.6B", 20480, 128, 105, 8, 35, 2520, 2520, 1, 163), ("1008B", 25600, 160, 128, 8, 64, 3072, 3072, 1, 163)]:
        work = 96 * batch * SEQ * layers * hidden**2 * (1 + SEQ / (6 * hidden) + VOCAB / (16 * layers * hidden))
        yield dict(name=name, gpus=gpus, batch=batch, micro=micro, hidden=hidden, heads=heads, layers=layers, tp=tp, pp=pp, loops=1, recompute="full", sp=False,
                   seconds=work / (tflops * 1e12 * gpus), source="2104.04473")


def simulate(lfactor, folder, r):
    """The simulated seconds of a step."""
    file = pathlib.Path(folder) / "run.yaml"
    # selective recompute of Megatron-LM is that of attention's scores, from products that are kept
    recompute = "recompute: none, recompute_tensors: [attention]" if r["recompute"] == "selective" else "recompute: full"
    schedule = "interleaved" if r["loops"] > 1 else "1f1b"
    file.write_text(f"""model:
  name: gpt2/small
  init: random
  overrides: {{hidden_size: {r['hidden']}, num_hidden_layers: {r['layers']}, num_attention_heads: {r['heads']}, num_key_value_heads: {r['heads']},
    intermediate_size: {4 * r['hidden']}, vocab_size: {VOCAB}, max_position_embeddings: {SEQ}}}
data: {{paths: [none], seq_len: {SEQ}}}
train: {{steps: 1, global_batch: {r['batch']}, micro_batch: {r['micro']}, precision: bf16}}
plan: {{pp: {r['pp']}, tp: {r['tp']}, dp: {r['gpus'] // r['tp'] // r['pp']}, {recompute}, sequence_parallel: {str(r['sp']).lower()},
  virtual_stages: {r['loops']}, schedule: {schedule}, bucket_bytes: 0}}
""")
    # Memory is that of fused attention, and none of these runs is near its device's: a rank that does not fit is no reason to stop.
    out = subprocess.run([lfactor, "sim", file, "--cluster", "a100-2021", "plan.memory=1TiB", "-o", "json"], capture_output=True, text=True)
    if not out.stdout:
        raise SystemExit(out.stderr)
    return json.loads(out.stdout)["step_s"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--most", type=int, default=1 << 20)
    a = p.parse_args()
    print("| model | source | GPUs | tp · pp · dp | recompute | measured | predicted | error |\n|---|---|---|---|---|---|---|---|")
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        for r in rows():
            if r["gpus"] > a.most:
                continue
            got = simulate(a.lfactor, folder, r)
            errors.append(got / r["seconds"] - 1)
            cut = f"{r['tp']} · {r['pp']}{'×' + str(r['loops']) if r['loops'] > 1 else ''} · {r['gpus'] // r['tp'] // r['pp']}"
            print(f"| {r['name']} | {r['source']} | {r['gpus']} | {cut} | {r['recompute']}{', sp' if r['sp'] else ''} | {r['seconds']:.2f} s | {got:.2f} s | "
                  f"{100 * errors[-1]:+.1f} % |", flush=True)
    print(f"\nMean error {100 * sum(map(abs, errors)) / len(errors):.2f} %, at most {100 * max(map(abs, errors)):.1f} %, of {len(errors)} runs.")


if __name__ == "__main__":
    main()
