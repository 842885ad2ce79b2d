"""Annotations, the shards that Python's webdataset makes of them by the rules of LoongForge's convert_to_webdataset.py, and
what webdataset and megatron-energon read: dataset/jobs/testdata/convert/*, for the tests of `lfactor data convert`.

Run: python bench/golden/webdataset_convert.py --lfactor ./lfactor
It also has lfactor convert the same annotations, and fails unless webdataset and Energon read the same samples from both.
Needs webdataset 1.0.2, megatron-energon 7.4.1 and pillow.
"""
import argparse
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile

import webdataset as wds
from PIL import Image
from megatron.energon import Cooker, DefaultTaskEncoder, Sample, WorkerConfig, basic_sample_keys, get_loader, get_train_dataset, stateless
from megatron.energon.epathlib import EPath
from megatron.energon.flavors import BaseWebdatasetFactory

OUT = pathlib.Path(__file__).parents[2] / "dataset/jobs/testdata/convert"


def sources(folder):
    for d in ("images/sub", "videos"):
        (folder / d).mkdir(parents=True)
    for i in range(6):
        Image.new("RGB", (8 + i, 9), (i * 40, 7, 99)).save(folder / "images" / f"p.{i}.jpg")
        Image.new("RGB", (8, 9 + i), (i * 40, 99, 7)).save(folder / "images/sub" / f"q{i}.png")
    for i in range(3):
        (folder / "videos" / f"v{i}.mp4").write_bytes(b"ftyp" + bytes([i]) * (i * 301 + 5))
    say = lambda q, a="yes": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]
    mix = [
        {"messages": say("<image>\nWhat?"), "image": "p.1.jpg", "id": 7},
        {"messages": say("Grüße \"x\" \\ / \t\u0001\u007f 日本 🎉", "a\nb"), "weight": 1.5},
        {"messages": say("<image>a<image>b"), "images": ["p.2.jpg", "sub/q3.png"]},
        {"messages": say("<video>what"), "videos": [["v0.mp4"]]},
        {"messages": say("<video><video>"), "videos": ["v1.mp4", "v2.mp4"]},
        {"messages": say("no mark"), "image": "sub/q0.png", "images": None},
        {"messages": [{"role": "system", "content": "s", "n": [1, 2.5, True, None, {}]}] + say("<image>q"), "image": "p.5.jpg"},
        {"messages": say("<image>" * 11), "images": [f"p.{i % 6}.jpg" for i in range(11)]},
        {"messages": say("only text")},
    ]
    (folder / "mix.jsonl").write_text("".join(json.dumps(e, ensure_ascii=False) + "\n" for e in mix))
    vqa = [{"id": f"v.{i}", "messages": say(f"<image>q{i}", f"a{i}"), "image": f"p.{i}.jpg"} for i in range(4)] + [{"messages": say("<image>q"), "images": ["sub/q1.png"]}]
    (folder / "vqa.json").write_text(json.dumps(vqa, indent=1))
    caption = [{"texts": {"captions": [{"content": f"c{i}"}]}, "image": f"p.{i}.jpg"} for i in range(3)]
    (folder / "caption.json").write_text(json.dumps(caption))


CASES = {
    "mix": dict(json_file="mix.jsonl", media="mix", sample_type="multi_mix_qa", maxcount=4, maxsize=10**9, columns_messages="messages"),
    "bytes": dict(json_file="mix.jsonl", media="mix", sample_type="multi_mix_qa", maxcount=1000, maxsize=2500, columns_messages="messages"),
    "vqa": dict(json_file="vqa.json", media="image", sample_type="vqa", maxcount=3, maxsize=10**9, columns_messages="messages"),
    "caption": dict(json_file="caption.json", media="image", sample_type="caption", maxcount=10000, maxsize=3 * 10**9, columns_messages="texts"),
}


