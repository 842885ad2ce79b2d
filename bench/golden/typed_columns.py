"""Draws Parquet files of every type and codec (parquet_types.py), reshards each by lfactor as it is and as a file of Arrow, and holds schema and values of
what comes out to pyarrow's. Exits with 1 where one differs.

    python bench/golden/typed_columns.py LFACTOR FOLDER [FILES [SEED]]
"""

import pathlib
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

LFACTOR, DIR = sys.argv[1], pathlib.Path(sys.argv[2])
subprocess.run([sys.executable, pathlib.Path(__file__).with_name("parquet_types.py"), DIR / "in", *sys.argv[3:]], check=True)
UNREAD = {"small_decimal", "middle_decimal"}  # of 32 and 64 bits, which the library of Arrow here does not read
cells = types = 0
bad = []


def values(c):
    """Those of a column; durations and instants as numbers, since Python's are narrower."""
    return [repr(v) for v in (c.cast(pa.int64()) if pa.types.is_duration(c.type) or pa.types.is_timestamp(c.type) else c).to_pylist()]


def compare(name, source, want, keep):
    global cells, types
    shutil.rmtree(DIR / "out", ignore_errors=True)
    run = subprocess.run([LFACTOR, "data", "reshard", source, "--to", DIR / "out", "--as", "parquet", "--text-key", "string"], capture_output=True, text=True)
    if run.returncode:
        bad.append(f"{name}: {run.stderr[-300:]}")
        return
    have = pq.read_table(DIR / "out/data-00000.parquet")
    types += len(want.schema)
    if have.schema != want.schema:
        bad.append(f"{name}: {[(f, have.schema.field(f.name)) for f in want.schema if have.schema.field(f.name) != f][:3]}")
    for column in want.schema.names:
        all_values = values(want[column])
        cells += len(keep)
        if values(have[column]) != [all_values[i] for i in keep]:
            bad.append(f"{name}: {column}: other values")


for f in sorted((DIR / "in").glob("*.parquet")):
    t = pq.read_table(f)
    keep = [i for i, v in enumerate(t["string"].to_pylist()) if v is not None] if "string" in t.schema.names else []
    if not keep:
        continue
    compare(f"{f.name}", f, t, keep)
    t = t.select([n for n in t.schema.names if n not in UNREAD])
    with pa.ipc.new_file(DIR / "x.arrow", t.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=True)) as w:
        w.write_table(t)
    pq.write_table(t, DIR / "want.parquet")
    compare(f"{f.name} as Arrow", DIR / "x.arrow", pq.read_table(DIR / "want.parquet"), keep)
print(f"{types} columns, {cells} values, {len(bad)} differ", *bad[:10], sep="\n")
sys.exit(bool(bad))
