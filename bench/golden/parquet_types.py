"""Writes Parquet files of every type that pyarrow writes, drawn values, and what a reader must say of them as JSON lines beside each: with
six codecs, both versions of pages, dictionaries and other encodings, decimals as integers, timestamps of 96 bits, lists of old names.

    python bench/golden/parquet_types.py [FOLDER [FILES [SEED]]]     (pyarrow; dataset/format/testdata/parquet, 4)
    LFACTOR_PARQUET=FOLDER go test ./dataset/format -run TestParquetTypes
"""

import base64
import datetime
import decimal
import json
import math
import pathlib
import random
import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2] / "dataset/format/testdata/parquet"
FILES = int(sys.argv[2]) if len(sys.argv) > 2 else 4
r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 5)
OUT.mkdir(parents=True, exist_ok=True)
decimal.getcontext().prec = 100
CODECS = ["NONE", "SNAPPY", "GZIP", "BROTLI", "ZSTD", "LZ4"]
DAY = 86400
UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def text():
    return "".join(r.choice("ab cé日\"\n") for _ in range(r.choice([0, 1, 7, 30])))


def raw():
    return r.choice([b"\xff\xd8" + r.randbytes(5), b"plain", b"", b"\x80"])


def as_bytes(b):
    try:
        return b.decode()
    except UnicodeDecodeError:
        return base64.b64encode(b).decode()


def number(x):
    return x if math.isfinite(x) else "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def integers(bits, signed):
    lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda: (v := r.choice([lo, hi, 0, r.randrange(lo, hi + 1)]), v)


def decimals(precision, scale):
    def draw():
        n = r.choice([0, 1, -1, 10**precision - 1, 1 - 10**precision, r.randrange(-(10**precision), 10**precision)])
        n = max(min(n, 10**precision - 1), 1 - 10**precision)
        d = decimal.Decimal(n).scaleb(-scale)
        return d, format(d, "f")
    return draw


def clock(n, digits, always):
    """n units of 10^-digits seconds since midnight or the epoch, as text."""
    sec, rest = divmod(n, 10**digits)
    day = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=sec)
    frac = f".{rest:0{digits}d}" if digits else ""
    return day, frac if always else frac.rstrip("0").rstrip(".")


def stamps(unit):
    def draw():
        n = r.choice([0, -1, 1, r.randrange(-10**9, 4 * 10**9) * 10 ** UNITS[unit] + r.randrange(10 ** UNITS[unit])])
        day, frac = clock(n, UNITS[unit], False)
        return n, day.strftime("%Y-%m-%d %H:%M:%S") + frac + "Z"
    return draw


def times(unit, stored):
    def draw():
        n = r.choice([0, 1, r.randrange(DAY * 10 ** UNITS[unit])])
        day, frac = clock(n * 10 ** (UNITS[stored] - UNITS[unit]), UNITS[stored], True)
        return n, day.strftime("%H:%M:%S") + frac
    return draw


def dates(step):
    def draw():
        n = r.choice([0, -1, 1, r.randrange(-30000, 60000)])
        return n * step, (datetime.date(1970, 1, 1) + datetime.timedelta(days=n)).isoformat()
    return draw


def floats(bits):
    def draw():
        x = r.choice([0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, r.randrange(-1000, 1000) / 8])
        return x, number(x)
    return draw


def plain(f, say=lambda v: v):
    return lambda: (v := f(), say(v))


def listed(of, n=None):
    def draw():
        pairs = [maybe(of) for _ in range(r.randrange(4) if n is None else n)]
        return [p[0] for p in pairs], [p[1] for p in pairs]
    return draw


def struct(**fields):
    def draw():
        got = {k: maybe(f) for k, f in fields.items()}
        return {k: v[0] for k, v in got.items()}, {k: v[1] for k, v in got.items()}
    return draw


def mapped(of):
    def draw():
        got = [(text(), maybe(of)) for _ in range(r.randrange(3))]
        return [(k, v[0]) for k, v in got], [{"key": k, "value": v[1]} for k, v in got]
    return draw


def maybe(of):
    return of() if r.random() < 0.8 else (None, None)


words, small = plain(text), integers(64, True)
TYPES = {f"{'' if signed else 'u'}int{b}": (getattr(pa, f"{'' if signed else 'u'}int{b}")(), integers(b, signed)) for b in (8, 16, 32, 64) for signed in (True, False)}
TYPES |= {f"decimal{p}_{s}": (pa.decimal128(p, s), decimals(p, s)) for p, s in ((1, 0), (5, 2), (9, 9), (10, 3), (18, 6), (19, 0), (38, 10))}
TYPES |= {"decimal60": (pa.decimal256(60, 5), decimals(60, 5)), "decimal76": (pa.decimal256(76, 0), decimals(76, 0)),
          "small_decimal": (pa.decimal32(7, 3), decimals(7, 3)), "middle_decimal": (pa.decimal64(15, 4), decimals(15, 4))}
