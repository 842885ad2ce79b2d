"""What Megatron-Energon makes of metadatasets, for the fuzz of dataset/format (TestEnergonFuzz).

Run: python bench/energon.py FOLDER, where FOLDER has m-*.yaml. Prints one JSON object for each, in the order of their names:
{"error": ...} where Energon refuses it, else {"sets": [[share, [key, ...]], ...]} with the data sets that have samples.
Made with megatron-energon 7.4.1.
"""

import contextlib
import json
import pathlib
import sys

from megatron.energon import WorkerConfig
from megatron.energon.metadataset.loader import load_dataset
from megatron.energon.metadataset.loader_interface import DatasetBlendMode


def keys(loaded, workers):
    """The samples of a data set in their order, as Energon gives them to its only worker."""
    out = []
    built = loaded.dataset.build()
    workers.worker_activate(0)
    try:
        for sample in built:
            key = sample["__key__"] if isinstance(sample, dict) else sample.__key__
            out.append(key)
    finally:
        workers.worker_deactivate()
    return out


def read(path):
    workers = WorkerConfig(rank=0, world_size=1, num_workers=0)
    loaded = load_dataset(path).get_datasets(training=False, split_part="train", worker_config=workers)
    sets = []
    for one in loaded.datasets:
        have = keys(one, workers)
        share = {DatasetBlendMode.NONE: 1.0, DatasetBlendMode.DATASET_WEIGHT: one.weight}.get(loaded.blend_mode)
        if loaded.blend_mode == DatasetBlendMode.SAMPLE_REPETITIONS:
            share = one.repetitions * len(have)
        if have and share:
            sets.append([share, have])
    total = sum(s for s, _ in sets)
    if not total:
        raise ValueError("no samples")
    return {"sets": [[s / total, k] for s, k in sets]}


failed = {}
with contextlib.redirect_stdout(sys.stderr):  # the indexes of joins, which nested metadatasets have beside them
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.yaml")):
        for part in ("train", "val", "test"):
            cache = path.parent / f"{path.name}.cache"
            before = set(cache.glob("*"))
            try:
                load_dataset(path).prepare(split_part=part)
            except Exception as e:  # what it has begun to write would be taken for whole
                for p in set(cache.glob("*")) - before:
                    p.unlink()
                if part == "train":
                    failed[path] = f"{type(e).__name__}: {e}"[:300]

for path in sorted(pathlib.Path(sys.argv[1]).glob("m-*.yaml")):
    with contextlib.redirect_stdout(sys.stderr):
        try:
            result = read(path)
        except Exception as e:
            result = {"error": failed.get(path) or f"{type(e).__name__}: {e}"[:300]}
    print(json.dumps(result), flush=True)
