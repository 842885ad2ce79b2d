"""Golden data of bags of ROS 2: dataset/format/recordings/testdata/mcap/, written and read by the Python packages mcap and mcap-ros2-support. Messages of
unequal rates, two of them out of order; chunks by zstd, lz4 and none; pixels and files of pictures; a task that changes. golden.json has
what each topic said last at or before each frame of some rates, by the package's own reader.

With mcap and mcap-ros2-support of PyPI; from the repository: python bench/golden/bags.py
"""

import hashlib
import io
import json
import pathlib

import numpy as np
from mcap.writer import CompressionType
from mcap_ros2.reader import read_ros2_messages
from mcap_ros2.writer import Writer
from PIL import Image

OUT = pathlib.Path("dataset/format/recordings/testdata/mcap")
SEP = "\n" + "=" * 80 + "\n"
TIME = SEP + "MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n"
HEADER = SEP + "MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n" + TIME
DEFS = {
    "sensor_msgs/msg/JointState": "# joints\nstd_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort" + HEADER,
    "std_msgs/msg/Float32MultiArray": "std_msgs/MultiArrayLayout layout\nfloat32[] data" + SEP + "MSG: std_msgs/MultiArrayLayout\nstd_msgs/MultiArrayDimension[] dim\nuint32 data_offset" + SEP + "MSG: std_msgs/MultiArrayDimension\nstring label\nuint32 size\nuint32 stride",
    "geometry_msgs/msg/PoseStamped": "std_msgs/Header header\ngeometry_msgs/Pose pose" + HEADER + SEP + "MSG: geometry_msgs/Pose\nPoint position\nQuaternion orientation" + SEP + "MSG: geometry_msgs/Point\nfloat64 x\nfloat64 y\nfloat64 z" + SEP + "MSG: geometry_msgs/Quaternion\nfloat64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1",
    "sensor_msgs/msg/Image": "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data" + HEADER,
    "sensor_msgs/msg/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data" + HEADER,
    "std_msgs/msg/String": "string data",
    "std_msgs/msg/Bool": "bool data",
    "test_msgs/msg/Mixed": "uint8 A=3\nint8 a\nint64 b\nuint16[3] c\nfloat32 d\nstring<=9 e\nInner[<=4] f\nbool[] g\nfloat64 h" + SEP + "MSG: test_msgs/Inner\nint8 x\nfloat64[2] y",
}


