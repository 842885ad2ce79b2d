"""Has llama.cpp itself read GGUF files that lfactor wrote, and compares the greedy text of both.

  python bench/golden/gguf_llama.py LFACTOR MODEL [--work DIR]

MODEL is a directory in Hugging Face's format. It is written as float32 and as bfloat16, and three prompts are continued by up to 48 tokens. Exits with 1 where a
text differs. Files of whole numbers are left out: llama.cpp rounds what is multiplied with them to 8 bits, so that its logits are others by design.
Needs xllamacpp (pip install xllamacpp: llama.cpp built for processors).
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import xllamacpp

PROMPTS = ("Once upon a time", "The capital of France is", "def fibonacci(n):")


def theirs(path):
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.warmup = str(path), 512, 1, False
    p.cpuparams.n_threads = os.cpu_count()
    server = xllamacpp.Server(p)
    for prompt in PROMPTS:
        answer = server.handle_completions({"prompt": prompt, "max_tokens": 48, "temperature": 0})
        yield prompt + answer["choices"][0]["text"]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("lfactor")
    a.add_argument("model")
    a.add_argument("--work", type=pathlib.Path)
    a = a.parse_args()
    same = True
    with tempfile.TemporaryDirectory(dir=a.work) as d:
        for dtype in ("f32", "bf16"):
            path = pathlib.Path(d) / f"{dtype}.gguf"
            subprocess.run([a.lfactor, "ckpt", "convert", a.model, path, "--dtype", dtype], check=True, capture_output=True)
            for prompt, text in zip(PROMPTS, theirs(path)):
                said = subprocess.run([a.lfactor, "sample", path, "--prompt", prompt, "--max", "48", "--greedy"],
                                      check=True, capture_output=True, text=True).stdout
                equal = said.rstrip("\n") == text.rstrip("\n")
                same &= equal
                print(f"{dtype} {prompt!r}: {'equal' if equal else f'llama.cpp says {text!r}, lfactor {said!r}'}", flush=True)
    sys.exit(0 if same else 1)


main()
