"""Writes Parquet files compressed with LZ4 to a folder, and what pyarrow reads of them as JSON lines beside each: pages of both versions, with and
without dictionaries, of many sizes, with lists, structs and nulls.

    python bench/golden/parquet_lz4.py [FOLDER [FILES]]     (pyarrow; the default is dataset/format/testdata/lz4, 6)
    LFACTOR_LZ4=FOLDER go test ./dataset/format -run ParquetLZ4
"""

import json
import pathlib
import random
import string
import sys

import pyarrow
import pyarrow.parquet

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "dataset/format/testdata/lz4"
FILES = int(sys.argv[2]) if len(sys.argv) > 2 else 6
SIZES = [1, 3, 50, 700, 5000] if FILES > 6 else [1, 3, 50, 120]
OUT.mkdir(parents=True, exist_ok=True)
r = random.Random(1)


def text():
    n = r.choice([0, 1, 5, 40, 300])
    if r.random() < 0.5:
        return "".join(r.choice(string.printable + "é日") for _ in range(n))
    return (r.choice(["ab", "hello "]) * n)[:n]


for k in range(FILES):
    n = r.choice(SIZES)
    table = pyarrow.table({
        "text": [text() for _ in range(n)], "id": [r.randrange(10**9) for _ in range(n)],
        "f": [r.random() if r.random() < 0.8 else None for _ in range(n)], "tags": [[text() for _ in range(r.randrange(3))] for _ in range(n)],
        "s": [{"a": r.randrange(5), "b": text()} for _ in range(n)]})
    pyarrow.parquet.write_table(
        table, OUT / f"{k:02d}.parquet", compression="lz4", use_dictionary=r.random() < 0.5, data_page_version=r.choice(["1.0", "2.0"]),
        row_group_size=r.choice([10, 1000, 10000]), data_page_size=r.choice([100, 10000, 1 << 20]), write_page_checksum=r.random() < 0.3)
    rows = pyarrow.parquet.read_table(OUT / f"{k:02d}.parquet").to_pylist()
    (OUT / f"{k:02d}.want").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
