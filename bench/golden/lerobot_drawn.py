"""Sets that the lerobot package writes, with cameras as videos, and what it reads of 200 random indices: frames, states, actions, padding, statistics.

    python bench/golden/lerobot_drawn.py OUT [--indices 200]       with lerobot 0.4.4 (version 3.0) or 0.3.3 (version 2.1)
    LFACTOR_LEROBOT=OUT go test ./dataset/format -run TestLeRobotDrawn -v

Each set has its own codec, frames a second, cameras and horizon. OUT/SET/drawn.json has what lerobot says, and OUT/SET/CAMERA.rgb the frames one after another, as
bytes [height, width, 3]. Pictures move and are brighter with each step, so that a neighbour is no frame of its own.
"""

import argparse
import functools
import json
import pathlib
import shutil

import numpy as np
from lerobot.datasets import lerobot_dataset as lib

SETS = {
    "av1": dict(fps=10, codec="libsvtav1", cameras=dict(top=(64, 96), wrist=(80, 80)), episodes=(37, 12, 25, 41), horizon=8),
    "h264": dict(fps=30, codec="h264", cameras=dict(front=(96, 64)), episodes=(90, 33, 7, 61), horizon=16),
}


def picture(rng, side, episode, step, steps):
    y, x = np.mgrid[: side[0], : side[1]]
    base = 60 + 60 * np.sin(x / 9 + step / 3 + episode) + 40 * np.cos(y / 7 - step / 5)
    return np.clip(np.stack([base, base[::-1], 200 - base], -1) + 80 * (step % 7) / 7, 0, 255).astype(np.uint8)


def write(root, name, s):
    features = {"observation.state": dict(dtype="float32", shape=(5,), names=None), "action": dict(dtype="float32", shape=(3,), names=None)}
    for c, side in s["cameras"].items():
        features[f"observation.images.{c}"] = dict(dtype="video", shape=(*side, 3), names=["height", "width", "channels"])
    how = {}
    if lib.CODEBASE_VERSION != "v2.1":
        how["vcodec"] = s["codec"]
    else:  # which has no such setting
        lib.encode_video_frames = functools.partial(encode, vcodec=s["codec"])
    d = lib.LeRobotDataset.create(f"drawn/{name}", fps=s["fps"], features=features, root=root, use_videos=True, video_backend="pyav", **how)
    rng = np.random.default_rng(5)
    for episode, n in enumerate(s["episodes"]):
        for step in range(n):
            frame = {"observation.state": rng.normal(size=5).astype("float32"), "action": rng.normal(size=3).astype("float32")}
            for c, side in s["cameras"].items():
                frame[f"observation.images.{c}"] = picture(rng, side, episode, step, n)
            task = ["pick the cup", "open the drawer", "wipe"][episode % 3]
            if lib.CODEBASE_VERSION == "v2.1":
                d.add_frame(frame, task=task)
            else:
                d.add_frame(frame | dict(task=task))
        d.save_episode()
    if hasattr(d, "finalize"):
        d.finalize()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out", type=pathlib.Path)
    a.add_argument("--indices", type=int, default=200)
    a = a.parse_args()
    for name, s in SETS.items():
        root = a.out / f"{lib.CODEBASE_VERSION}-{name}"
        shutil.rmtree(root, ignore_errors=True)
        write(root, name, s)
        d = lib.LeRobotDataset(f"drawn/{name}", root=root, video_backend="pyav", delta_timestamps={"action": [i / s["fps"] for i in range(s["horizon"])]})
        chosen = sorted(np.random.default_rng(7).choice(len(d), size=min(a.indices, len(d)), replace=False).tolist()) if len(d) > a.indices else list(range(len(d)))
        chosen += np.random.default_rng(8).integers(0, len(d), a.indices - len(chosen)).tolist()
        items, rgb = [], {c: open(root / f"{c}.rgb", "wb") for c in s["cameras"]}
        for i in chosen:
            x = d[i]
            items.append(dict(index=i, episode=int(x["episode_index"]), frame=int(x["frame_index"]), task=x["task"], state=x["observation.state"].tolist(), actions=x["action"].tolist(), pad=int(x["action_is_pad"].sum())))
            for c, f in rgb.items():
                f.write((x[f"observation.images.{c}"].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8).tobytes())
        for f in rgb.values():
            f.close()
        stats = {k: {n: np.asarray(d.meta.stats[k][n]).tolist() for n in ("min", "max", "mean", "std", "q01", "q99") if n in d.meta.stats[k]} for k in ("action", "observation.state")}
        (root / "drawn.json").write_text(json.dumps(dict(horizon=s["horizon"], frames=len(d), cameras=s["cameras"], items=items, stats=stats)))
        print(f"{root}: {len(items)} indices of {len(d)} frames, {s['codec']}, {s['fps']} frames a second, {len(s['cameras'])} cameras")


encode = getattr(lib, "encode_video_frames", None)
if __name__ == "__main__":
    main()
