"""Real-time chunking as lerobot computes it: stages/policies/testdata/join.json, velocities of a step before and after they are guided.

LEROBOT=/path/to/lerobot python bench/golden/join.py
"""

import importlib
import json
import os
import pathlib
import sys
import types

import torch

root = pathlib.Path(os.environ["LEROBOT"]) / "src" / "lerobot"


class Schedule:
    ZEROS, ONES, LINEAR, EXP = range(4)


def empty(name, path=None, **names):
    m = types.ModuleType(name)
    m.__path__ = [str(path)] if path else []
    m.__dict__.update(names)
    sys.modules[name] = m


empty("lerobot", root)
empty("lerobot.configs", RTCAttentionSchedule=Schedule)
empty("lerobot.policies", root / "policies")
empty("lerobot.policies.rtc", root / "policies" / "rtc")
rtc = importlib.import_module("lerobot.policies.rtc.modeling_rtc")
config = importlib.import_module("lerobot.policies.rtc.configuration_rtc").RTCConfig(prefix_attention_schedule=Schedule.LINEAR)
g, cases = torch.Generator().manual_seed(3), []
for executed, delay, horizon, time in [(2, 1, 5, 1.0), (0, 2, 10, 0.7), (4, 0, 3, 0.1), (3, 9, 4, 0.3), (6, 1, 5, 0.5)]:
    x, v, before = (torch.randn(8, n, generator=g) for n in (4, 4, 3))
    out = rtc.RTCProcessor(config).denoise_step(x, before[executed:], delay, time, lambda _: v.unsqueeze(0), horizon)
    cases.append(dict(executed=executed, delay=delay, horizon=horizon, time=time, x=x.tolist(), v=v.tolist(), before=before.tolist(), want=out.tolist()))
pathlib.Path("stages/policies/testdata").mkdir(exist_ok=True)
text = json.dumps(cases).replace("}, {", "},\n {")
pathlib.Path("stages/policies/testdata/join.json").write_text(text + "\n")