TYPES |= {"half": (pa.float16(), floats(16)), "single": (pa.float32(), floats(32)), "double": (pa.float64(), floats(64)), "yes": (pa.bool_(), plain(lambda: r.random() < 0.5)),
          "date": (pa.date32(), dates(1)), "date64": (pa.date64(), dates(DAY * 1000)), "null": (pa.null(), lambda: (None, None))}
TYPES |= {"time_s": (pa.time32("s"), times("s", "ms")), "time_ms": (pa.time32("ms"), times("ms", "ms")), "time_us": (pa.time64("us"), times("us", "us")), "time_ns": (pa.time64("ns"), times("ns", "ns"))}
for u in UNITS:
    for zone in (None, "UTC", "Europe/Berlin"):
        TYPES[f"at_{u}_{zone}"] = (pa.timestamp(u, tz=zone), stamps(u))
    TYPES[f"lasts_{u}"] = (pa.duration(u), small)
TYPES |= {"string": (pa.string(), words), "large_string": (pa.large_string(), words), "string_view": (pa.string_view(), words), "json": (pa.json_(), plain(lambda: json.dumps({"a": text()}))),
          "binary": (pa.binary(), plain(raw, as_bytes)), "large_binary": (pa.large_binary(), plain(raw, as_bytes)), "binary_view": (pa.binary_view(), plain(raw, as_bytes)),
          "fixed": (pa.binary(4), plain(lambda: r.randbytes(4), bytes.hex)), "uuid": (pa.uuid(), plain(lambda: uuid.UUID(bytes=r.randbytes(16)).bytes, lambda b: str(uuid.UUID(bytes=b)))),
          "coded": (pa.dictionary(pa.int32(), pa.string()), plain(lambda: r.choice(["x", "yy", "z"])))}
TYPES |= {"list": (pa.list_(pa.string()), listed(words)), "large_list": (pa.large_list(pa.uint32()), listed(integers(32, False))), "pair": (pa.list_(pa.int16(), 2), listed(integers(16, True), 2)),
          "lists": (pa.list_(pa.list_(pa.decimal128(5, 2))), listed(listed(decimals(5, 2)))), "map": (pa.map_(pa.string(), pa.uint64()), mapped(integers(64, False))),
          "struct": (pa.struct({"a": pa.uint8(), "t": pa.timestamp("us")}), struct(a=integers(8, False), t=stamps("us"))),
          "one_list": (pa.struct({"x": pa.list_(pa.int8())}), struct(x=listed(integers(8, True)))), "one": (pa.struct({"x": pa.float16()}), struct(x=floats(16))),
          "structs": (pa.list_(pa.struct({"one": pa.string()})), listed(struct(one=words))), "images": (pa.list_(pa.struct({"bytes": pa.binary(), "path": pa.string()})), listed(struct(bytes=plain(raw, as_bytes), path=words))),
          "maps": (pa.map_(pa.string(), pa.list_(pa.float16())), mapped(listed(floats(16))))}



def encoding(kind, old):
    """A drawn encoding of a flat column, None for the usual one."""
    if pa.types.is_floating(kind):
        return r.choice(["BYTE_STREAM_SPLIT", "PLAIN"])
    if any(f(kind) for f in (pa.types.is_integer, pa.types.is_temporal)) and not (old and pa.types.is_timestamp(kind)):
        return r.choice(["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"])
    if any(f(kind) for f in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)):
        return r.choice(["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"])
    return r.choice(["RLE", "PLAIN"]) if pa.types.is_boolean(kind) else None


for k in range(FILES):
    n = r.choice([1, 3, 12] if FILES <= 4 else [1, 40, 300])
    names = [name for name in TYPES if r.random() < 0.8 or FILES <= 4]
    old = r.random() < 0.3
    if old:  # timestamps of 96 bits hold nanoseconds; a time of a second is one of milliseconds in either
        names = [x for x in names if not x.startswith("at_") or x.endswith("None")]
    cells = {name: [maybe(TYPES[name][1]) for _ in range(n)] for name in names}

    def array(name):
        values, kind = [c[0] for c in cells[name]], TYPES[name][0]
        if isinstance(kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
        if kind == pa.float16():
            return pa.array([None if v is None else v for v in values], pa.float32()).cast(kind)
        return pa.array(values, kind)

    t = pa.table({name: array(name) for name in names})
    coded = r.random() < 0.5
    encodings = None if coded else {name: e for name in names for e in [encoding(TYPES[name][0], old)] if e}
    pq.write_table(t, OUT / f"{k:03d}.parquet", compression=CODECS[k % 6], version="2.6", data_page_version=r.choice(["1.0", "2.0"]),
                   use_dictionary=coded, column_encoding=encodings, store_schema=r.random() < 0.5, row_group_size=r.choice([5, 1000]), store_decimal_as_integer=r.random() < 0.5,
                   use_compliant_nested_type=r.random() < 0.7, use_deprecated_int96_timestamps=old)
    (OUT / f"{k:03d}.want").write_text("".join(json.dumps({name: cells[name][i][1] for name in names}, ensure_ascii=False) + "\n" for i in range(n)))
