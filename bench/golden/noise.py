"""Golden data of stages/noise: diffusers' schedulers step by step on a sample of four numbers.

Writes stages/noise/testdata/steps.json: pools of denoiser outputs and noise that all cases share, and for each case its
scheduler_config.json, times, levels and the sample after each step. Needs diffusers 0.42.1, torch and scipy.
Run from the repository's root.
"""

import json
import pathlib

import diffusers
import numpy as np
import torch
from scipy.stats import norm

rng = np.random.default_rng(7)
OUT = rng.standard_normal((99, 4)).astype(np.float32)
NOISE = rng.standard_normal((99, 4)).astype(np.float32)
START = rng.standard_normal(4).astype(np.float32)
SL = dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
ZERO = dict(timestep_spacing="trailing", rescale_betas_zero_snr=True)
V = dict(prediction_type="v_prediction")
FLOW = dict(prediction_type="flow_prediction", use_flow_sigmas=True)
FM, DPM, UNI, EUL = ("FlowMatchEulerDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler",
                     "EulerDiscreteScheduler")
CASES = [(FM, {}, 6, {}), (FM, dict(shift=3.0), 20, {}), (FM, dict(shift=3.0, use_karras_sigmas=True), 8, {}),
         (FM, dict(shift=3.0, use_exponential_sigmas=True), 8, {}), (FM, dict(shift=2.0, use_beta_sigmas=True), 8, {}),
         (FM, dict(use_dynamic_shifting=True, shift_terminal=0.02, max_shift=0.9, max_image_seq_len=8192), 6,
          dict(sigmas=[1.0, 0.84, 0.68, 0.52, 0.36, 0.2], mu=0.6935484)),
         (FM, dict(use_dynamic_shifting=True, time_shift_type="linear"), 6, dict(mu=1.2)),
         (FM, dict(stochastic_sampling=True, shift=3.0), 10, {}), (FM, dict(invert_sigmas=True), 6, {})]
for spacing in ("linspace", "leading", "trailing"):
    for c in ("DDPMScheduler", "DDIMScheduler"):
        CASES.append((c, dict(SL, timestep_spacing=spacing), 50, {}))
    for c in (DPM, UNI, EUL, "HeunDiscreteScheduler"):
        CASES.append((c, dict(SL, timestep_spacing=spacing), 12, {}))
for variance in ("fixed_small_log", "fixed_large", "learned_range"):
    CASES.append(("DDPMScheduler", dict(variance_type=variance, beta_schedule="squaredcos_cap_v2"), 10, {}))
for p in ("sample", "v_prediction"):
    for c in ("DDPMScheduler", "DDIMScheduler"):
        CASES.append((c, dict(SL, prediction_type=p, **ZERO), 10, {}))
    for c in (DPM, UNI, EUL):
        CASES.append((c, dict(SL, prediction_type=p, **ZERO), 10, {}))
    CASES.append(("HeunDiscreteScheduler", dict(SL, prediction_type=p), 10, {}))
CASES += [("DDPMScheduler", dict(beta_schedule="sigmoid", thresholding=True, sample_max_value=3.0), 10, {}),
          ("DDPMScheduler", dict(beta_schedule="laplace"), 10, {}),
          ("DDIMScheduler", dict(SL, clip_sample=False, set_alpha_to_one=False, steps_offset=1), 20, {}),
          ("DDIMScheduler", dict(clip_sample_range=2.0), 10, dict(eta=0.7, clipped=True)),
          ("DDIMScheduler", dict(beta_schedule="squaredcos_cap_v2"), 10, dict(eta=1.0))]
