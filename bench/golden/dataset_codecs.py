"""Write dataset/format/testdata/codecs/CODEC.parquet: 40 rows by each of Parquet's codecs. Made with pyarrow."""
import pathlib

import pyarrow
import pyarrow.parquet

OUT = pathlib.Path(__file__).parents[2] / "dataset/format/testdata/codecs"
OUT.mkdir(parents=True, exist_ok=True)
table = pyarrow.table({"text": [f"row {i} " + "abc " * (i % 5) for i in range(40)]})
for codec in ("lz4", "snappy", "gzip", "brotli", "zstd", "none"):
    pyarrow.parquet.write_table(table, OUT / f"{codec}.parquet", compression=codec)
