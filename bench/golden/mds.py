"""Writes data sets in Mosaic's MDS form to dataset/format/testdata/mds, in several shards, plain and compressed, with what is in them; with
--read DIR it prints what Mosaic's library reads of a data set as JSON lines.

    python bench/golden/mds.py [--read DIR]     (mosaicml-streaming 0.13)
"""

import json
import pathlib
import shutil
import sys
import tempfile

from streaming import MDSWriter, StreamingDataset

OUT = pathlib.Path(__file__).parents[2] / "dataset/format/testdata/mds"
COLUMNS = {"text": "str", "id": "int", "score": "float32", "small": "uint8", "meta": "json", "raw": "bytes"}


def samples():
    for i in range(60):
        yield {"text": "text %d ü日本\n\"q\" %s" % (i, "x" * (i * 7 % 90)), "id": i * 10**10 - 5, "score": i / 4, "small": i, "meta": {"k": [i, "v"]},
               "raw": bytes([i]) * i}


def main():
    if sys.argv[1:2] == ["--read"]:
        for s in StreamingDataset(local=sys.argv[2], shuffle=False, batch_size=1):
            print(json.dumps({k: v for k, v in s.items() if not isinstance(v, bytes)}, ensure_ascii=False))
        return
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for name, squeeze in (("plain", None), ("zstd", "zstd:3"), ("gz", "gz")):
        with tempfile.TemporaryDirectory() as tmp:
            with MDSWriter(out=tmp + "/x", columns=COLUMNS, compression=squeeze, size_limit=3000, hashes=["sha1"]) as w:
                for s in samples():
                    w.write(s)
            shutil.copytree(tmp + "/x", OUT / name)
    rows = [{k: v for k, v in s.items() if k != "raw"} for s in samples()]
    (OUT / "want.json").write_text(json.dumps(rows, ensure_ascii=False, indent=0))


if __name__ == "__main__":
    main()
