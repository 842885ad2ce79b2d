"""Reads what a run has written for trackers with their own packages, and holds it to the run's metrics.jsonl: wandb's reader of its log and its
protocol, and MLflow's store of files.

    lfactor train … log.trackers=[wandb,mlflow] && python bench/golden/trackers.py RUN-DIR

Needs wandb and mlflow-skinny.
"""

import json
import os
import pathlib
import struct
import sys
import zlib

from mlflow.store.tracking.file_store import FileStore
from wandb.proto import wandb_internal_pb2 as pb


def records(path):
    """wandb's log: the pieces of LevelDB's, checked as wandb's datastore checks them."""
    try:
        from wandb.sdk.internal.datastore import DataStore

        store = DataStore()
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            yield data
        return
    except ImportError:
        pass
    b, at, whole = path.read_bytes(), 7, b""
    assert b[:7] == b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    while at < len(b):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        crc, n, kind = struct.unpack("<IHB", b[at : at + 7])
        piece = b[at + 7 : at + 7 + n]
        assert zlib.crc32(piece, zlib.crc32(bytes([kind]))) == crc
        whole, at = whole + piece, at + 7 + n
        if kind in (1, 4):
            yield whole
            whole = b""


def main():
    run = pathlib.Path(sys.argv[1])
    want = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    seen, kinds = {}, []
    for log in sorted(run.glob("wandb/offline-run-*/*.wandb")):
        for data in records(log):
            r = pb.Record()
            r.ParseFromString(data)
            kinds.append(r.WhichOneof("record_type"))
            if kinds[-1] == "history":
                items = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in r.history.item}
                assert items["_step"] == r.history.step.num
                seen.setdefault(r.history.step.num, {}).update(items)
            elif kinds[-1] == "run":
                assert {i.key: json.loads(i.value_json) for i in r.run.config.update}["train.steps"] and r.run.run_id in log.name
    assert kinds[:2] == ["header", "run"] and kinds[-1] == "exit", kinds
    for m in want:
        assert seen[m["step"]]["train/loss"] == m["loss"] and seen[m["step"]]["train/lr"] == m["lr"], m
    print(f"wandb: {len(kinds)} records, {len(seen)} steps")
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    store = FileStore(str(run / "mlruns"))
    (experiment,) = [e for e in store.search_experiments()]
    (one,) = store.search_runs([experiment.experiment_id], "", 1)
    history = {m.step: m.value for m in store.get_metric_history(one.info.run_id, "train/loss")}
    for m in want:
        assert history[m["step"]] == m["loss"], m
    assert one.data.params["train.steps"] and one.info.status == "FINISHED", one.info
    print(f"mlflow: experiment {experiment.name}, run {one.info.run_name}, {len(history)} steps, {len(one.data.params)} settings")


if __name__ == "__main__":
    main()
