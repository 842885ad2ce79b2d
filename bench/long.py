"""Long sequences, lfactor and PyTorch side by side: attention, the gated delta rule, and steps of two small models over 32,768 tokens.

    python bench/long.py --lfactor ./lfactor [--part kernels steps sparse] [--precision fp32 bf16] [--threads 2] [--tokens 4096 16384 65536] [--length 32768]
                         [--shape qwen3 qwen3.5]

kernels: causal attention of one head of width 128 against scaled_dot_product_attention (the best backend that it finds), and the gated delta rule with two key
heads and four value heads of width 128 against transformers' PyTorch implementation, eager and with --compile compiled: forward and backward together. The delta rule of
PyTorch is measured up to 16,384 tokens. steps: a small Qwen3, and a small Qwen3.5 of three layers with the delta rule to one of attention, one sequence a
step; lfactor with full recompute, with what attention and products made kept beside it (--keep), and Qwen3 in chunks of 4,096 tokens; PyTorch with gradient
checkpointing and without. sparse: attention of DeepSeek-V3.2's shape
to 2,048 keys of each query, drawn at random, against lfactor's own attention to all keys, whose heads share the latent key as those of sparse attention do
(absorbed) or have keys of their own: seconds a head of the 1,024 queries in the middle, forward and backward together. Prints times or tokens a second, the ratio (above 1: lfactor, or sparse
attention, is faster), and peak memory of the process above what it had before the model. Needs torch and transformers; lfactor needs neither.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import tempfile
import time

import rows
import step

COMMON = dict(hidden_size=256, intermediate_size=704, num_hidden_layers=4, vocab_size=4096, head_dim=64, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
              rms_norm_eps=1e-6, bos_token_id=None, eos_token_id=None, pad_token_id=None)
# what is kept of what full recompute would make again, by way
WAYS = {"recomputed": "", "kept": "attention,self_attn.q_proj,self_attn.k_proj,self_attn.v_proj,mlp.gate_proj,mlp.up_proj"}
SHAPES = {
    "qwen3": dict(family="Qwen3", chunk=4096, config=COMMON, ways=WAYS),
    "qwen3.5": dict(config_class="Qwen3_5TextConfig", model_class="Qwen3_5ForCausalLM", chunk=0, ways={"recomputed": ""}, config=COMMON | dict(
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=64, linear_value_head_dim=64)),
}
DELTA_MOST = 16384  # tokens of PyTorch's delta rule


def config_of(shape, length):
    import transformers

    s = SHAPES[shape]
    return getattr(transformers, s.get("config_class", s.get("family", "") + "Config"))(**s["config"], max_position_embeddings=length)


def timed(f):
    times, began = [], time.perf_counter()
    while not times or time.perf_counter() - began < 1 and len(times) < 5:
        t = time.perf_counter()
        f()
        times.append(time.perf_counter() - t)
    return min(times)


def torch_kernels(precision, threads, n, what, compiling):
    """Seconds of forward and backward, by way."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    d = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    randn = lambda *shape: torch.randn(*shape, dtype=d, requires_grad=True)
    if what == "attention":
        q, k, v = (randn(1, 1, n, 128) for _ in range(3))
        ways = {"sdpa": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)}
        leaves, go = (q, k, v), torch.randn(1, 1, n, 128, dtype=d)
    else:
        from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule as rule

        q, k, v = randn(1, n, 4, 128), randn(1, n, 4, 128), randn(1, n, 4, 128)
        g, beta = (-torch.rand(1, n, 4)).requires_grad_(), torch.rand(1, n, 4, dtype=d).requires_grad_()
        run = lambda f: f(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]
        ways = {"eager": lambda: run(rule)}
        if compiling:
            compiled = torch.compile(rule)
            ways["compiled"] = lambda: run(compiled)
        leaves, go = (q, k, v, g, beta), torch.randn(1, n, 4, 128, dtype=d)
    out = {}
    for name, f in ways.items():
        both = lambda: torch.autograd.grad(f(), leaves, go)
        if name == "compiled":
            both()
        out[name] = timed(both)
    print(json.dumps(out))


def torch_step(shape, precision, threads, length, checkpointing):
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    s, config = SHAPES[shape], config_of(shape, length)
    cls = getattr(transformers, s.get("model_class", s.get("family", "") + "ForCausalLM"))
    model = cls._from_config(config, attn_implementation="sdpa").train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids, targets = torch.randint(0, config.vocab_size, (2, 1, length))
    seconds = []
    for _ in range(2):
        t = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits = model(ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
        loss.backward()
        del logits
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - t)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps(dict(tokens_per_second=length / min(seconds), peak_rss=peak)))


def environment(threads):
    return os.environ | dict(OMP_NUM_THREADS=str(threads))


