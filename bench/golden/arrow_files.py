"""Writes Arrow files, streams and Feather to a folder, and what pyarrow reads of them as JSON lines beside each: with and without compression,
dictionaries, lists, structs, maps, nulls, bytes and several record batches; and a folder as Hugging Face's save_to_disk writes it.

    python bench/golden/arrow_files.py [FOLDER [FILES]]     (pyarrow, and datasets if it is there; dataset/format/testdata/arrow, 8)
    LFACTOR_ARROW=FOLDER go test ./dataset/format -run TestArrow
"""

import base64
import json
import pathlib
import random
import sys

import pyarrow as pa
import pyarrow.feather

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "dataset/format/testdata/arrow"
FILES = int(sys.argv[2]) if len(sys.argv) > 2 else 8
OUT.mkdir(parents=True, exist_ok=True)
r = random.Random(2)


def text():
    return "".join(r.choice("ab cé日\"\n") for _ in range(r.choice([0, 1, 7, 60])))


def maybe(v):
    return v if r.random() < 0.8 else None


def plain(v):
    if isinstance(v, bytes):
        try:
            return v.decode()
        except UnicodeDecodeError:
            return base64.b64encode(v).decode()
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, tuple):
        return {"key": plain(v[0]), "value": plain(v[1])}
    return [plain(x) for x in v] if isinstance(v, list) else v


for k in range(FILES):
    n = r.choice([1, 3, 40, 200] if FILES <= 8 else [1, 40, 3000])
    large = r.random() < 0.3
    words = pa.array([r.choice(["x", "yy", "z"]) for _ in range(n)])
    cols = {
        "text": pa.array([text() for _ in range(n)], pa.large_string() if large else pa.string()),
        "kind": words.dictionary_encode() if r.random() < 0.5 else words,
        "id": pa.array([maybe(r.randrange(-10**12, 10**12)) for _ in range(n)]), "u8": pa.array([r.randrange(256) for _ in range(n)], pa.uint8()),
        "f": pa.array([maybe(r.randrange(1000) / 8) for _ in range(n)], r.choice([pa.float32(), pa.float64()])),
        "yes": pa.array([maybe(r.random() < 0.5) for _ in range(n)]), "none": pa.nulls(n),
        "tags": pa.array([maybe([maybe(text()) for _ in range(r.randrange(3))]) for _ in range(n)]),
        "pair": pa.array([[r.randrange(9), r.randrange(9)] for _ in range(n)], pa.list_(pa.int64(), 2)),
        "image": pa.array([maybe({"bytes": b"\xff\xd8" + bytes([r.randrange(256)]), "path": text()}) for _ in range(n)]),
        "map": pa.array([[(text(), r.randrange(5))] for _ in range(n)], pa.map_(pa.string(), pa.int64()))}
    t = pa.table(cols)
    how = r.choice(["file", "stream", "feather"])
    squeeze = r.choice([None, "lz4", "zstd"])
    path = OUT / f"{k:02d}.{'feather' if how == 'feather' else 'arrow'}"
    if how == "feather":
        pyarrow.feather.write_feather(t, str(path), compression=squeeze or "uncompressed", chunksize=r.choice([7, 1000]))
        back = pyarrow.feather.read_table(str(path))
    else:
        with (pa.ipc.new_file if how == "file" else pa.ipc.new_stream)(str(path), t.schema, options=pa.ipc.IpcWriteOptions(compression=squeeze)) as w:
            for batch in t.to_batches(max_chunksize=r.choice([7, 1000])):
                w.write_batch(batch)
        with pa.OSFile(str(path)) as f:
            back = (pa.ipc.open_file if how == "file" else pa.ipc.open_stream)(f).read_all()
    (OUT / f"{k:02d}.want").write_text("".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in back.to_pylist()))

try:
    import datasets
except ImportError:
    sys.exit("no datasets: the folder of save_to_disk is left as it is")
d = datasets.Dataset.from_dict({"text": [f"row {i} é" for i in range(25)], "n": list(range(25))})
d.save_to_disk(str(OUT / "saved"), num_shards=2)
datasets.Dataset.load_from_disk(str(OUT / "saved")).map(lambda x: {"m": x["n"] * 2})  # leaves cache-….arrow beside the data
