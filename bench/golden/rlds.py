"""Golden data of RLDS: dataset/format/recordings/testdata/rlds/, two files of records as TensorFlow Datasets lays them out, written by the package tfrecord 1.14 (protobuf 3), and
what NumPy says of them. From the repository: python bench/golden/rlds.py"""

import io
import json
import pathlib

import numpy as np
import tfrecord
from PIL import Image

OUT = pathlib.Path("dataset/format/recordings/testdata/rlds")
OUT.mkdir(parents=True, exist_ok=True)
rng = np.random.default_rng(3)
node = lambda kind, **more: {"pythonClassName": f"tensorflow_datasets.core.features.{kind}"} | more
tensor = lambda dtype, *shape: node("tensor_feature.Tensor", tensor=dict(shape=dict(dimensions=[str(n) for n in shape]), dtype=dtype, encoding="none"))
group = lambda **f: node("features_dict.FeaturesDict", featuresDict=dict(features=f))
picture = node("image_feature.Image", image=dict(shape=dict(dimensions=["4", "6", "3"]), dtype="uint8", encodingFormat="png"))
step = group(action=tensor("float32", 3), reward=tensor("float32"), is_first=tensor("bool"), is_last=tensor("bool"), language_instruction=node("text_feature.Text", text={}),
             observation=group(image=picture, wrist_image=picture, state=tensor("float32", 2), gripper=tensor("int64", 1)))
features = group(steps=node("dataset_feature.Dataset", sequence=dict(feature=step, length="-1")), episode_metadata=group(file_path=node("text_feature.Text", text={})))
(OUT / "features.json").write_text(json.dumps(features, indent=1) + "\n")
png = lambda: (lambda b: (Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)).save(b, "PNG"), b.getvalue())[1])(io.BytesIO())
episodes, files = [], [[5, 3], [4]]
for i, lengths in enumerate(files):
    w = tfrecord.TFRecordWriter(str(OUT / f"toy-train.tfrecord-{i:05d}-of-{len(files):05d}"))
    for n in lengths:
        e = dict(action=rng.normal(size=(n, 3)).astype(np.float32), state=rng.normal(size=(n, 2)).astype(np.float32), gripper=rng.integers(0, 2, n), task=f"put it {len(episodes)}", image=[png() for _ in range(n)], wrist=[png() for _ in range(n)])
        episodes.append(e)
        w.write({"steps/action": (e["action"].flatten().tolist(), "float"), "steps/reward": ([0.0] * n, "float"), "steps/is_first": ([int(k == 0) for k in range(n)], "int"), "steps/is_last": ([int(k == n - 1) for k in range(n)], "int"),
                 "steps/language_instruction": ([e["task"].encode()] * n, "byte"), "steps/observation/image": (e["image"], "byte"), "steps/observation/wrist_image": (e["wrist"], "byte"), "steps/observation/state": (e["state"].flatten().tolist(), "float"),
                 "steps/observation/gripper": (e["gripper"].tolist(), "int"), "episode_metadata/file_path": (b"x", "byte")})
    w.close()
stats = {}
for name in ["action", "state"]:
    x = np.concatenate([e[name] for e in episodes]).astype(np.float64)
    stats[name] = dict(min=x.min(0), max=x.max(0), mean=x.mean(0), std=x.std(0), q01=np.quantile(x, 0.01, 0), q99=np.quantile(x, 0.99, 0))
    stats[name] = {k: v.tolist() for k, v in stats[name].items()}
import hashlib

out = dict(stats=stats, episodes=[dict(task=e["task"], action=e["action"].tolist(), state=e["state"].tolist(), gripper=e["gripper"].tolist(), image=[hashlib.sha256(b).hexdigest() for b in e["image"]], wrist=[hashlib.sha256(b).hexdigest() for b in e["wrist"]]) for e in episodes])
(OUT / "golden.json").write_text(json.dumps(out) + "\n")
