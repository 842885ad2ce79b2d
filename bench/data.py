"""Reading webdataset shards, lfactor and Python's webdataset side by side, in alternating rounds.

    python bench/data.py --lfactor ./lfactor [--samples 3000] [--rounds 3] [--memory 1000000] [--decode]

Makes tar shards of 384 by 384 JPEGs of about 43 KB with a JSON text each, and reads them all: as they are, and with
--decode also decoded and resized to 224 by 224. Peers: webdataset's own iteration, and webdataset behind torch's
DataLoader with 2 workers, whose processes count. Prints samples a CPU second (median over rounds) and the ratios; then how
lfactor's memory grows while it reads --memory samples. With --go, from the repository, it also prints Go's own benchmarks:
the first batch after resuming at sample 10^8, balancing over 512 ranks, and conversion. Needs numpy, pillow, webdataset and
torch; lfactor needs none.
"""

import argparse
import io
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

from rows import row

SHARDS, SIDE = 6, 384


def make(folder, samples):
    import numpy as np
    import webdataset as wds
    from PIL import Image

    rng = np.random.default_rng(1)
    sizes, images = [], []
    for _ in range(64):  # noise on a smooth ground, so that the size is that of a photograph
        ground = np.asarray(Image.fromarray(rng.integers(0, 255, (12, 12, 3), dtype=np.uint8)).resize((SIDE, SIDE), Image.BICUBIC), dtype=np.float32)
        out = io.BytesIO()
        Image.fromarray((ground + rng.normal(0, 9, ground.shape)).clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=88)
        images.append(out.getvalue())
        sizes.append(len(images[-1]))
    for s in range(SHARDS):
        with wds.TarWriter(f"{folder}/bench-{s:06d}.tar") as w:
            for i in range(s * samples // SHARDS, (s + 1) * samples // SHARDS):
                text = {"texts": [{"role": "user", "content": "<image>\nWhat is shown?"}, {"role": "assistant", "content": f"Image {i}, " + "word " * 30}], "media": "image", "name": ["0_a.jpg"]}
                w.write({"__key__": f"image_{i:07d}", "0_a.jpg": images[i % 64], "json": json.dumps(text).encode()})
    return statistics.mean(sizes)


def theirs(urls, workers, decode):
    """Runs in a process of its own, so that the CPU time of its children counts when they have ended."""
    import webdataset as wds

    def decoded(sample):
        from PIL import Image

        sample["0_a.jpg"] = Image.open(io.BytesIO(sample["0_a.jpg"])).convert("RGB").resize((224, 224), Image.BICUBIC)
        return sample

    data = wds.WebDataset(urls, shardshuffle=False)
    if decode:
        data = data.map(decoded)
    if workers:
        import torch

        data = torch.utils.data.DataLoader(data, batch_size=None, num_workers=workers)

    def cpu():
        u, c = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return u.ru_utime + u.ru_stime + c.ru_utime + c.ru_stime

    before, n = cpu(), 0
    for s in data:
        n += 1
    del data
    print(json.dumps(dict(samples=n, cpu=cpu() - before)))


def run(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--samples", type=int, default=3000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--memory", type=int, default=1_000_000)
    p.add_argument("--decode", action="store_true")
    p.add_argument("--go", action="store_true")
    p.add_argument("--theirs", nargs=3, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.theirs:
        theirs(a.theirs[0], int(a.theirs[1]), a.theirs[2] == "1")
        return
    with tempfile.TemporaryDirectory(prefix="lfactor-bench-") as folder:
        mean = make(folder, a.samples)
        urls = f"{folder}/bench-{{000000..{SHARDS - 1:06d}}}.tar"
        print(f"{a.samples} samples of {mean / 1000:.1f} KB in {SHARDS} shards; samples a CPU second, median of {a.rounds} rounds")
        print(f"{'':18}{'lfactor':>10}{'webdataset':>12}{'ratio':>8}{'+ DataLoader(2)':>18}{'ratio':>8}")
        for decode in [False, True] if a.decode else [False]:
            ours, plain, loader = [], [], []
            for _ in range(a.rounds):
                r = run([a.lfactor, "data", "bench", urls, "-o", "json", "--readers", "2"] + (["--decode", "224"] if decode else []))
                assert r["samples"] == a.samples and r["bad"] == 0, r
                ours.append(r["samples"] / (r["cpu_seconds"] + r["open_cpu_seconds"]))
                for workers, into in (0, plain), (2, loader):
                    r = run([sys.executable, __file__, "--theirs", urls, str(workers), str(int(decode))])
                    assert r["samples"] == a.samples, r
                    into.append(r["samples"] / r["cpu"])
            row(f"read shards{', decoded' if decode else ''}, CPU", ours, {"webdataset": plain, "webdataset + DataLoader": loader})
            us, one, two = map(statistics.median, (ours, plain, loader))
            print(f"{'decoded, 224²' if decode else 'raw':18}{us:>10.0f}{one:>12.0f}{us / one:>8.1f}{two:>18.0f}{us / two:>8.1f}", flush=True)
        if a.memory:
            r = run([a.lfactor, "data", "bench", urls, "-o", "json", "--readers", "2", "--samples", str(a.memory)])
            print(f"memory over {r['samples']} samples: {r['rss_bytes'] / 2**20:.0f} MiB, {r['rss_slope_mib_per_100k']:+.3f} MiB for each 100,000 after the first")
    if a.go:
        for pattern, package in ("SeekFar", "./dataset/format"), ("Convert", "./dataset/jobs"), ("Assign", "./dataset/pack"):
            out = subprocess.run(["go", "test", "-run", "none", "-bench", pattern, "-benchtime", "5x", package], check=True, capture_output=True, text=True).stdout
            print("".join(line + "\n" for line in out.splitlines() if line.startswith("Benchmark")), end="")


if __name__ == "__main__":
    main()
