"""Sets of LeRobot whose clocks are drawn, and what the lerobot package gives of them: which frames of which video, states, actions, padding, or that it raises.

    python bench/golden/lerobot_times.py OUT [--sets 36] [--items 24]      with lerobot 0.4.4 (version 3.0), and again with 0.3.3 (version 2.1)
    LFACTOR_LEROBOT_TIMES=OUT go test ./dataset/format/recordings -run TestLeRobotTimes -v
    python bench/golden/lerobot_times.py OUT --gather dataset/format/recordings/testdata/lerobot_times.json.gz

Each set has rates of its table and of each video that may differ, videos that begin late, whose rate varies or that lost frames, rows of the table that are missing
or late, episodes that lie anywhere in a file, and windows of actions, states and pictures before, at and behind a frame. The grey values of a picture are its number
in the video, so that the frame that was taken is read off the picture. --gather writes what all sets say, with the times of their videos, without the videos.
"""

import argparse
import gzip
import json
import pathlib
import shutil
from fractions import Fraction

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SIDE = 32
BASE = 60000  # ticks a second of the videos


def picture(n):
    p = np.empty((SIDE, SIDE, 3), np.uint8)
    p[:, : SIDE // 2], p[:, SIDE // 2 :] = 24 + 13 * (n % 16), 24 + 13 * (n // 16)
    return p


def number(p):
    """The number of the picture that [3, SIDE, SIDE] shows, from 0 to 1."""
    low, high = (round((float(p[:, 4:-4, s].mean()) * 255 - 24) / 13) for s in (slice(4, SIDE // 2 - 4), slice(SIDE // 2 + 4, SIDE - 4)))
    return low + 16 * high


def video(path, times, codec):
    """Writes a video and gives the times that its frames have there: files that begin late count milliseconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as f:
        s = f.add_stream(codec, rate=Fraction(30), options={"crf": "18", "g": "2"} if codec == "libx264" else {})
        s.width = s.height = SIDE
        s.pix_fmt, s.time_base = "yuv420p", Fraction(1, BASE)
        s.codec_context.time_base = Fraction(1, BASE)
        for n, at in enumerate(times):
            frame = av.VideoFrame.from_ndarray(picture(n), "rgb24")
            frame.pts, frame.time_base = round(at * BASE), Fraction(1, BASE)
            f.mux(s.encode(frame))
        f.mux(s.encode())
    with av.open(str(path)) as f:
        return [float(frame.pts * frame.time_base) for frame in f.decode(video=0)]


def drawn(seed):
    """The clocks of a set: its table's rows, and for each camera the times of the frames of its files."""
    rng = np.random.default_rng(seed)
    pick = lambda *v: v[rng.integers(len(v))]  # noqa: E731
    s = dict(fps=int(pick(5, 10, 15, 24, 25, 30, 50)), past=int(pick(0, 0, 1, 2)), horizon=int(pick(1, 4, 8)), later=int(pick(0, 0, 1, 2)),
             every=int(pick(1, 2, 3)), gap=pick("none", "none", "none", "lost", "late", "drift"), codec=pick("libx264", "mpeg4"))
    s["horizon"] = max(s["horizon"], s["past"] + 1)
    s["lengths"] = [int(n) for n in rng.integers(4, 24, 3)]
    s["stamps"] = []
    for n in s["lengths"]:
        at = np.arange(n) / s["fps"]
        cut = int(rng.integers(1, n))
        if s["gap"] == "lost":  # rows of the table that are not there
            at[cut:] += int(pick(1, 3)) / s["fps"]
        if s["gap"] == "late":
            at[cut] += 0.3 / s["fps"]
        if s["gap"] == "drift":  # a clock that is too slow
            at *= 1.02
        s["stamps"].append([float(np.float32(x)) for x in at])
    s["cameras"] = {f"observation.images.{c}": camera(rng, pick, s) for c in ("top", "wrist")[: pick(1, 1, 2)]}
    return s


def camera(rng, pick, s):
    """Where each episode begins in a camera's file, and when the file's frames are shown."""
    c = dict(times=pick("even", "even", "even", "varying", "lost"), factor=float(pick(1, 1, 1, 1, 1, 2, 3, 0.5, 1.2)), offset=float(pick(0, 0, 0, 0.1, 0.5)))
    counted = bool(pick(True, True, True, True, True, False))  # where the episodes begin, with the file's own beginning
    c["from"], at = [], []
    for stamps in s["stamps"]:
        begin = sum(at[-1:]) + (1 / s["fps"] / c["factor"] if at else c["offset"])
        n = round((stamps[-1] * s["fps"] + 1) * c["factor"])
        c["from"].append(begin if counted else begin - c["offset"])
        at += [begin + k / s["fps"] / c["factor"] for k in range(max(n, 1))]
    at = np.asarray(at)
    if c["times"] == "varying":
        at[1:] += 0.2 * rng.random(len(at) - 1) / s["fps"] / c["factor"] * (rng.random(len(at) - 1) < 0.1)
    if c["times"] == "lost":
        at = at[(rng.random(len(at)) > 0.05) | (np.arange(len(at)) == 0)]
    c["shown"] = [round(float(x) * BASE) / BASE for x in at[:256]]
    return c


def files(c, old):
    """When the frames of each of a camera's files are shown: all of one, or each episode's by a clock of its own."""
    if not old:
        return [c["shown"]]
    ends = c["from"][1:] + [1e9]
    parts = [[x - begin + c["offset"] for x in c["shown"] if begin - 1e-6 <= x < end - 1e-6] for begin, end in zip(c["from"], ends)]
    return [[round(x * BASE) / BASE for x in p or [c["offset"]]] for p in parts]


def write(root, s, version):
    """The set's files, in the layout of a version."""
    shutil.rmtree(root, ignore_errors=True)
    old = version == "v2.1"
    data, videos = (("data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4") if old else
                    ("data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet", "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"))
    one = lambda dtype: dict(dtype=dtype, shape=[1], names=None)  # noqa: E731
    features = {"observation.state": dict(dtype="float32", shape=[2], names=None), "action": dict(dtype="float32", shape=[2], names=None), "timestamp": one("float32"),
                "frame_index": one("int64"), "episode_index": one("int64"), "index": one("int64"), "task_index": one("int64")}
    for name in s["cameras"]:
        features[name] = dict(dtype="video", shape=[SIDE, SIDE, 3], names=["height", "width", "channels"])
    total, n = sum(s["lengths"]), len(s["lengths"])
    (root / "meta").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(dict(codebase_version=version, robot_type=None, total_episodes=n, total_frames=total, total_tasks=1, total_videos=0, total_chunks=1,
                                                         chunks_size=1000, fps=s["fps"], splits=dict(train=f"0:{n}"), data_path=data, video_path=videos, features=features)))
    rows, first = [], 0
    for e, stamps in enumerate(s["stamps"]):
        rows.append(dict(index=list(range(first, first + len(stamps))), frame_index=list(range(len(stamps))), episode_index=[e] * len(stamps), task_index=[0] * len(stamps),
                         timestamp=stamps, action=[[100 * e + k, 0.5] for k in range(len(stamps))], **{"observation.state": [[e, k + 0.25] for k in range(len(stamps))]}))
        first += len(stamps)
    (old_files if old else new_files)(root, s, rows, data, videos)


def table(rows, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    two = pa.list_(pa.float32(), 2)
    types = {"timestamp": pa.float32(), "action": two, "observation.state": two}
    pq.write_table(pa.table({k: pa.array(v, types.get(k, pa.int64())) for k, v in rows.items()}), path)


def old_files(root, s, rows, data, videos):
    lines = lambda name, all: (root / "meta" / name).write_text("".join(json.dumps(x) + "\n" for x in all))  # noqa: E731
    lines("tasks.jsonl", [dict(task_index=0, task="wipe")])
    lines("episodes.jsonl", [dict(episode_index=e, tasks=["wipe"], length=len(r["index"])) for e, r in enumerate(rows)])
    stat = lambda v: dict(min=np.min(v, 0).reshape(-1).tolist(), max=np.max(v, 0).reshape(-1).tolist(), mean=np.mean(v, 0).reshape(-1).tolist(), std=np.std(v, 0).reshape(-1).tolist(), count=[len(v)])  # noqa: E731
    lines("episodes_stats.jsonl", [dict(episode_index=e, stats={k: stat(np.asarray(v, float)) for k, v in r.items()}) for e, r in enumerate(rows)])
    for e, r in enumerate(rows):
        table(r, root / data.format(episode_chunk=0, episode_index=e))
        for name, c in s["cameras"].items():
            c["files"][e] = video(root / videos.format(episode_chunk=0, video_key=name, episode_index=e), c["files"][e], s["codec"])


def new_files(root, s, rows, data, videos):
    all_rows = {k: sum((r[k] for r in rows), []) for k in rows[0]}
    table(all_rows, root / data.format(chunk_index=0, file_index=0))
    at = lambda c, e: [c["from"][e], (c["from"] + [c["from"][-1] + s["stamps"][-1][-1] + 1 / s["fps"]])[e + 1]]  # noqa: E731
    episodes = [{"episode_index": e, "tasks": ["wipe"], "length": len(r["index"]), "data/chunk_index": 0, "data/file_index": 0, "dataset_from_index": r["index"][0],
                 "dataset_to_index": r["index"][-1] + 1, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0} for e, r in enumerate(rows)]
    for name, c in s["cameras"].items():
        c["files"][0] = video(root / videos.format(video_key=name, chunk_index=0, file_index=0), c["files"][0], s["codec"])
        for e, row in enumerate(episodes):
            row |= {f"videos/{name}/chunk_index": 0, f"videos/{name}/file_index": 0, f"videos/{name}/from_timestamp": at(c, e)[0], f"videos/{name}/to_timestamp": at(c, e)[1]}
    path = root / "meta/episodes/chunk-000/file-000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(episodes), path)
    import pandas

    pandas.DataFrame({"task_index": [0]}, index=pandas.Index(["wipe"], name="task")).to_parquet(root / "meta/tasks.parquet")


def said(root, s, lib, backend, items):
    """What lerobot gives of each item, or why it raises."""
    fps, past = s["fps"], s["past"]
    looks = [k - past for k in range(past + 1)] + [(k + 1) * s["every"] for k in range(s["later"])]
    deltas = {"action": [(k - past) / fps for k in range(s["horizon"])], "observation.state": [k / fps for k in looks]} | {c: [k / fps for k in looks] for c in s["cameras"]}
    try:
        d = lib.LeRobotDataset("drawn/times", root=root, video_backend=backend, delta_timestamps=deltas)
    except ValueError as e:
        return str(e).strip().splitlines()[0], []
    out = []
    for i in items:
        try:
            x = d[i]
        except Exception as e:  # whichever it raises: FrameTimestampError, AssertionError, IndexError of frames that are not there
            out.append(dict(raises=f"{type(e).__name__}: {e}".splitlines()[0][:90]))
            continue
        pictures = {c: [number(p) for p in x[c].reshape(-1, 3, SIDE, SIDE)] for c in s["cameras"]}
        out.append(dict(pictures=pictures, state=x["observation.state"].tolist(), action=x["action"].tolist(), pad=[int(v) for v in x["action_is_pad"]]))
    return "", out


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out", type=pathlib.Path)
    a.add_argument("--sets", type=int, default=36)
    a.add_argument("--items", type=int, default=24)
    a.add_argument("--gather", type=pathlib.Path)
    a = a.parse_args()
    if a.gather:
        sets = [json.loads(p.read_text()) for p in sorted(a.out.glob("*/times.json"))]
        a.gather.write_bytes(gzip.compress(json.dumps(sets, separators=(",", ":")).encode(), mtime=0))
        print(f"{len(sets)} sets, {sum(len(s['said']) for s in sets)} items")
        return
    from lerobot.datasets import lerobot_dataset as lib

    version = lib.CODEBASE_VERSION
    for seed in range(a.sets):
        s = drawn(1000 * (version == "v2.1") + seed)
        for c in s["cameras"].values():
            if version == "v2.1":  # whose files have no other beginning than their clock's, or are refused
                c["offset"] *= seed % 4 == 0
            c["files"] = files(c, version == "v2.1")
        root = a.out / f"{version}-{seed:02d}"
        write(root, s, version)
        total = sum(s["lengths"])
        items = sorted(np.random.default_rng(seed).choice(total, min(a.items, total), replace=False).tolist())
        raises, out = said(root, s, lib, "pyav", items)
        other = said(root, s, lib, "torchcodec", items)[1] if not raises else []
        (root / "times.json").write_text(json.dumps(s | dict(version=version, items=items, raises=raises, said=out)))
        apart = sum(x != y for x, y in zip(out, other) if "raises" not in x and "raises" not in y)
        count = lambda all: sum("raises" in x for x in all)  # noqa: E731
        print(f"{root.name}: {s['gap']}, {[(c['times'], c['factor'], c['offset']) for c in s['cameras'].values()]}: "
              + (raises[:60] or f"{len(out)} items, {count(out)} raise, by torchcodec {count(other)}, {apart} apart"))


if __name__ == "__main__":
    main()