def kernels(a):
    print(f"{'':12}{'':6}{'tokens':>8}{'lfactor':>11}{'PyTorch':>11}{'ratio':>8}{'of peak':>9}", flush=True)
    for precision in a.precision:
        for n in a.tokens:
            times = step.run([a.lfactor, "bench", "kernels", "-o", "json", "--rounds", "1", "--threads", str(a.threads), "--precision", precision, "--only", f"over {n} tokens"])
            for what in ("attention", "delta rule"):
                ours = [k for k in times if k["name"].startswith(what)]
                seconds, flops = sum(k["seconds"] for k in ours), sum(k["flops"] for k in ours)
                of_peak = sum(k["of_peak"] * k["seconds"] for k in ours) / seconds
                line = f"{what:12}{precision:6}{n:8}{seconds:10.3f}s"
                if what == "attention" or n <= DELTA_MOST:
                    ways = step.run([sys.executable, __file__, "--torch-kernels", precision, str(a.threads), str(n), what, str(a.compile)], environment(a.threads))
                    best = min(ways, key=ways.get)
                    line += f"{ways[best]:10.3f}s{ways[best] / seconds:8.2f}{100 * of_peak:8.1f}%  {best}"
                else:
                    line += f"{'-':>11}{'-':>8}{100 * of_peak:8.1f}%"
                print(line, flush=True)


def sparse(a):
    heads = {"sparse attention": 128, "latent attention": 4, "latent heads": 4}  # as cmd/lfactor/bench/rates/longkernels.go has them
    names = {"latent attention": "dense, absorbed", "latent heads": "dense, keys a head"}
    print(f"{'':6}{'tokens':>8}{'sparse':>11}{'dense':>11}{'ratio':>8}", flush=True)
    for precision in a.precision:
        for n in a.sparse_tokens:
            seconds = {}
            for what in heads:
                times = [k for part in ("", " backward") for k in step.run(
                    [a.lfactor, "bench", "kernels", "-o", "json", "--rounds", "1", "--threads", str(a.threads), "--precision", precision, "--only", f"{what}{part} over {n} tokens"])]
                seconds[what] = sum(k["seconds"] for k in times if k["name"].startswith(what)) / heads[what]
            for what, name in names.items():
                print(f"{precision:6}{n:8}{seconds['sparse attention']:10.3f}s{seconds[what]:10.3f}s{seconds[what] / seconds['sparse attention']:8.2f}  {name}", flush=True)


def steps(a):
    mib = 2**20
    print(f"{'':12}{'':6}{'tokens':>8}{'lfactor':>11}{'PyTorch':>11}{'ratio':>8}{'MiB lfactor':>13}{'PyTorch':>9}{'ratio':>8}", flush=True)
    for precision in a.precision:
        for shape in a.shape:
            s, ours, theirs = SHAPES[shape], {}, {}
            with tempfile.TemporaryDirectory() as d:
                config_of(shape, a.length).save_pretrained(d)
                for way, keep in s["ways"].items():
                    ours[way] = step.run([a.lfactor, "bench", "step", "-o", "json", "--model", d, "--seq", str(a.length), "--batch", "1", "--precision", precision, "--threads", str(a.threads),
                                          "--steps", "1", "--recompute", "full", "--chunk", str(min(s["chunk"], a.length))] + (["--keep", keep] if keep else []))
            for how in ("plain", "checkpointing"):
                try:
                    theirs[how] = step.run([sys.executable, __file__, "--torch-step", shape, precision, str(a.threads), str(a.length), how], environment(a.threads))
                except RuntimeError as e:
                    print(f"no reference {how}: {e}", file=sys.stderr, flush=True)
            for way, o in ours.items():
                for how, t in theirs.items():
                    print(f"{shape:12}{precision:6}{a.length:8}{o['tokens_per_second']:11.0f}{t['tokens_per_second']:11.0f}{o['tokens_per_second'] / t['tokens_per_second']:8.2f}"
                          f"{o['peak_rss'] / mib:13.0f}{t['peak_rss'] / mib:9.0f}{o['peak_rss'] / t['peak_rss']:8.2f}  {way}; {how}", flush=True)
            if theirs:
                best = max(ours, key=lambda w: ours[w]["tokens_per_second"])
                peer = max(theirs, key=lambda w: theirs[w]["tokens_per_second"])
                rows.row(f"long {shape} {precision} {a.length} tokens, {a.threads} threads", [ours[best]["tokens_per_second"]], {f"PyTorch, {peer}": [theirs[peer]["tokens_per_second"]]},
                         memory=(ours[best]["peak_rss"], theirs[peer]["peak_rss"]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--part", nargs="+", default=["kernels", "steps"], choices=["kernels", "steps", "sparse"])
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", nargs="+", type=int, default=[4096, 16384, 65536], choices=[4096, 16384, 65536])
    p.add_argument("--sparse-tokens", nargs="+", type=int, default=[4096, 32768], choices=[4096, 32768])
    p.add_argument("--length", type=int, default=32768)
    p.add_argument("--shape", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    p.add_argument("--compile", action="store_true", help="PyTorch's delta rule compiled too: some minutes for each number of tokens")
    p.add_argument("--torch-kernels", nargs=5, help=argparse.SUPPRESS)
    p.add_argument("--torch-step", nargs=5, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_kernels:
        precision, threads, n, what, compiling = a.torch_kernels
        torch_kernels(precision, int(threads), int(n), what, compiling == "True")
    elif a.torch_step:
        shape, precision, threads, length, how = a.torch_step
        torch_step(shape, precision, int(threads), int(length), how == "checkpointing")
    else:
        for part in a.part:
            globals()[part](a)


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
