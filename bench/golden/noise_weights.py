"""Golden data of the weights of losses by noise level, and of the draws of levels: stages/noise/testdata/weights.json.

For levels of diffusers' schedulers: the weight by each kind and target, of diffusers' compute_loss_weighting_for_sd3 and compute_snr
where it has them; bell and edm, which it has not, are their papers' and trainers' formulas written out in NumPy. Of draws: quantiles of
the levels that diffusers' compute_density_for_timestep_sampling and the policies' Beta give, of 200,000 each. Needs diffusers 0.42.1,
torch, scipy. Run from the repository's root.
"""

import json
import pathlib

import diffusers
import numpy as np
import torch
from diffusers.training_utils import compute_density_for_timestep_sampling as density
from diffusers.training_utils import compute_loss_weighting_for_sd3, compute_snr
from scipy.stats import beta, norm

AT = [1, 7, 120, 333, 500, 501, 777, 950, 999]  # numbers of the tables, which run from noise to data
cases = []
for shift in (1.0, 3.0, 5.0):
    config = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": shift}
    s = diffusers.FlowMatchEulerDiscreteScheduler.from_config(config)
    for kind in ("none", "sigma_sqrt", "cosmap"):
        w = compute_loss_weighting_for_sd3(kind, s.sigmas[AT])
        cases.append(dict(config=config, kind=kind, target="flow", at=AT, weights=w.tolist()))
    t = s.timesteps.double().numpy()
    y = np.exp(-2 * ((t - 500) / 1000) ** 2)
    y = (y - y.min()) * 1000 / (y - y.min()).sum()
    cases.append(dict(config=config, kind="bell", target="flow", at=AT, weights=y[AT].tolist()))
config = {"_class_name": "DDPMScheduler", "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012,
          "beta_schedule": "scaled_linear"}
s = diffusers.DDPMScheduler.from_config(config)
snr = compute_snr(s, torch.tensor([999 - i for i in AT])).double().numpy()
for gamma in (5, 1):
    for target, below in (("epsilon", snr), ("v_prediction", snr + 1), ("sample", np.ones_like(snr))):
        cases.append(dict(config=config, kind="min_snr", gamma=gamma, target=target, at=AT,
                          weights=(np.minimum(snr, gamma) / below).tolist()))
config = {"_class_name": "EDMEulerScheduler", "sigma_data": 0.5}
sigma = np.exp(-1.2 + 1.2 * norm.ppf(1 - (np.array(AT) + 0.5) / 1000))
cases.append(dict(config=config, kind="edm", target="sample", at=AT, weights=((sigma ** 2 + 0.25) / (sigma * 0.5) ** 2).tolist()))
cases.append(dict(config=config, kind="edm", target="edm", at=AT, weights=[1.0] * len(AT)))

SHARES = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
torch.manual_seed(5)
rng = np.random.default_rng(5)
n = 200_000
draws = [dict(times={"Kind": "uniform"}, u=rng.random(n))]
for mean, std in ((0, 1), (0.5, 1), (-1, 0.7)):
    draws.append(dict(times={"Kind": "logit_normal", "Mean": mean, "Std": std},
                      u=density("logit_normal", n, logit_mean=mean, logit_std=std).numpy()))
for scale in (1.29, 0.5, -0.8):
    draws.append(dict(times={"Kind": "mode", "Scale": scale}, u=density("mode", n, mode_scale=scale).numpy()))
for shift in (3.0, 0.5):
    s = 1 - rng.random(n)
    draws.append(dict(times={"Kind": "shifted", "Shift": shift}, u=1 - shift * s / (1 + (shift - 1) * s)))
u = density("mode", n, mode_scale=1.29).numpy()
s = 1 - u
draws.append(dict(times={"Kind": "waver", "Shift": 3.0}, u=1 - 3 * s / (1 + 2 * s)))
for a, b in ((1.5, 1), (1, 2.5)):
    draws.append(dict(times={"Kind": "beta", "Alpha": a, "Beta": b}, u=1 - beta.ppf(rng.random(n), a, b)))
out = pathlib.Path("stages/noise/testdata/weights.json")
out.write_text(json.dumps(dict(cases=cases, shares=SHARES, draws=[
    dict(times=d["times"], quantiles=[round(float(x), 5) for x in np.quantile(d["u"], SHARES)]) for d in draws])) + "\n")
print(len(cases), len(draws))
