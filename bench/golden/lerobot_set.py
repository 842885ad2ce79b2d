"""A small data set that lerobot itself writes, and what it reads of it: dataset/format/recordings/testdata/lerobot3/, with items.json.

Run from the repository's root: python bench/golden/lerobot_set.py, with lerobot 0.4.4.
"""

import json
import pathlib
import shutil

import numpy
from lerobot.datasets.lerobot_dataset import LeRobotDataset

OUT = pathlib.Path("dataset/format/recordings/testdata/lerobot3")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    features = {
        "observation.state": dict(dtype="float32", shape=(3,), names=None),
        "action": dict(dtype="float32", shape=(2,), names=None),
        "observation.images.top": dict(dtype="image", shape=(4, 5, 3), names=["height", "width", "channels"]),
    }
    d = LeRobotDataset.create("golden/set", fps=10, features=features, root=OUT, use_videos=False)
    rng = numpy.random.default_rng(0)
    for episode, n in enumerate((4, 2, 5)):
        for _ in range(n):
            d.add_frame({"observation.state": rng.normal(size=3).astype("float32"), "action": rng.normal(size=2).astype("float32"), "observation.images.top": rng.integers(0, 256, (4, 5, 3), dtype=numpy.uint8), "task": ["pick", "place the cup"][episode % 2]})
        d.save_episode()
    d.finalize()
    shutil.rmtree(OUT / "images", ignore_errors=True)
    d = LeRobotDataset("golden/set", root=OUT, delta_timestamps={"action": [i / 10 for i in range(3)]})
    items = []
    for i in range(len(d)):
        x = d[i]
        items.append(dict(task=x["task"], state=x["observation.state"].tolist(), actions=x["action"].tolist(), pad=int(x["action_is_pad"].sum()), pixels=[round(v * 255) for v in x["observation.images.top"].permute(1, 2, 0).flatten().tolist()]))
    stats = {k: {s: numpy.asarray(d.meta.stats[k][s]).tolist() for s in ("min", "max", "mean", "std", "q01", "q99")} for k in ("action", "observation.state")}
    (OUT / "items.json").write_text(json.dumps(dict(items=items, stats=stats)) + "\n")


if __name__ == "__main__":
    main()
