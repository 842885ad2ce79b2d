"""Training steps of models of diffusion and encoding by an autoencoder, lfactor and diffusers side by side, in alternating rounds.

    python bench/diffusion.py --lfactor ./lfactor [--case dit unet vae] [--precision fp32 bf16] [--threads 1 2] [--rounds 3] [--steps 3]

dit: Wan's transformer, 12 layers of width 384, 2 samples of 256 tokens with captions of 64 rows. unet: a U-Net of SDXL's shape (64, 128, 256
channels), 2 images of 32×32 latents with captions of 77 rows. Both are trained: mean squared error of the velocity, gradient clipping at norm 1,
AdamW (fused in PyTorch), bf16 under autocast with float32 weights there. vae: Wan 2.1's encoder, 17 frames of 64×96 pixels, forward alone, in
float32. Prints, as medians over the rounds, seconds, the ratio, and peak resident memory above the state (float32 parameters, gradients and two
moments; parameters alone for vae): PyTorch's less what the process had before the model, lfactor's in full. Needs torch and diffusers 0.42.1;
lfactor needs neither.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from rows import row

DIT = dict(num_attention_heads=6, attention_head_dim=64, ffn_dim=1536, num_layers=12, in_channels=16, out_channels=16, text_dim=256, freq_dim=256, patch_size=[1, 2, 2])
UNET = dict(block_out_channels=[64, 128, 256], down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"], up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
            transformer_layers_per_block=[1, 1, 2], attention_head_dim=[1, 2, 4], layers_per_block=2, cross_attention_dim=256, in_channels=4, out_channels=4, use_linear_projection=True,
            addition_embed_type="text_time", addition_time_embed_dim=32, projection_class_embeddings_input_dim=6 * 32 + 128, norm_num_groups=32)
CASES = {
    "dit": ("WanTransformer3DModel", DIT, dict(text_rows=64), ["--seq", "256", "--batch", "2", "--recompute", "none"]),
    "unet": ("UNet2DConditionModel", UNET, {}, ["--seq", "1024", "--batch", "2", "--recompute", "none"]),
    "vae": ("AutoencoderKLWan", {}, {}, ["--size", "17x64x96"]),
}


def rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def torch_round(case, precision, threads, steps):
    import diffusers
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    kind, config, _, _ = CASES[case]
    before = rss()
    m = getattr(diffusers, kind)(**config)
    seconds = []
    if case == "vae":
        x = torch.rand(1, 3, 17, 64, 96) * 2 - 1
        with torch.no_grad():
            for _ in range(steps + 1):
                t = time.perf_counter()
                m.encode(x).latent_dist.mean.sum().item()
                seconds.append(time.perf_counter() - t)
        print(json.dumps(dict(median=statistics.median(seconds[1:]), peak_rss=rss() - before)))
        return
    m.train()
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if case == "dit":
        x, target = torch.randn(2, 2, 16, 1, 32, 32)
        text = torch.randn(2, 64, 256)
        predict = lambda: m(x, torch.tensor([500.0, 500.0]), text, return_dict=False)[0]
    else:
        x, target = torch.randn(2, 2, 4, 32, 32)
        text = torch.randn(2, 77, 256)
        added = dict(text_embeds=torch.randn(2, 128), time_ids=torch.tensor([[256.0, 256, 0, 0, 256, 256]] * 2))
        predict = lambda: m(x, torch.tensor([500.0, 500.0]), text, added_cond_kwargs=added, return_dict=False)[0]
    for _ in range(steps + 1):
        t = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = ((predict().float() - target) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - t)
    print(json.dumps(dict(median=statistics.median(seconds[1:]), peak_rss=rss() - before)))


def run(command, env=None):
    out = subprocess.run(command, capture_output=True, text=True, env=env)
    if out.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {out.returncode}\n{out.stderr[-2000:]}")
    return json.loads(out.stdout.splitlines()[-1])


def ours(a, case, precision, threads, folder):
    kind, config, own, args = CASES[case]
    if case == "vae":
        r = run([a.lfactor, "bench", "encode", "-o", "json", "--model", str(folder), "--threads", str(threads), "--times", str(a.steps)] + args)
        return dict(median=r["median"], peak_rss=r["peak_rss"], state=r["state_bytes"])
    r = run([a.lfactor, "bench", "step", "-o", "json", "--model", str(folder), "--precision", precision, "--threads", str(threads), "--steps", str(a.steps)] + args)
    return dict(median=statistics.median(r["seconds"]), peak_rss=r["peak_rss"], state=r["state_bytes"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    p.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    p.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--torch-round", nargs=4, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.torch_round:
        case, precision, threads, steps = a.torch_round
        torch_round(case, precision, int(threads), int(steps))
        return
    print(f"{'':6}{'':6}{'thr':>4}{'lfactor':>10}{'diffusers':>11}{'ratio':>7}{'MiB above the state':>26}{'ratio':>8}", flush=True)
    with tempfile.TemporaryDirectory() as d:
        for case in a.case:
            kind, config, own, _ = CASES[case]
            folder = pathlib.Path(d) / case
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(dict(_class_name=kind, **config, **own)))
            for precision in a.precision if case != "vae" else ["fp32"]:
                for threads in a.threads:
                    env = os.environ | dict(OMP_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="8000000000", MALLOC_TOP_PAD_="268435456")
                    mine, theirs = [], []
                    for _ in range(a.rounds):
                        mine.append(ours(a, case, precision, threads, folder))
                        theirs.append(run([sys.executable, __file__, "--torch-round", case, precision, str(threads), str(a.steps)], env))
                    x, y = (statistics.median(r["median"] for r in rs) for rs in (mine, theirs))
                    state = mine[0]["state"]
                    u, v = ((statistics.median(r["peak_rss"] for r in rs) - state) / 2**20 for rs in (mine, theirs))
                    print(f"{case:6}{precision:6}{threads:4}{x:9.3f}s{y:10.3f}s{y / x:7.2f}{u:13.0f}{v:13.0f}{u / v:8.2f}", flush=True)
                    row(f"diffusion {case} {precision}, {threads} threads", [r["median"] for r in mine], {"diffusers": [r["median"] for r in theirs]}, less=True,
                        memory=tuple(statistics.median(r["peak_rss"] for r in rs) for rs in (mine, theirs)))


if __name__ == "__main__":
    main()