for order in (1, 2, 3):
    for n in (6, 20, 50):
        CASES.append((DPM, dict(SL, solver_order=order), n, {}))
        CASES.append((UNI, dict(SL, solver_order=order), n, {}))
    for kind in ("midpoint", "heun"):
        CASES.append((DPM, dict(SL, solver_order=order, solver_type=kind, algorithm_type="sde-dpmsolver++"), 20, {}))
    CASES.append((UNI, dict(FLOW, flow_shift=5.0, solver_order=order), 20, {}))
    CASES.append((DPM, dict(FLOW, flow_shift=3.0, solver_order=order), 20, {}))
    CASES.append((UNI, dict(SL, predict_x0=False, final_sigmas_type="sigma_min", solver_order=order), 10, {}))
for curve in ("karras", "exponential", "beta"):
    for c in (DPM, UNI, EUL, "HeunDiscreteScheduler"):
        CASES.append((c, dict(SL, **{f"use_{curve}_sigmas": True}), 10, {}))
CASES += [(DPM, dict(SL, solver_type="heun"), 10, {}),
          (DPM, dict(SL, euler_at_final=True, final_sigmas_type="sigma_min"), 20, {}),
          (DPM, dict(SL, use_lu_lambdas=True), 10, {}),
          (DPM, dict(SL, lambda_min_clipped=-2.0), 10, {}),
          (DPM, dict(SL, thresholding=True, sample_max_value=2.0, lower_order_final=False), 10, {}),
          (UNI, dict(FLOW, flow_shift=3.0, use_karras_sigmas=True), 10, {}),
          (UNI, dict(FLOW, use_dynamic_shifting=True, shift_terminal=0.02), 10, dict(mu=0.7)),
          (UNI, dict(SL, disable_corrector=[0, 2]), 10, {}),
          (EUL, dict(SL, timestep_spacing="leading", steps_offset=1), 50, {}), (EUL, dict(SL), 10, dict(churn=3.0)),
          (EUL, dict(SL, interpolation_type="log_linear"), 10, {}),
          (EUL, dict(SL, **V, timestep_type="continuous"), 10, {}),
          (EUL, dict(SL, final_sigmas_type="sigma_min"), 10, {}),
          ("HeunDiscreteScheduler", dict(beta_schedule="exp", clip_sample=True), 10, {}),
          ("EDMEulerScheduler", {}, 18, {}), ("EDMEulerScheduler", dict(V, sigma_schedule="exponential"), 18, {}),
          ("EDMEulerScheduler", dict(final_sigmas_type="sigma_min", sigma_data=1.0), 6, dict(churn=4.0))]
for spacing in ("linspace", "leading", "trailing"):
    CASES += [("PNDMScheduler", dict(SL, skip_prk_steps=True, timestep_spacing=spacing), 12, {}),
              ("EulerAncestralDiscreteScheduler", dict(SL, timestep_spacing=spacing), 12, {})]
CASES += [("PNDMScheduler", dict(SL, skip_prk_steps=True, steps_offset=1), 50, {}),  # Stable Diffusion 1.5's
          ("PNDMScheduler", dict(SL, **V, skip_prk_steps=True, set_alpha_to_one=True), 10, {}),
          ("PNDMScheduler", dict(SL, skip_prk_steps=True), 1, {}), ("PNDMScheduler", dict(SL, skip_prk_steps=True), 2, {}),
          ("EulerAncestralDiscreteScheduler", dict(SL, **V, **ZERO), 10, {}),
          ("LCMScheduler", {}, 4, {}), ("LCMScheduler", dict(V, clip_sample=True, timestep_scaling=8.0), 7, {}),
          ("LCMScheduler", dict(original_inference_steps=100, thresholding=True), 1, {}),
          ("UnCLIPScheduler", {}, 10, {}), ("UnCLIPScheduler", dict(variance_type="learned_range"), 25, {}),
          ("UnCLIPScheduler", dict(prediction_type="sample", clip_sample_range=2.0), 8, {}),
          ("CogVideoXDDIMScheduler", dict(timestep_spacing="trailing", prediction_type="v_prediction", snr_shift_scale=1.0,
                                          rescale_betas_zero_snr=True), 12, {}),
          ("CogVideoXDDIMScheduler", {}, 50, {}), ("CogVideoXDDIMScheduler", dict(set_alpha_to_one=False, timestep_spacing="linspace"), 9, {}),
          ("FlowMatchHeunDiscreteScheduler", {}, 6, {}), ("FlowMatchHeunDiscreteScheduler", dict(shift=3.0), 10, {})]

