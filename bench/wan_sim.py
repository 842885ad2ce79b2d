"""Where encoders of Wan 2.1 14B go: the table and the picture of docs/diffusion.md, by lfactor sim denoiser.

    python bench/wan_sim.py --lfactor ./lfactor [--devices 64,128] [--svg docs/encoders.svg]

The autoencoder's and the caption encoder's published settings are written to a temporary folder beside a run file of 81 frames of 720 by 1280
pixels; nothing is trained, and no weights or data are needed.
"""

import argparse
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

UMT5_XXL = dict(architectures=["UMT5EncoderModel"], model_type="umt5", vocab_size=256384, d_model=4096, d_kv=64, num_heads=64, d_ff=10240, num_layers=24, feed_forward_proj="gated-gelu",
                is_gated_act=True, dense_act_fn="gelu_new", relative_attention_num_buckets=32, relative_attention_max_distance=128, tie_word_embeddings=False)
RUN = """model: {name: wan/2.1-t2v-14b}
data: {kind: media, paths: [none.tar], seq_len: 75600}
diffusion: {sizes: [81x720x1280], autoencoder: vae, text_encoder: text}
train: {steps: 1, global_batch: 128, micro_batch: 1, precision: bf16}
plan: {cp: 8, zero: 2, recompute: full}
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--devices", default="64,128")
    p.add_argument("--svg")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        for name, config in (("vae", {"_class_name": "AutoencoderKLWan"}), ("text", UMT5_XXL)):
            (d / name).mkdir()
            (d / name / "config.json").write_text(json.dumps(config))
        with tarfile.open(d / "none.tar", "w") as t:  # a run file names data, which are not read
            t.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
        (d / "run.yaml").write_text(RUN)
        more = ["--svg", os.path.abspath(a.svg)] if a.svg else []
        sys.exit(subprocess.run([os.path.abspath(a.lfactor), "sim", "denoiser", "run.yaml", "--cluster", "h100", "--devices", a.devices, *more], cwd=d).returncode)


if __name__ == "__main__":
    main()
