"""Files that each format's own Python library writes beside what lfactor reads of them, document by document; and shards of MDS, Arrow and webdataset
that lfactor writes, beside what the library reads.

    python bench/formats.py --lfactor ./lfactor [--files 60]     (mosaicml-streaming, webdataset, warcio, pyarrow, zstandard)

Parquet's LZ4 and Arrow's types have scripts of their own: bench/golden/parquet_lz4.py and arrow_files.py.
"""

import argparse
import bz2
import gzip
import io
import json
import lzma
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile

import pyarrow as pa
import pyarrow.feather
import webdataset
import zstandard
from streaming import MDSWriter, StreamingDataset
from warcio.archiveiterator import ArchiveIterator
from warcio.warcwriter import WARCWriter

r = random.Random(5)


def text():
    n = r.choice([1, 5, 40, 300, 3000])
    return "".join(r.choice("abc dé日\n\"\\") for _ in range(n)).strip() or "x"


def squeeze(path, data):
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    elif path.suffix in (".gz", ".bz2", ".xz"):
        data = {".gz": gzip, ".bz2": bz2, ".xz": lzma}[path.suffix].compress(data)
    path.write_bytes(data)


def jsonl(d, k):
    path = d / f"{k:03d}.jsonl{['', '.gz', '.zst', '.bz2', '.xz'][k % 5]}"
    want = [text() for _ in range(r.randrange(1, 40))]
    squeeze(path, "".join(json.dumps({"text": t}) + "\n" for t in want).encode())
    return want


def wet(d, k):
    path, want = d / f"{k:03d}.warc.wet{['', '.gz'][k % 2]}", []
    with open(path, "wb") as f:
        w = WARCWriter(f, gzip=k % 2 == 1)
        w.write_record(w.create_warcinfo_record(path.name, {"software": "x"}))
        for i in range(r.randrange(1, 30)):
            t = text()
            w.write_record(w.create_warc_record(f"http://a/{i}", "conversion", payload=io.BytesIO(t.encode()), warc_content_type="text/plain"))
    with open(path, "rb") as f:
        want = [x.content_stream().read().decode() for x in ArchiveIterator(f) if x.rec_type == "conversion"]
    return want


def feather(d, k):
    want = [text() for _ in range(r.randrange(1, 200))]
    pyarrow.feather.write_feather(pa.table({"text": want}), str(d / f"{k:03d}.feather"), compression=["lz4", "zstd", "uncompressed"][k % 3])
    return want


def reshard(a, tmp, src, *args):
    out = tempfile.mkdtemp(dir=tmp) + "/out"
    done = subprocess.run([a.lfactor, "data", "reshard", str(src), "--to", out, *args], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return pathlib.Path(out)


def texts(folder):
    return [json.loads(line)["text"] for f in sorted(folder.glob("data-*.jsonl")) for line in open(f)]


def same(name, n, have, want):
    print(f"{name:28}{n:4} files {len(want):6} documents  {'equal' if have == want else 'DIFFERENT'}", flush=True)
    if have != want:
        sys.exit(1)


def samples(folder):
    """All samples of the shards of a folder as Python's webdataset reads them, without what it adds."""
    urls = sorted(str(p) for p in folder.glob("*.tar*") if not p.name.endswith(".idx"))
    return [{k: v for k, v in s.items() if k == "__key__" or k[0] != "_"} for s in webdataset.WebDataset(urls, shardshuffle=False, empty_check=False)]


def tars(a, tmp):
    d = pathlib.Path(tmp, "tar")
    d.mkdir()
    size, count, plain = 0, 0, pathlib.Path(tmp, "plain")
    plain.mkdir()
    for k in range(a.files):
        b = io.BytesIO()
        with tarfile.open(fileobj=b, mode="w") as t:
            for i in range(r.randrange(1, 20)):
                body = text().encode()
                info = tarfile.TarInfo(f"{k:03d}-{i:03d}.txt")
                info.size = len(body)
                t.addfile(info, io.BytesIO(body))
                size, count = size + len(body), count + 1
        squeeze(d / f"{k:03d}.tar{['', '.gz', '.zst', '.bz2', '.xz'][k % 5]}", b.getvalue())
        (plain / f"{k:03d}.tar").write_bytes(b.getvalue())
    done = subprocess.run([a.lfactor, "data", "stat", str(d / "*.tar*"), "-o", "json"], capture_output=True, text=True)
    have = json.loads(done.stdout)
    got = [have["documents"], have["units"]]
    print(f"{'tar, .gz .zst .bz2 .xz':28}{a.files:4} files {count:6} samples    {'equal' if got == [count, size] else f'DIFFERENT: {got}, want {[count, size]}'}")
    out = reshard(a, tmp, d / "*.tar*", "--as", "webdataset", "--files", str(a.files))
    same("tar by lfactor, of those", len(list(out.glob("*.tar"))), samples(out), samples(plain))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--files", type=int, default=60)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        for name, make, ext in (("JSON lines, .gz .zst .bz2 .xz", jsonl, "*.jsonl*"), ("WET of warcio, .gz", wet, "*.wet*"), ("Feather of pyarrow", feather, "*.feather")):
            d = pathlib.Path(tmp, make.__name__)
            d.mkdir()
            want = [t for k in range(a.files) for t in make(d, k)]
            same(name, a.files, texts(reshard(a, tmp, d / ext)), want)
        tars(a, tmp)
        for how in (None, "zstd:3", "gz"):
            d, want = pathlib.Path(tmp, f"mds-{how}"), [text() for _ in range(900)]
            with MDSWriter(out=str(d), columns={"text": "str", "n": "int"}, compression=how, size_limit=9000) as w:
                for i, t in enumerate(want):
                    w.write({"text": t, "n": i})
            same(f"MDS of mosaicml, {how}", len(list(d.glob("shard*"))), texts(reshard(a, tmp, d)), want)
        last = pathlib.Path(tmp, "feather", "*.feather")
        want = texts(reshard(a, tmp, last))
        out = reshard(a, tmp, last, "--as", "mds", "--documents", str(max(1, len(want) // a.files)))
        same("MDS by lfactor", len(list(out.glob("*.mds"))), [s["text"] for s in StreamingDataset(local=str(out), shuffle=False, batch_size=1)], want)
        out = reshard(a, tmp, last, "--as", "webdataset", "--files", str(a.files))
        same("tar by lfactor, of texts", len(list(out.glob("*.tar"))), [s["txt"].decode() for s in samples(out)], want)
        out = reshard(a, tmp, last, "--as", "arrow", "--documents", str(max(1, len(want) // a.files)))
        files = sorted(out.glob("*.arrow"))
        same("Arrow by lfactor", len(files), [t for f in files for t in pyarrow.feather.read_table(str(f))["text"].to_pylist()], want)


if __name__ == "__main__":
    main()