def head(t):
    return {"stamp": {"sec": t // 10**9, "nanosec": t % 10**9}, "frame_id": "base"}


def bag(path, compression, chunk, seed):
    r = np.random.default_rng(seed)
    with open(path, "wb") as f:
        w = Writer(f, chunk_size=chunk, compression=compression)
        s = {name: w.register_msgdef(name, text) for name, text in DEFS.items()}
        at = 5 * 10**9
        plan = []
        for k in range(40):
            t = at + k * 33_333_333
            plan.append((t, "/joint_states", "sensor_msgs/msg/JointState", {"header": head(t), "name": ["a", "bc"], "position": list(r.normal(size=2)), "velocity": list(r.normal(size=2)), "effort": []}))
        for k in range(30):
            t = at + 20_000_000 + k * 50_000_000
            plan.append((t, "/arm/command", "std_msgs/msg/Float32MultiArray", {"layout": {"dim": [{"label": "n", "size": 3, "stride": 3}], "data_offset": 0}, "data": [float(x) for x in r.normal(size=3).astype(np.float32)]}))
        for k in range(25):
            t = at + 70_000_000 + k * 61_000_000
            plan.append((t, "/tf/hand", "geometry_msgs/msg/PoseStamped", {"header": head(t), "pose": {"position": dict(zip("xyz", r.normal(size=3))), "orientation": dict(zip("xyzw", r.normal(size=4)))}}))
        for k in range(12):
            t = at + 110_000_000 + k * 120_000_000
            pixels = r.integers(0, 256, size=(4, 5, 3), dtype=np.uint8)
            plan.append((t, "/camera/top/image_raw", "sensor_msgs/msg/Image", {"header": head(t), "height": 4, "width": 5, "encoding": "bgr8", "is_bigendian": 0, "step": 17, "data": np.pad(pixels.reshape(4, 15), ((0, 0), (0, 2))).tobytes()}))
            b = io.BytesIO()
            Image.fromarray(r.integers(0, 256, size=(6, 7, 3), dtype=np.uint8)).save(b, "PNG")
            plan.append((t + 7_000_000, "/wrist/compressed", "sensor_msgs/msg/CompressedImage", {"header": head(t), "format": "png", "data": b.getvalue()}))
        plan.append((at + 1, "/task", "std_msgs/msg/String", {"data": "pick the rëd disc"}))
        plan.append((at + 700_000_000, "/task", "std_msgs/msg/String", {"data": "put it down"}))
        for k in range(5):
            plan.append((at + k * 300_000_000, "/gripper", "std_msgs/msg/Bool", {"data": k % 2 == 1}))
        plan.append((at + 3, "/mixed", "test_msgs/msg/Mixed", {"a": -3, "b": -(2**40), "c": [1, 2, 65535], "d": 0.5, "e": "nine", "f": [{"x": -1, "y": [0.25, -8.0]}, {"x": 2, "y": [3.0, 4.0]}], "g": [True, False, True], "h": -2.75}))
        plan.sort(key=lambda p: p[0])
        plan[10], plan[11] = plan[11], plan[10]
        for k, (t, topic, kind, m) in enumerate(plan):
            w.write_message(topic, s[kind], m, log_time=t, publish_time=t, sequence=k)
        w.finish()


def numbers(topic, m):
    if topic == "/joint_states":
        return list(m.position)
    if topic == "/arm/command":
        return list(m.data)
    if topic == "/tf/hand":
        p, q = m.pose.position, m.pose.orientation
        return [p.x, p.y, p.z, q.x, q.y, q.z, q.w]
    if topic == "/gripper":
        return [float(m.data)]


def frames(path, fps):
    said = {}
    for m in read_ros2_messages(str(path)):
        said.setdefault(m.channel.topic, []).append((m.log_time_ns, m.ros_msg))
    for v in said.values():
        v.sort(key=lambda p: p[0])
    used = ["/arm/command", "/joint_states", "/tf/hand", "/gripper", "/camera/top/image_raw", "/wrist/compressed"]
    first, last = max(said[t][0][0] for t in used), said["/arm/command"][-1][0]
    out, k = [], 0
    while (t := first + int(k * (1e9 / fps))) <= last:
        now = {topic: [m for at, m in said[topic] if at <= t][-1] for topic in used + ["/task"]}
        raw = now["/camera/top/image_raw"]
        pixels = np.frombuffer(raw.data, np.uint8).reshape(4, 17)[:, :15].reshape(4, 5, 3)[:, :, ::-1]
        out.append(dict(action=numbers("/arm/command", now["/arm/command"]), state=sum((numbers(x, now[x]) for x in ["/joint_states", "/tf/hand", "/gripper"]), []), task=now["/task"].data, pixels=pixels.reshape(-1).tolist(), file=hashlib.sha256(bytes(now["/wrist/compressed"].data)).hexdigest()))
        k += 1
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    golden = {}
    for name, compression, chunk in [("zstd", CompressionType.ZSTD, 1500), ("lz4", CompressionType.LZ4, 4000), ("none", CompressionType.NONE, 900)]:
        bag(OUT / f"{name}.mcap", compression, chunk, len(name) + ord(name[0]))
        golden[name] = {str(fps): frames(OUT / f"{name}.mcap", fps) for fps in (10, 17)}
    (OUT / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print({k: {f: len(v) for f, v in g.items()} for k, g in golden.items()})


if __name__ == "__main__":
    main()
