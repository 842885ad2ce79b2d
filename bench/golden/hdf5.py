"""Files of HDF5 that h5py wrote, and what it reads of them: dataset/hdf5/testdata/. Those of robots have the layout of robomimic, LIBERO and ALOHA.

With h5py 3 and NumPy; from the repository: python bench/golden/hdf5.py
"""

import json
import pathlib

import h5py
import numpy as np

OUT = pathlib.Path("dataset/hdf5/testdata")
g = np.random.default_rng(5)


def plain(name, libver="earliest", **how):
    def make(f):
        kinds = ["<f4", "<f8", ">f4", "|u1", "<i2", ">i4", "<u8", "|i1"]
        shapes = [(7,), (5, 3), (4, 3, 5), (6, 1), (3, 2, 2, 3)]
        for i, k in enumerate(kinds):
            shape = shapes[i % len(shapes)]
            v = g.normal(size=shape) * 50 if "f" in k else g.integers(0, 100, shape) - (50 if "i" in k else 0)
            more = dict(how)
            if more.get("chunks") == "odd":
                more["chunks"] = tuple(max(1, n // 2) for n in shape)
            f.create_dataset(f"deep/er/v{i}", data=v.astype(k), **more)
        f["deep"].attrs["text"] = "reach the red disc"
        f["deep"].attrs["fixed"] = np.bytes_("as bytes")
        f["deep"].attrs["n"] = 3
    return name, make, libver


def many(f):
    f["demo_0"] = np.full((2, 2), 3, "<f4")
    for i in range(1, 300):  # links to one, in a tree of two levels
        f[f"demo_{i}"] = f["demo_0"]


def grown(f):
    d = f.create_dataset("actions", (0, 3), maxshape=(None, 3), dtype="<f4", chunks=(4, 3))
    for i in range(5):
        d.resize(3 * (i + 1), axis=0)
        d[3 * i :] = g.normal(size=(3, 3))
    f.create_dataset("hole", (9, 2), "<i4", chunks=(2, 2))[4] = 7
    f.create_dataset("none", (3, 2), "<f8")
    f.create_dataset("truth", data=np.array([True, False, True]))


def mimic(f):
    data = f.create_group("data")
    data.attrs["env_args"] = json.dumps(dict(env_name="Lift"))
    for i, n in enumerate([4, 1, 3]):
        d = data.create_group(f"demo_{i}")
        d.attrs["num_samples"] = n
        d["actions"] = g.normal(size=(n, 3))
        d["dones"], d["rewards"] = np.zeros(n, "<i8"), np.zeros(n)
        d["obs/robot0_eef_pos"], d["obs/robot0_eef_quat"], d["obs/robot0_gripper_qpos"] = g.normal(size=(n, 3)), g.normal(size=(n, 4)), g.normal(size=(n, 2))
        d.create_dataset("obs/agentview_image", data=g.integers(0, 256, (n, 6, 8, 3), dtype=np.uint8), compression="gzip")


def libero(f):
    data = f.create_group("data")
    data.attrs["problem_info"] = json.dumps(dict(language_instruction="put the bowl on the plate"))
    for i, n in enumerate([3, 2]):
        d = data.create_group(f"demo_{i}")
        d["actions"] = g.normal(size=(n, 2))
        for k, w in dict(ee_pos=3, ee_ori=3, gripper_states=2).items():
            d[f"obs/{k}"] = g.normal(size=(n, w))
        d["obs/agentview_rgb"] = g.integers(0, 256, (n, 4, 4, 3), dtype=np.uint8)
        d["obs/eye_in_hand_rgb"] = g.integers(0, 256, (n, 4, 4, 3), dtype=np.uint8)


def aloha(f):
    f.attrs["sim"] = True
    f["action"], f["observations/qpos"], f["observations/qvel"] = g.normal(size=(5, 4)).astype("<f4"), g.normal(size=(5, 4)).astype("<f4"), g.normal(size=(5, 4)).astype("<f4")
    f.create_dataset("observations/images/cam_high", data=g.integers(0, 256, (5, 4, 6, 3), dtype=np.uint8), chunks=(1, 4, 6, 3))


FILES = [plain("whole"), plain("chunks", chunks=True), plain("odd", chunks="odd"), plain("gzip", chunks=True, compression="gzip"), plain("gzip9", chunks="odd", compression="gzip", compression_opts=9), plain("shuffle", chunks="odd", shuffle=True), plain("both", chunks="odd", shuffle=True, compression="gzip"),
         plain("fletcher", chunks="odd", fletcher32=True), plain("all", chunks="odd", shuffle=True, fletcher32=True, compression="gzip"), plain("lzf", chunks="odd", compression="lzf"), plain("lzfshuffle", chunks=True, shuffle=True, compression="lzf"), plain("v108", ("earliest", "v108")),
         plain("v108gzip", ("earliest", "v108"), chunks="odd", compression="gzip"), plain("latest", "latest"), plain("latest108", ("v108", "v108")), ("many", many, "earliest"), ("grown", grown, "earliest"), ("robomimic", mimic, "earliest"), ("put_the_bowl_demo", libero, "earliest"), ("episode_0", aloha, "earliest"),
         ("episode_1", aloha, "earliest"), plain("v110", ("earliest", "v110")), plain("compact")]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    golden = {}
    for name, make, libver in FILES:
        path = OUT / f"{name}.hdf5"
        path.unlink(missing_ok=True)
        with h5py.File(path, "w", libver=libver) as f:
            make(f)
        have = {}
        with h5py.File(path) as f:
            f.visititems(lambda n, o: have.update({n: dict(shape=o.shape, values=np.asarray(o[...], "f8").ravel().tolist())}) if isinstance(o, h5py.Dataset) and name != "many" else None)
            attrs = {k: v for k, v in f["deep"].attrs.items() if isinstance(v, str)} if "deep" in f else {}
            golden[name] = dict(data=have, names=sorted(f), attrs=attrs)
    (OUT / "golden.json").write_text(json.dumps(golden))
    print(len(FILES), sum(p.stat().st_size for p in OUT.iterdir()))


if __name__ == "__main__":
    main()
