"""Datatrove beside `lfactor data run`, in documents a CPU second of all their processes, in one run.

    python bench/data_curate.py --lfactor ./lfactor [--documents 4000] [--rounds 3]

Wants datatrove, spacy and orjson. Both read JSON lines, take them through the same steps and write JSON lines; start-up is measured with
no documents and taken off on both sides. Deduplication is Datatrove's four stages in one process each.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

from rows import row

HERE = pathlib.Path(__file__).parent

FILTERS = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.pipeline.filters import GopherRepetitionFilter, GopherQualityFilter, C4QualityFilter, FineWebQualityFilter
src, dst = sys.argv[1:]
LocalPipelineExecutor([JsonlReader(src, glob_pattern="*.jsonl"), GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(),
                       FineWebQualityFilter(), JsonlWriter(dst + "/out", compression=None)], tasks=1, logging_dir=dst + "/logs").run()
"""

MINHASH = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.pipeline.dedup import MinhashDedupSignature, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter
src, dst = sys.argv[1:]
read = lambda: JsonlReader(src, glob_pattern="*.jsonl")
run = lambda name, steps, tasks=1: LocalPipelineExecutor(steps, tasks=tasks, workers=1, logging_dir=dst + "/logs" + name).run()
run("1", [read(), MinhashDedupSignature(dst + "/sig")])
run("2", [MinhashDedupBuckets(dst + "/sig", dst + "/buckets")], 14)
run("3", [MinhashDedupCluster(dst + "/buckets", dst + "/remove")])
run("4", [read(), MinhashDedupFilter(dst + "/remove"), JsonlWriter(dst + "/out", compression=None)])
"""

STEPS = {"filters": (FILTERS, "[gopher_repetition, gopher_quality, c4_quality, fineweb_quality]"),
         "minhash": (MINHASH, "[minhash_dedup]")}


def cpu(command):
    """CPU seconds of a command and its children, and the largest resident set in bytes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=dict(os.environ, HF_HUB_OFFLINE="1"))
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def texts(folder):
    """The texts that were written, in order."""
    out = []
    for f in sorted(pathlib.Path(folder).glob("*.jsonl")):
        if f.name != "dropped.jsonl":
            out += [json.loads(line)["text"] for line in open(f)]
    return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--documents", type=int, default=4000)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    spec = importlib.util.spec_from_file_location("curate", HERE / "golden" / "curate.py")
    golden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden)
    with tempfile.TemporaryDirectory() as tmp:
        for name, n in (("none", 1), ("all", a.documents)):
            os.mkdir(f"{tmp}/{name}")
            with open(f"{tmp}/{name}/d.jsonl", "w") as f:
                for t in filter(str.strip, golden.documents(n)):  # Datatrove does not read empty ones
                    f.write(json.dumps({"text": t}) + "\n")
        size = os.path.getsize(f"{tmp}/all/d.jsonl")
        print(f"{a.documents} documents, {size / 1e6:.1f} MB; documents a CPU second, median of {a.rounds} rounds")
        print(f"{'':12}{'lfactor':>10}{'datatrove':>12}{'ratio':>8}")

        def ours(steps, src):
            shutil.rmtree(f"{tmp}/ours", ignore_errors=True)
            with open(f"{tmp}/r.yaml", "w") as f:
                f.write(f"output: {tmp}/ours\nworkers: 1\ninputs: [{tmp}/{src}/d.jsonl]\nsteps: {steps}\n")
            return cpu([a.lfactor, "data", "run", f"{tmp}/r.yaml"])

        def theirs(code, src):
            shutil.rmtree(f"{tmp}/theirs", ignore_errors=True)
            return cpu([sys.executable, "-c", code, f"{tmp}/{src}", f"{tmp}/theirs"])

        for name, (code, steps) in STEPS.items():
            rates = []
            for _ in range(a.rounds):
                x = ours(steps, "all") - ours(steps, "none")
                ours(steps, "all")
                y = theirs(code, "all")
                if (have := texts(f"{tmp}/ours")) != (want := texts(f"{tmp}/theirs/out")):
                    sys.exit(f"{name}: {len(have)} documents are left, want the {len(want)} of Datatrove")
                y -= theirs(code, "none")
                rates.append((a.documents / x, a.documents / y))
            x, y = (statistics.median(r[i] for r in rates) for i in (0, 1))
            row(f"curate {name}, CPU", [r[0] for r in rates], {"datatrove": [r[1] for r in rates]})
            print(f"{name:12}{x:10.0f}{y:12.0f}{statistics.median(r[0] / r[1] for r in rates):8.1f}", flush=True)


if __name__ == "__main__":
    main()