noise_at = 0


def drawn(shape, **_):
    return torch.tensor(NOISE[noise_at]).reshape(shape)


for m in ("ddpm", "ddim", "ddpm_parallel", "ddim_parallel", "flow_match_euler_discrete", "euler_discrete", "edm_euler", "dpmsolver_multistep", "euler_ancestral_discrete", "lcm", "unclip"):
    getattr(diffusers.schedulers, f"scheduling_{m}").randn_tensor = drawn


def run(cls, config, n, extra):
    global noise_at
    s = getattr(diffusers, cls)(**config)
    s.set_timesteps(n if "sigmas" not in extra else None, **{k: extra[k] for k in ("sigmas", "mu") if k in extra})
    shape = (1, 2, 1, 2)
    scale = float(s.init_noise_sigma) if hasattr(s, "init_noise_sigma") else 1.0
    x = torch.tensor(START).reshape(shape) * scale
    more = {}
    if "eta" in extra:
        more = dict(eta=extra["eta"], use_clipped_model_output=extra.get("clipped", False))
    if "churn" in extra:
        more = dict(s_churn=extra["churn"])
    steps = []
    for i, t in enumerate(s.timesteps):
        noise_at = i
        if hasattr(s, "scale_model_input"):
            s.scale_model_input(x, t)
        o = torch.tensor(OUT[i]).reshape(shape)
        if config.get("variance_type") == "learned_range":
            o = torch.cat([o, torch.tensor(OUT[i + 1]).reshape(shape).clamp(-1, 1)], 1)
        if cls == "UnCLIPScheduler":  # as its pipelines say it
            more = dict(prev_timestep=s.timesteps[i + 1] if i + 1 < len(s.timesteps) else None)
        x = s.step(o, t, x, **more).prev_sample
        steps.append([float(v) for v in x.flatten()])
    sigmas = [float(v) for v in s.sigmas] if hasattr(s, "sigmas") else []
    return dict(config=json.loads(s.to_json_string().replace("-Infinity", '"-Infinity"')), steps=n, extra=extra,
                scale=scale, times=[float(t) for t in s.timesteps], sigmas=sigmas, x=steps)


def mix(z):
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) % 2**64
    return z ^ z >> 31


def normal(sample, draw, e):
    g = 0x9E3779B97F4A7C15
    w = mix((mix((sample + (draw + 1) * g) % 2**64) + e * g) % 2**64)
    return float(norm.ppf(((w >> 11) + 0.5) / 2**53))


def short(v):
    if isinstance(v, float):
        return float(f"{v:.8g}")
    return [short(w) for w in v] if isinstance(v, list) else v


cases = []
for case in CASES:
    r = run(*case)
    assert np.isfinite(r["x"]).all(), case
    if case[0] in ("DDPMScheduler", "DDIMScheduler"):  # the test runs these cases under the parallel classes too
        assert run(case[0].replace("Scheduler", "ParallelScheduler"), *case[1:])["x"] == r["x"], case
    cases.append({k: v if k in ("config", "extra") else short(v) for k, v in r.items()})
path = pathlib.Path("stages/noise/testdata/steps.json")
path.parent.mkdir(parents=True, exist_ok=True)
normals = [[normal(k, d, e) for e in range(4)] for k, d in ((0, 0), (1, 0), (2**63 + 5, 7))]
head = dict(start=START.tolist(), out=OUT.tolist(), noise=NOISE.tolist(), normals=normals)
lines = [json.dumps(head)[:-1] + ', "cases": [']
lines.append(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
path.write_text("\n".join(lines) + "\n]}\n")
print(len(cases), path.stat().st_size)