def theirs(folder, out, c):
    text = (folder / c["json_file"]).read_text()
    entries = [json.loads(line) for line in text.splitlines()] if c["json_file"].endswith(".jsonl") else json.loads(text)
    out.mkdir()
    with wds.ShardWriter(f"{out}/pretrain-%d.tar", maxcount=c["maxcount"], maxsize=c["maxsize"], verbose=0, mtime=0) as w:
        for i, e in enumerate(entries):
            if c["sample_type"] in ("vqa", "caption"):
                path = e.get("image") or e["images"][0]
                w.write({"__key__": e.get("id", path).replace(".", "_"), "jpg": (folder / "images" / path).read_bytes(), "json": json.dumps(e[c["columns_messages"]]).encode()})
                continue
            media, files = "text", None
            for kind in ("video", "image"):
                found = [e[kind]] if e.get(kind) is not None else e.get(kind + "s")
                if files is None and found is not None:
                    media, files = kind, found[0] if len(found) == 1 and isinstance(found[0], list) else found
            content = {"texts": e[c["columns_messages"]], "media": media}
            sample = {"__key__": f"{media}_{i}"}
            if files is not None:
                content["name"] = [f"{k}_{os.path.basename(f)}" for k, f in enumerate(files)]
                for name, f in zip(content["name"], files):
                    sample[name] = (folder / (media + "s") / f).read_bytes()
            w.write({**sample, "json": json.dumps(content).encode()})


def read(out):
    """What webdataset reads, shard by shard."""
    shards = []
    for i in range(len(list(out.glob("pretrain-*.tar")))):
        shards.append([{"key": s["__key__"], "parts": {k: hashlib.sha256(v).hexdigest()[:16] for k, v in s.items() if not k.startswith("__")}}
                       for s in wds.WebDataset(str(out / f"pretrain-{i}.tar"), shardshuffle=False)])
    return shards


@stateless
def raw(sample):
    keep = {k: v for k, v in sample.items() if not k.startswith("__")}
    return Raw(**basic_sample_keys(sample), parts={k: json.dumps(v) if k == "json" else v for k, v in keep.items()})


@dataclasses.dataclass
class Raw(Sample):
    parts: dict


class Keys(DefaultTaskEncoder):
    """Gives samples as they lie in the shards."""

    cookers = [Cooker(raw)]


def index(out):
    db = sqlite3.connect(out / ".nv-meta/index.sqlite")
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    return [db.execute(f"select * from {t}").fetchall() for t in ("samples", "sample_parts")]


def energon(out, crude):
    """The samples that Energon's index reader and its loader give."""
    from megatron.energon.flavors.webdataset.itar_reader import SqliteITarEntryReader

    reader = SqliteITarEntryReader(EPath(str(out)))
    keys = [r[1] for r in index(out)[0]]
    got = []
    for k in keys:
        s = reader[k]
        got.append({"key": s["__key__"], "parts": {k: hashlib.sha256(v).hexdigest()[:16] for k, v in s.items() if not k.startswith("__")}})
    data = get_train_dataset(str(out), worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0), batch_size=None, shuffle_buffer_size=None,
                             max_samples_per_sequence=None, task_encoder=Keys() if crude else DefaultTaskEncoder(), repeat=False)
    loaded = sorted(s.__key__ for s in get_loader(data))
    assert [k.removeprefix(str(out) + "/") for k in loaded] == sorted(keys), (loaded, sorted(keys))
    return got


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    a = p.parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    sources(OUT)
    golden = {}
    with tempfile.TemporaryDirectory() as tmp:
        for name, c in CASES.items():
            his, ours = pathlib.Path(tmp, name), pathlib.Path(tmp, name + "-lfactor")
            theirs(OUT, his, c)
            golden[name] = dict(options=c, shards=read(his))
            subprocess.run([a.lfactor, "data", "convert", "--output_dir", str(ours), "--image_dir", str(OUT / "images"), "--video_dir", str(OUT / "videos"),
                            *sum((["--" + k, str(OUT / v) if k == "json_file" else str(v)] for k, v in c.items()), [])], check=True)
            assert read(ours) == golden[name]["shards"], name
            (his / ".nv-meta").mkdir()
            (his / ".nv-meta/dataset.yaml").write_text((ours / ".nv-meta/dataset.yaml").read_text())
            tars = sorted(f.name for f in his.glob("*.tar"))
            BaseWebdatasetFactory.prepare_dataset(EPath(str(his)), tars, split_parts_ratio=[("train", 1.0), ("val", 0), ("test", 0)], tar_index_only=False, workers=1)
            assert index(his) == index(ours), name
            flat = [s for shard in golden[name]["shards"] for s in shard]
            assert energon(ours, c["sample_type"] == "multi_mix_qa") == flat, name
            print(name, len(flat), "samples: the same for webdataset, Energon and lfactor")
    (OUT / "read.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
