"""What PyTorch reaches on this machine's GPU: the peer of bench/gpu.sh.

    python bench/gpu_torch.py

Prints, as medians of 20: the rate of a copy, the products of Qwen3-0.6B's layers for 16384 tokens in bf16, and a training step of that
shape (4 sequences of 4096 tokens, bf16 weights, SDPA, fused AdamW, clipping at 1), eager and compiled, with peak memory.
"""

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


def say(what, **values):
    print(json.dumps({"what": what, **values}), flush=True)


def steps():
    import transformers

    for mode in ("eager", "compile"):
        torch.manual_seed(1)
        config = transformers.Qwen3Config(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                                          head_dim=128, vocab_size=151936, tie_word_embeddings=True, rms_norm_eps=1e-6, max_position_embeddings=4096)
        model = transformers.Qwen3ForCausalLM._from_config(config, attn_implementation="sdpa").to("cuda", torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        ids, targets = torch.randint(0, config.vocab_size, (2, 4, 4096), device="cuda")

        def loss_of(ids, targets):
            return torch.nn.functional.cross_entropy(model(ids, use_cache=False).logits.flatten(0, 1).float(), targets.flatten())

        f = torch.compile(loss_of) if mode == "compile" else loss_of

        def step():
            f(ids, targets).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        torch.cuda.reset_peak_memory_stats()
        seconds = timed(step, 5)
        say(f"step {mode}", seconds=seconds, tokens_per_second=4 * 4096 / seconds, peak_bytes=torch.cuda.max_memory_allocated())
        del model, optimizer
        torch.cuda.empty_cache()


if __name__ == "__main__":
    say("versions", torch=torch.__version__, cuda=torch.version.cuda, device=torch.cuda.get_device_name())
    x = torch.empty(256 << 20, dtype=torch.bfloat16, device="cuda")
    y = torch.empty_like(x)
    say("copy", gb_per_second=2 * x.nbytes / timed(lambda: y.copy_(x)) / 1e9)
    for n, k in [(2048, 1024), (1024, 1024), (1024, 2048), (3072, 1024), (1024, 3072)]:
        a, w = torch.randn(16384, k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        say(f"product bf16/{n}x{k}", gflop_per_second=2 * 16384 * n * k / timed(lambda: torch.nn.functional.linear(a, w)) / 1e9)
    steps()
