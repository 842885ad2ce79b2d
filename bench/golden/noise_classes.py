"""Every scheduler class of diffusers 0.42.1: its keys with their defaults, and the noise it trains under where it has a table.

Writes stages/noise/testdata/classes.json from the sources of diffusers' schedulers: all classes that are both SchedulerMixin and ConfigMixin, and for those
that hold cumulative products of variances or levels of flow matching some of these, by their defaults and with the keys of MORE. Run from the repository's root.
"""

import ast
import json
import pathlib

import diffusers

AT = (0, 1, 250, 500, 750, 998, 999)
MORE = {"CogVideoXDDIMScheduler": dict(rescale_betas_zero_snr=True, snr_shift_scale=1.0, timestep_spacing="trailing"),  # CogVideoX's own files
        "CogVideoXDPMScheduler": dict(rescale_betas_zero_snr=True), "DDIMInverseScheduler": dict(beta_schedule="squaredcos_cap_v2"),
        "RePaintScheduler": dict(beta_schedule="sigmoid"), "UnCLIPScheduler": dict(num_train_timesteps=1000, variance_type="learned_range"),
        "DPMSolverMultistepInverseScheduler": dict(beta_schedule="squaredcos_cap_v2"), "FlowMatchLCMScheduler": dict(shift=3.0)}


def found():
    """Classes and the arguments of their constructors, as the sources have them."""
    folder = pathlib.Path(diffusers.__file__).parent / "schedulers"
    for path in sorted(folder.glob("**/scheduling_*.py")):
        for c in ast.parse(path.read_text()).body:
            if isinstance(c, ast.ClassDef) and {"SchedulerMixin", "ConfigMixin"} <= {b.id for b in c.bases if isinstance(b, ast.Name)}:
                yield c.name, next(f.args for f in c.body if isinstance(f, ast.FunctionDef) and f.name == "__init__")


def value(node):
    v = eval(compile(ast.Expression(node), "", "eval"))  # numbers, words and float("inf")
    return str(v).replace("-inf", "-Infinity") if isinstance(v, float) and v in (float("inf"), -float("inf")) else v


def levels(cls, **keys):
    """ᾱ at AT by the times of training, or σ of flow matching by its table."""
    s = cls(**keys)
    if hasattr(s, "alphas_cumprod"):
        return dict(keys=keys, bars=[float(s.alphas_cumprod[t]) for t in AT if t < len(s.alphas_cumprod)])
    if "Flow" in cls.__name__ and hasattr(s, "sigmas"):
        return dict(keys=keys, sigmas=[float(s.sigmas[t]) for t in AT])
    return None


out = {}
for name, a in found():
    args = [x.arg for x in a.args[1:]]
    defaults = dict(zip(args[len(args) - len(a.defaults):], (value(d) for d in a.defaults)))
    cls = getattr(diffusers, name, None)
    tables = [] if cls is None or len(defaults) < len(args) else [levels(cls, **k) for k in ({}, MORE.get(name)) if k is not None]
    out[name] = dict(keys={x: defaults.get(x) for x in args}, tables=[t for t in tables if t])
path = pathlib.Path("stages/noise/testdata/classes.json")
path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in sorted(out.items())) + "\n}\n")
print(len(out), "classes,", sum(bool(v["tables"]) for v in out.values()), "with tables")
