"""What PyTorch reaches on this machine's GPU: the peer of bench/gpu.sh.

    python bench/gpu_torch.py [--config CONFIG.json] [--layers N] [--batch 4] [--seq 4096] [--modes eager compile] [--parts rates steps]

Prints, as medians: the rate of a copy; the products of Llama-3.2-1B's layers for 16384 tokens in bf16; causal attention in both directions
by SDPA, operations counted as FlashAttention's authors do; and a training step of the shape that --config names (Qwen3-0.6B without one):
float32 weights under autocast to bf16, SDPA, fused AdamW, clipping at 1, eager and compiled, with peak memory. Steps take the same random
tokens as `lfactor bench step`, which keeps float32 masters too. What a step takes is by device events over all steps, and the losses show that it learns.
"""

import argparse
import json
import statistics
import time

import torch


def timed(f, n=20):
    f(), f()
    seconds = []
    for _ in range(n):
        torch.cuda.synchronize()
        t = time.perf_counter()
        f()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - t)
    return statistics.median(seconds)


def many(f, n=20):
    """Seconds of one of n calls in a row, by events: how long it takes to ask for one does not count."""
    f(), f()
    torch.cuda.synchronize()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(n):
        f()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b) / 1e3 / n


def say(what, **values):
    print(json.dumps({"what": what, **values}), flush=True)


def rates():
    x = torch.randn(256 << 20, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    say("copy", gb_per_second=2 * x.nbytes / many(lambda: y.copy_(x)) / 1e9)
    del x, y
    for n, k in [(2048, 2048), (512, 2048), (8192, 2048), (2048, 8192)]:
        a, w = torch.randn(16384, k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        say(f"product bf16/{n}x{k}", gflop_per_second=2 * 16384 * n * k / many(lambda: torch.nn.functional.linear(a, w)) / 1e9)
    for seqs, tokens, h, w in [(8, 2048, 32, 64), (8, 2048, 16, 128), (1, 16384, 16, 128)]:
        q, k, v = (torch.randn(seqs, h, tokens, w, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        flops = 2 * seqs * h * w * tokens * tokens
        f = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        do = torch.randn_like(q)
        forward = many(f)
        o = f()
        backward = many(lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True))
        say(f"attention {seqs}x{tokens}x{h}x{w}", forward_gflop_per_second=flops / forward / 1e9, backward_gflop_per_second=2.5 * flops / backward / 1e9)


def steps(a):
    import transformers

    c = dict(model_type="qwen3", hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
             vocab_size=151936, tie_word_embeddings=True, rms_norm_eps=1e-6, max_position_embeddings=4096)
    if a.config:
        c = json.load(open(a.config))
    if a.layers:
        c["num_hidden_layers"] = a.layers
    for mode in a.modes:
        torch.manual_seed(1)
        torch._dynamo.reset()
        config = transformers.AutoConfig.for_model(**c)
        with torch.device("cuda"):
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        ids, targets = torch.randint(0, config.vocab_size, (2, a.batch, a.seq), device="cuda")

        def loss_of(ids, targets):
            return torch.nn.functional.cross_entropy(model(ids, use_cache=False).logits.flatten(0, 1).float(), targets.flatten())

        f = torch.compile(loss_of) if mode == "compile" else loss_of
        losses = []

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                loss = f(ids, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())

        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        first = time.perf_counter() - began
        seconds = many(step, 6)
        say(f"step {mode}", seconds=seconds, tokens_per_second=a.batch * a.seq / seconds, peak_bytes=torch.cuda.max_memory_allocated(), first=first,
            losses=[float(x) for x in losses[:3]])
        del model, optimizer, f, loss_of
        torch.cuda.empty_cache()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--config")
    p.add_argument("--layers", type=int)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=4096)
    p.add_argument("--modes", nargs="*", default=["eager", "compile"])
    p.add_argument("--parts", nargs="*", default=["rates", "steps"])
    a = p.parse_args()
    say("versions", torch=torch.__version__, cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version(), device=torch.cuda.get_device_name())
    if "rates" in a.parts:
        rates()
    if "steps" in a.parts:
        steps(a)
