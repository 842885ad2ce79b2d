"""Write tar shards by Python's webdataset and tarfile, and what webdataset reads from them and from a shard that
lfactor wrote, for the tests of dataset/format: dataset/format/testdata/webdataset/*.

Run: go test ./dataset/format -run TestShardBytes -rewrite && python bench/golden/webdataset_shards.py
Needs webdataset 1.0.2.
"""
import gzip
import hashlib
import io
import json
import pathlib
import tarfile

import webdataset as wds

OUT = pathlib.Path(__file__).parents[2] / "dataset/format/testdata/webdataset"


def by_webdataset(shard, first):
    with wds.TarWriter(str(OUT / f"python-{shard:06d}.tar"), mtime=0) as w:
        for i in range(first, first + 5):
            w.write({"__key__": f"a.b/{i:05d}", "jpg": bytes([i]) * (i * 509 % 1500), "json": {"i": i, "t": "ä" * i}, "0.txt": f"text {i}"})


def by_tarfile(name, form):
    with tarfile.open(OUT / name, "w", format=form) as t:
        def put(name, data=b"x", kind=tarfile.REGTYPE):
            h = tarfile.TarInfo(name)
            h.type, h.size = kind, len(data) if kind == tarfile.REGTYPE else 0
            t.addfile(h, io.BytesIO(data))
        put("__meta__/one.json")
        put("__info__")
        put("dir", kind=tarfile.DIRTYPE)
        put("dir/a.JPG", b"upper")
        put("dir/a.seg.png", b"two dots")
        put("dir/README")
        put("dir/a.txt", b"after a file without extension")
        put("./b.txt", b"dot slash")
        put("dir/.hidden.txt", b"hidden")
        put("dir/__meta__/c.txt", b"only the start of a name is meta")
        put("dir/a.txt", b"again, a sample of its own")
        put("lang/" + "x" * 150 + "/" + "y" * 120 + ".txt", b"long name")
        put("größe/日本.txt", "Größe".encode())
        put("empty.bin", b"")
        put("d.", b"empty extension")
        put("__x__.txt", b"no meta: the name goes on")


def read(name):
    out = []
    for s in wds.WebDataset(str(OUT / name), shardshuffle=False):
        out.append({"key": s["__key__"], "parts": {k: hashlib.sha256(v).hexdigest()[:16] for k, v in s.items() if not k.startswith("__")}})
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    by_webdataset(0, 0)
    by_webdataset(1, 5)
    by_tarfile("pax.tar", tarfile.PAX_FORMAT)
    by_tarfile("gnu.tar", tarfile.GNU_FORMAT)
    (OUT / "pax.tar.gz").write_bytes(gzip.compress((OUT / "pax.tar").read_bytes(), mtime=0))
    names = ["python-{000000..000001}.tar", "pax.tar", "gnu.tar", "pax.tar.gz", "lfactor.tar"]
    (OUT / "read.json").write_text(json.dumps({n: read(n) for n in names}, indent=1, ensure_ascii=False) + "\n")


main()
