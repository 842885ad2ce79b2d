"""Writes archives of the web with warcio to dataset/format/testdata/warc, and what warcio reads of them: small.warc.gz has pages in several
encodings, records of all types and ones that are no pages; small.warc.wet.gz has their texts as Common Crawl writes them.
codecs/lines.jsonl.bz2, .xz and codecs/shard.tar.bz2, .xz are what Python's own libraries write. docs/corpus/pages.warc.gz are pages for the recipe
of docs/data.md: prose from a seed, with copies, near copies, lists, a page of another language and one that is not there.

    python bench/golden/warc.py     (warcio 1.7)
"""

import bz2
import io
import json
import lzma
import pathlib
import random
import tarfile

from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

OUT = pathlib.Path(__file__).parents[2] / "dataset/format/testdata"
PAGES = [
    ("200 OK", "text/html; charset=utf-8", "<html><head><title>No</title><script>var x = 1;</script></head><body><h1>Stone &amp; wood</h1>"
     "<p>The <b>river</b> runs\n past   the house.</p><p>It is not far.<br>Go there.</p><table><tr><td>a</td><td>b</td></tr></table>"
     "<style>p{}</style><ul><li>one<li>two</ul></body></html>".encode()),
    ("200 OK", "text/html; charset=iso-8859-1", "<p>Caf\xe9 na\xefve \xfcber</p>".encode("latin-1")),
    ("200 OK", "text/html", '<meta charset="windows-1251"><p>Привет, мир</p>'.encode("cp1251")),
    ("200 OK", "text/plain", "Plain text,\nas it is.\n".encode()),
    ("404 Not Found", "text/html", b"<p>gone</p>"),
    ("200 OK", "text/html; charset=shift_jis", "<p>日本語の文</p>".encode("shift_jis")),
    ("200 OK", "text/html", "<p>nothing is said: é 你好</p>".encode()),
]


def write(path, records):
    with open(path, "wb") as f:
        w = WARCWriter(f, gzip=True, warc_version="1.0")
        for r in records(w):
            w.write_record(r)


def fixed(n):
    return {"WARC-Date": "2024-01-02T03:04:%02dZ" % n, "WARC-Record-ID": "<urn:uuid:00000000-0000-0000-0000-%012d>" % n}


def pages(w):
    yield w.create_warcinfo_record("small.warc.gz", {"software": "warcio"})
    for n, (status, kind, body) in enumerate(PAGES):
        url = "http://example.com/%d" % n
        yield w.create_warc_record(url, "request", payload=io.BytesIO(), warc_headers_dict=fixed(50 + n),
                                   http_headers=StatusAndHeaders("GET /%d HTTP/1.1" % n, [("Host", "example.com")], is_http_request=True))
        yield w.create_warc_record(url, "response", payload=io.BytesIO(body), warc_headers_dict=fixed(n),
                                   http_headers=StatusAndHeaders(status, [("Content-Type", kind)], protocol="HTTP/1.1"))
        yield w.create_warc_record(url, "metadata", payload=io.BytesIO(b"fetchTimeMs: 3\r\n"), warc_headers_dict=fixed(20 + n))


def corpus(w):
    """Pages of prose, which a recipe makes clean."""
    draw = random.Random(41)
    nouns = "river harbour bridge market garden letter winter window teacher engine valley library kitchen village island lantern".split()
    verbs = "crosses follows remembers carries watches finds leaves opens keeps describes".split()
    places = ["by the old mill", "behind the station", "before the first snow", "in the early morning", "near the edge of the town"]

    def prose(n):
        out = []
        for _ in range(n):
            a, b, c = draw.sample(nouns, 3)
            out.append(f"The {a} that we know {draw.choice(verbs)} the {b} {draw.choice(places)}, and with it the {c} will be there too.")
        return out

    good = [prose(9) for _ in range(10)]
    pages = [(200, g) for g in good] + [(200, good[1]), (200, good[4])]  # copies
    near = list(good[2])
    near[5] = near[5].replace("we know", "they know")
    pages += [(200, near), (200, ["This page is empty."]), (404, ["Not found."])]
    pages += [(200, ["* " + " ".join(draw.sample(nouns, 3)) for _ in range(30)])]  # a list
    pages += [(200, ["Lorem ipsum dolor sit amet, consectetur adipiscing elit."] + prose(6))]
    pages += [(200, prose(7) + ["Write to keeper@lighthouse.example.org, or come to the harbour and ask for the keeper of the light."])]
    pages += [(200, ["Der Fluss fließt am alten Haus vorbei und trägt die Blätter in das Meer hinaus."] * 8)]
    for n, (status, lines) in enumerate(pages):
        body = "<html><head><title>Page %d</title><style>p{}</style></head><body>%s</body></html>" % (n, "".join(f"<p>{x}</p>" for x in lines))
        yield w.create_warc_record("http://example.org/%d" % n, "response", payload=io.BytesIO(body.encode()), warc_headers_dict=fixed(n),
                                   http_headers=StatusAndHeaders(f"{status} {'OK' if status == 200 else 'Not Found'}",
                                                                 [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1"))


def texts(w):
    yield w.create_warcinfo_record("small.warc.wet.gz", {"software": "warcio"})
    for n in range(40):
        yield w.create_warc_record("http://example.com/t/%d" % n, "conversion", payload=io.BytesIO(("Text %d.\nÜber 日本\n" % n * (n % 4 + 1)).encode()),
                                   warc_headers_dict=fixed(n), warc_content_type="text/plain")


def main():
    (OUT / "warc").mkdir(exist_ok=True)
    write(OUT / "warc/small.warc.gz", pages)
    write(OUT / "warc/small.warc.wet.gz", texts)
    write(OUT.parents[2] / "docs/corpus/pages.warc.gz", corpus)
    out = {}
    for name in ("small.warc.gz", "small.warc.wet.gz"):
        with open(OUT / "warc" / name, "rb") as f:
            out[name] = [{"url": r.rec_headers.get_header("WARC-Target-URI"), "date": r.rec_headers.get_header("WARC-Date"),
                          "id": r.rec_headers.get_header("WARC-Record-ID").strip("<>"), "type": r.rec_type,
                          "status": r.http_headers.get_statuscode() if r.http_headers else "",
                          "text": r.content_stream().read().decode("utf-8", "replace")}
                         for r in ArchiveIterator(f) if r.rec_type in ("response", "conversion")]
    (OUT / "warc/small.json").write_text(json.dumps(out, indent=0))
    lines = "".join(json.dumps({"text": "text %d %s" % (i, "x" * (i % 90))}) + "\n" for i in range(500)).encode()
    for end, squeeze in ((".bz2", bz2.compress), (".xz", lzma.compress)):
        half = lines.index(b"\n", len(lines) // 2) + 1
        (OUT / ("codecs/lines.jsonl" + end)).write_bytes(squeeze(lines[:half]) + squeeze(lines[half:]))  # two streams, as pbzip2 writes
    for end in ("bz2", "xz"):
        with tarfile.open(OUT / ("codecs/shard.tar." + end), "w:" + end, format=tarfile.USTAR_FORMAT) as t:
            for i in range(60):
                for ext, body in (("txt", b"caption %d" % i), ("jpg", bytes([i]) * 900)):
                    info = tarfile.TarInfo("%04d.%s" % (i, ext))
                    info.size = len(body)
                    t.addfile(info, io.BytesIO(body))


if __name__ == "__main__":
    main()
