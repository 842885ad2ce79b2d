"""Encoding text, lfactor and Hugging Face's tokenizers side by side: CPU seconds of one thread, in alternating rounds.

    python bench/tokens.py [--mb 35] [--rounds 2] [--only deepseek] [tokenizer.json ...]

Without files, every tokenizer among the golden data of dataset/token is measured: they have the pre-tokenizers of the models that they are
named for, with small vocabularies. Half of the text is code (Go's own library), a quarter documentation of Python packages, a
quarter lines of many scripts. The ids must be equal. Needs Go, tokenizers and numpy.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zlib

from rows import row

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).parents[1]


def documents(folder, suffixes, size):
    out = []
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.suffix in suffixes and path.is_file():
            text = path.read_bytes().decode("utf-8", "ignore")
            for at in range(0, len(text), 8192):
                out.append(text[at : at + 8192])
                size -= len(out[-1].encode())
            if size < 0:
                break
    return out


def scripts(size):
    """Lines of the golden text in other orders, so that no two documents are alike."""
    import numpy as np

    lines = [json.loads(l) for l in gzip.open(ROOT / "dataset/token/testdata/text.jsonl.gz", "rt", encoding="utf-8")]
    lines = [l for l in lines if 0 < len(l) < 2000]
    words = [w for l in lines for w in l.split(" ")]
    rng, out = np.random.default_rng(1), []
    while size > 0:
        text = "\n".join(lines[i] for i in rng.integers(0, len(lines), 10)) + "\n" + " ".join(words[i] for i in rng.integers(0, len(words), 400))
        out.append(text)
        size -= len(text.encode())
    return out


def theirs(file, texts):
    import numpy as np
    from tokenizers import Tokenizer

    tok, texts = Tokenizer.from_file(file), [json.loads(l) for l in open(texts, encoding="utf-8")]
    start = time.process_time()
    ids = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    spent = time.process_time() - start
    crc = 0
    for i in ids:
        crc = zlib.crc32(np.array(i, "<i4").tobytes(), crc)
    print(json.dumps(dict(cpu=spent, ids=f"{crc:08x}")))


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--mb", type=float, default=35)
    args.add_argument("--rounds", type=int, default=2)
    args.add_argument("--only", default="")
    args.add_argument("--theirs", nargs=2, help=argparse.SUPPRESS)
    args.add_argument("files", nargs="*")
    a = args.parse_args()
    if a.theirs:
        return theirs(*a.theirs)
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "token.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=ROOT / "dataset/token", check=True)
        goroot = subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()
        size = a.mb * 1e6
        site = next(p for p in sys.path if p.endswith("site-packages"))
        texts = documents(goroot + "/src", {".go"}, size / 2) + documents(site, {".py", ".md", ".rst", ".txt"}, size / 4) + scripts(size / 4)
        corpus = pathlib.Path(folder, "texts.jsonl")
        corpus.write_text("".join(json.dumps(t) + "\n" for t in texts), encoding="utf-8")
        total = sum(len(t.encode()) for t in texts) / 1e6
        files = {pathlib.Path(f).parent.name or f: f for f in a.files}
        if not files:
            for f in sorted((ROOT / "dataset/token/testdata").glob("*.tokenizer.json.gz")):
                name = f.name.split(".")[0]
                files[name] = os.path.join(folder, name + ".json")
                pathlib.Path(files[name]).write_bytes(gzip.decompress(f.read_bytes()))
        print(f"{total:.1f} MB in {len(texts)} texts")
        print(f"{'tokenizer':16}{'lfactor s':>10}{'MB/s':>8}{'theirs s':>10}{'ratio':>7}  ids")
        for name, file in files.items():
            if a.only not in name:
                continue
            ours, peer, same = [], [], True
            for _ in range(a.rounds):
                run = [binary, "-test.run", "^$", "-test.bench", "BenchmarkTexts$", "-test.benchtime", "1x", "-vocabulary", file, "-texts", str(corpus)]
                out = subprocess.run(run, check=True, capture_output=True, text=True, cwd=ROOT / "dataset/token").stdout
                m = re.search(r"texts: ([\d.]+) CPU seconds, ids (\w+)", out)
                ours.append(float(m[1]))
                out = subprocess.run([sys.executable, __file__, "--theirs", file, str(corpus)], check=True, capture_output=True, text=True).stdout
                r = json.loads(out.splitlines()[-1])
                peer.append(r["cpu"])
                same = same and r["ids"] == m[2]
            us, them = min(ours), min(peer)
            row(f"tokenize {name}, CPU", ours, {"tokenizers": peer}, less=True)
            print(f"{name:16}{us:10.2f}{total / us:8.1f}{them:10.2f}{them / us:7.1f}  {'equal' if same else 'DIFFERENT'}", flush=True)


main()
