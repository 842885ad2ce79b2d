"""Training steps of two small mixtures of experts and of a dense model, lfactor and PyTorch + transformers side by side, in alternating rounds.

    python bench/experts.py --lfactor ./lfactor [--shape dense qwen3-30b-a3b deepseek-v3] [--precision fp32 bf16] [--threads 2] [--rounds 1]

The mixtures have the experts, the experts a token and the routing of the published models, and few narrow layers: 128 experts of which a token goes to 8;
64 experts in 8 groups with latent attention and a shared expert. Weights are random, so routing is nearly even. The reference is the best of transformers'
implementations of experts (grouped products, experts one by one), eager and compiled. Prints a row for each measurement when it is
done, then what bench/step.py prints, and for each mixture its ratio to PyTorch and its share of the floor over those of the dense model in the same run. The
floor has all weights of experts read once. Needs torch and transformers; lfactor needs neither.
"""

import argparse
import os
import pathlib
import sys
import tempfile

import rows
import step

COMMON = dict(hidden_size=512, num_attention_heads=8, vocab_size=8192, tie_word_embeddings=False, rms_norm_eps=1e-6)
SHAPES = {
    "dense": dict(family="Qwen3", seq=512, batch=4, config=COMMON | dict(num_key_value_heads=2, head_dim=64, intermediate_size=1408, num_hidden_layers=6)),
    "qwen3-30b-a3b": dict(family="Qwen3Moe", seq=512, batch=4, config=COMMON | dict(num_key_value_heads=2, head_dim=64, intermediate_size=1408, num_hidden_layers=3, num_experts=128,
                          num_experts_per_tok=8, moe_intermediate_size=192, norm_topk_prob=True)),
    "deepseek-v3": dict(family="DeepseekV3", seq=512, batch=4, config=COMMON | dict(num_key_value_heads=8, intermediate_size=1408, num_hidden_layers=4, first_k_dense_replace=1, q_lora_rank=192,
                        kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, n_routed_experts=64, num_experts_per_tok=8, n_group=8, topk_group=4, n_shared_experts=1,
                        moe_intermediate_size=192, routed_scaling_factor=2.5, num_mtp_layers=0)),
}
REFERENCES = ("eager", "compile", "grouped_mm eager", "grouped_mm compile")


def write_config(shape, where):
    import transformers

    s = SHAPES[shape]
    config = getattr(transformers, s["family"] + "Config")(**s["config"], max_position_embeddings=s["seq"], bos_token_id=None, eos_token_id=None, pad_token_id=None)
    config.save_pretrained(where)


def torch_round(shape, reference, precision, threads, steps):
    """As bench/step.py's, with an implementation of experts."""
    import transformers

    how, _, mode = reference.rpartition(" ")
    if how:
        make = transformers.PreTrainedModel._from_config.__func__
        transformers.PreTrainedModel._from_config = classmethod(lambda cls, config, **more: make(cls, config, experts_implementation=how, **more))
    step.SHAPES[shape] = SHAPES[shape] | dict(config=SHAPES[shape]["config"] | dict(bos_token_id=None, eos_token_id=None, pad_token_id=None))
    step.torch_round(shape, mode, precision, threads, steps)


def show(shape, precision, who, r, state):
    """One row as soon as it is measured: compiling takes minutes, and a run that is stopped has shown what it has."""
    print(f"{shape:15}{precision:6}{who:22}{r['tokens_per_second']:9.0f} tok/s{(r['peak_rss'] - state) / 2**20:8.0f} MiB above state", flush=True)


def measure(a, shape, precision):
    s, results, failed = SHAPES[shape], {}, set()
    env = os.environ | dict(OMP_NUM_THREADS=str(a.threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="8000000000", MALLOC_TOP_PAD_="268435456")
    for i in range(a.rounds):
        with tempfile.TemporaryDirectory() as d:
            write_config(shape, d)
            ours = step.run([a.lfactor, "bench", "step", "-o", "json", "--model", d, "--seq", str(s["seq"]), "--batch", str(s["batch"]), "--precision", precision, "--threads", str(a.threads),
                             "--steps", str(a.steps), f"--profile={d}/p"])
        results.setdefault("lfactor", []).append(ours)
        show(shape, precision, "lfactor", ours, ours["state_bytes"])
        own = [ref for ref in a.reference if shape != "dense" or " " not in ref] or ["eager"]  # a dense model has no implementations of experts
        for ref in own:
            if ref in failed:
                continue
            try:
                results.setdefault(ref, []).append(step.run([sys.executable, __file__, "--torch-round", shape, ref, precision, str(a.threads), str(a.steps)], env))
            except RuntimeError as e:
                failed.add(ref)
                print(f"no reference {ref}: {e}", file=sys.stderr, flush=True)
                continue
            show(shape, precision, ref, results[ref][-1], ours["state_bytes"])
    return results


def head():
    print(f"{'':15}{'':6}{'lfactor':>9}{'PyTorch':>9}{'':8}{'of the':>9}{'MiB above state':>20}{'':8}  best of PyTorch")
    print(f"{'':15}{'':6}{'tok/s':>9}{'tok/s':>9}{'ratio':>8}{'floor':>9}{'lfactor':>10}{'PyTorch':>10}{'ratio':>8}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--shape", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--reference", nargs="*", default=list(REFERENCES), choices=REFERENCES)
    p.add_argument("--torch-round", nargs=5, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_round:
        shape, reference, precision, threads, steps = a.torch_round
        torch_round(shape, reference, precision, int(threads), int(steps))
        return
    mib = 2**20
    for precision in a.precision:
        dense = None
        for shape in a.shape:
            results = measure(a, shape, precision)
            rate = {who: step.median(rs, lambda r: r["tokens_per_second"]) for who, rs in results.items()}
            if len(rate) == 1:
                print(f"{shape:15}{precision:6} has no reference", flush=True)
                continue
            best = max((w for w in rate if w != "lfactor"), key=rate.get)
            ours, state = results["lfactor"], results["lfactor"][0]["state_bytes"]
            floor = step.median(ours, lambda r: r["of_floor"])
            above = [(step.median(rs, lambda r: r["peak_rss"]) - state) / mib for rs in (ours, results[best])]
            ratio = rate["lfactor"] / rate[best]
            head()
            print(f"{shape:15}{precision:6}{rate['lfactor']:9.0f}{rate[best]:9.0f}{ratio:8.2f}{100 * floor:8.1f}%{above[0]:10.0f}{above[1]:10.0f}{above[0] / above[1]:8.2f}  {best}", flush=True)
            rows.row(f"pretrain {shape} {precision}, {a.threads} threads", [r["tokens_per_second"] for r in ours],
                     {w: [r["tokens_per_second"] for r in rs] for w, rs in results.items() if w != "lfactor"},
                     memory=tuple(step.median(rs, lambda r: r["peak_rss"]) for rs in (ours, results[best])), floor=floor)
            if shape == "dense":
                dense = ratio, floor
            elif dense:
                print(f"{'':15}{precision:6}over the dense model's: ratio {ratio / dense[0]:.2f}, share of the floor {floor / dense[1]:.2f}", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
