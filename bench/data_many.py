"""What `lfactor data run` holds in memory while it looks for copies among many short documents, a fifth of them copies: the largest resident set
and the CPU time for some numbers of documents, and what is left of them.

    python bench/data_many.py --lfactor ./lfactor [--documents 100000,1000000] [--memory 64MiB] [--folder FOLDER]

Ten million documents want about 20 GB of disk.
"""

import argparse
import json
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import os


def corpus(path, n):
    """Writes n documents of twelve words; each fifth is one of those before it."""
    r = random.Random(3)
    words = ["".join(r.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(20000)]
    last = []
    with open(path, "w") as f:
        for i in range(n):
            text = r.choice(last) if i % 5 == 4 else " ".join(r.choices(words, k=12))
            last = (last + [text])[-1000:] if i % 5 != 4 else last
            f.write('{"text": "%s"}\n' % text)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--documents", default="100000,1000000")
    p.add_argument("--memory", default="64MiB")
    p.add_argument("--folder", help="where the files lie (default: a temporary one)")
    a = p.parse_args()
    print(f"memory: {a.memory}\n{'documents':>10}{'left':>10}{'CPU s':>8}{'RSS MiB':>9}")
    for n in map(int, a.documents.split(",")):
        with tempfile.TemporaryDirectory(dir=a.folder) as tmp:
            corpus(tmp + "/d.jsonl", n)
            recipe = pathlib.Path(tmp, "r.yaml")
            recipe.write_text(f"output: {tmp}/out\nworkers: 2\nmemory: {a.memory}\ninputs: [{tmp}/d.jsonl]\nsteps: [minhash_dedup]\n")
            child = os.fork()
            if child == 0:
                done = subprocess.run([a.lfactor, "data", "run", str(recipe)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=tmp))
                use = resource.getrusage(resource.RUSAGE_CHILDREN)
                pathlib.Path(tmp, "use.json").write_text(json.dumps([done.returncode, use.ru_utime + use.ru_stime, use.ru_maxrss]))
                os._exit(0)
            os.waitpid(child, 0)
            code, cpu, rss = json.loads(pathlib.Path(tmp, "use.json").read_text())
            if code:
                sys.exit(f"lfactor ended with {code}")
            left = json.loads(pathlib.Path(tmp, "out", "report.json").read_text())["steps"][0]["out"]
            print(f"{n:10}{left:10}{cpu:8.1f}{rss / 1024:9.0f}", flush=True)


if __name__ == "__main__":
    main()
