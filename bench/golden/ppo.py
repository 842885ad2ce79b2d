"""PPO as verl 0.9.1 computes it (TRL has none any more): kernels/objective/testdata/ppo.json.

    pip download --no-deps verl==0.9.1 && unzip verl-*.whl -d VERL
    /work/venv/bin/python bench/golden/ppo.py VERL kernels/objective/testdata/ppo.json

Of verl only core_algos.py and torch_functional.py are read; what they import of the rest is not needed by these functions.
"""
import __future__
import json
import sys
import types

import torch


def load(name, path, stubs):
    for stub in stubs:
        sys.modules.setdefault(stub, types.ModuleType(stub))
        sys.modules[stub].__path__ = []
        sys.modules[stub].__getattr__ = lambda key: (type(key, (), {}) if key[0].isupper() else
                                                     lambda *a, **k: a[0] if a and callable(a[0]) else lambda f: f)
    m = types.ModuleType(name)
    sys.modules[name] = m
    with open(path) as f:  # annotations name classes that are not there
        exec(compile(f.read(), path, "exec", flags=__future__.annotations.compiler_flag), m.__dict__)
    return m


root = sys.argv[1]
stubs = ["omegaconf", "tensordict", "verl", "verl.utils", "verl.trainer", "verl.trainer.config", "verl.utils.import_utils",
         "verl.utils.device", "verl.workers", "verl.workers.config"]
functional = load("verl.utils.torch_functional", root + "/verl/utils/torch_functional.py", stubs)
sys.modules["verl.utils"].torch_functional = functional
sys.modules["verl"].utils = sys.modules["verl.utils"]
core = load("core_algos", root + "/verl/trainer/ppo/core_algos.py", [])

torch.manual_seed(3)
N, T = 6, 7
lengths = [7, 3, 1, 5, 6, 2]
mask = torch.tensor([[1.0 if i < n else 0.0 for i in range(T)] for n in lengths])
old = -torch.rand(N, T) * 2
ref = old + (torch.rand(N, T) - 0.5) * 0.8
now = old + (torch.rand(N, T) - 0.5) * 0.8
worth = torch.rand(N, T) - 0.3
value = worth + (torch.rand(N, T) - 0.5) * 0.8
scores = torch.tensor([1.0, 0.0, 0.5, 1.0, 0.25, 0.0])


class Config(dict):
    __getattr__ = dict.get


cases = []
for kl, gamma, lam, clip in [(0.0, 1.0, 1.0, 0.5), (0.05, 0.99, 0.95, 0.2)]:
    rewards = -kl * core.kl_penalty(old, ref, "k1") * mask
    for i, n in enumerate(lengths):
        rewards[i, n - 1] += scores[i]
    adv, ret = core.compute_gae_advantage_return(rewards, worth, mask, gamma, lam)
    leaf, v = now.clone().requires_grad_(), value.clone().requires_grad_()
    policy, _ = core.compute_policy_loss_vanilla(
        old, leaf, adv, mask, "token-mean", Config(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.25,
                                                   clip_ratio_c=1e9, global_batch_info={}))
    policy.backward()
    worse, _ = core.compute_value_loss(v, ret, worth, mask, clip, "token-mean")
    worse.backward()
    cases.append({"kl": kl, "discount": gamma, "lambda": lam, "clip_value": clip, "advantages": adv.tolist(),
                  "returns": ret.tolist(), "loss": policy.item(), "gradient": leaf.grad.tolist(),
                  "value_loss": worse.item(), "value_gradient": v.grad.tolist()})
with open(sys.argv[2], "w") as f:
    json.dump({"lengths": lengths, "rewards": scores.tolist(), "logps": now.tolist(), "old": old.tolist(), "ref": ref.tolist(),
               "values": value.tolist(), "worth": worth.tolist(), "clip_low": 0.2, "clip_high": 0.25, "cases": cases},
              f, separators=(",", ":"))
print([(c["loss"], c["value_loss"]) for c in cases])
