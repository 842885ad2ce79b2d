"""Messages as openpi's client packs them: actors/serve/policy/testdata/*.msgpack. An observation as examples/libero sends one, one
with nested pictures as examples/aloha_sim does, every type of number, and a reply, whose bytes the server's are compared with.

pip install openpi-client==0.1.2, then from the repository: python bench/golden/openpi_messages.py
"""

import pathlib

import numpy as np
from openpi_client import msgpack_numpy

OUT = pathlib.Path("actors/serve/policy/testdata")
OUT.mkdir(exist_ok=True)


def write(name, v):
    (OUT / (name + ".msgpack")).write_bytes(msgpack_numpy.packb(v))


g = np.random.default_rng(5)
image = lambda *shape: g.integers(0, 256, shape, dtype=np.uint8)
write("libero", {"observation/image": image(4, 6, 3), "observation/wrist_image": image(4, 6, 3), "observation/state": np.array([0.5, -1.25, 3], np.float64), "prompt": "pick up the cup"})
write("aloha", {"state": np.arange(3, dtype=np.float32), "images": {"cam_high": image(3, 4, 6), "cam_low": None}, "prompt": "transfer"})
write("floats", {"observation": {"image": g.random((2, 2, 3)).astype(np.float32), "wrist_image": None, "state": [1, 2.5, True]}, "task": "push", "seed": 7, "real_time_chunking": {"executed": 2, "delay": np.int64(1)}})
types = ["u1", "i1", "b1", "i2", "u2", "f2", "f4", "i4", "u4", "f8", "i8", "u8"]
write("types", {t: np.array([0, 1, 2, 100], t) for t in types} | {"scalar": np.float32(1.5)})
write("reply", {"actions": np.array([[1, -2.5], [0.1, 4]], np.float32), "server_timing": {"infer_ms": 1.5, "batch": 3}, "names": ["a", "b"], "on": True, "none": None, "seed": 70000})
