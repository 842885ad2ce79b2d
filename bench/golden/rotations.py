"""Golden data of rotations and relative actions: stages/policies/testdata/rotations.json, by SciPy. From the repository, with
scipy in the environment: python bench/golden/rotations.py

Relative and delta actions follow openpi's DeltaActions (transforms.py) for numbers, and T_state^-1 T_action for rotations."""

import json
import pathlib

import numpy as np
from scipy.spatial.transform import Rotation as R

rng = np.random.default_rng(7)
turns = [R.identity(), R.from_rotvec([1e-9, 0, 0]), R.from_rotvec([0, np.pi - 1e-6, 0]), R.from_rotvec([0.6 * np.pi, -0.8 * np.pi, 0]),
         R.from_rotvec([0, 0, np.pi])] + list(R.random(40, random_state=3))


def forms(r):
    m = r.as_matrix()
    return {"matrix": m.flatten().tolist(), "6d": np.concatenate([m[:, 0], m[:, 1]]).tolist(), "quaternion": r.as_quat(canonical=True).tolist(),
            "axis_angle": r.as_rotvec().tolist(), "euler": r.as_euler("xyz").tolist()}


def pose(r, xyz, gripper):
    return np.concatenate([xyz, r.as_euler("xyz"), [gripper]])


def six(r):
    m = r.as_matrix()
    return np.concatenate([m[:, 0], m[:, 1]])


start, xyz = R.random(random_state=11), rng.normal(size=3)
steps = [(R.random(random_state=20 + i), rng.normal(size=3), float(i % 2)) for i in range(4)]
relative = [np.concatenate([p - xyz, six(start.inv() * r), [g]]).tolist() for r, p, g in steps]
before, delta = (start, xyz), []
for r, p, g in steps:
    delta.append(np.concatenate([p - before[1], six(before[0].inv() * r), [g]]).tolist())
    before = (r, p)
# the state has its rotation as axis and angle, behind its place
out = dict(turns=[forms(r) for r in turns], state=np.concatenate([xyz, start.as_rotvec(), [0.5]]).tolist(),
           actions=[pose(*[s[0], s[1], s[2]]).tolist() for s in steps], relative=relative, delta=delta)
pathlib.Path("stages/policies/testdata/rotations.json").write_text(json.dumps(out) + "\n")
