"""Write a JSON file of diffusers' schedulers step by step, as noise.py does, with each key of each class altered alone, for
`go test ./stages/noise -run TestSchedulerKeys -long`.

Run: python bench/golden/noise_keys.py OUT [CLASS…]. Needs diffusers (made with 0.42.1), torch and scipy.
"""
import inspect
import json
import pathlib
import sys
import types
import warnings

args, space = sys.argv[1:], {}
exec(pathlib.Path(__file__).with_name("noise.py").read_text().split("\ncases = []")[0], space)  # without what it writes
cases = types.SimpleNamespace(**space)

WORDS = dict(beta_schedule=["linear", "scaled_linear", "squaredcos_cap_v2", "sigmoid", "exp", "laplace"], prediction_type=["epsilon", "sample", "v_prediction", "flow_prediction"],
             timestep_spacing=["linspace", "leading", "trailing"], variance_type=["fixed_small", "fixed_small_log", "fixed_large", "fixed_large_log", "learned", "learned_range"],
             solver_type=["midpoint", "heun", "bh1", "bh2", "logrho"], algorithm_type=["dpmsolver", "dpmsolver++", "sde-dpmsolver", "sde-dpmsolver++"],
             final_sigmas_type=["zero", "sigma_min"], interpolation_type=["linear", "log_linear"], timestep_type=["discrete", "continuous"], time_shift_type=["exponential", "linear"],
             sigma_schedule=["karras", "exponential"])
NUMBERS = dict(num_train_timesteps=[500], solver_order=[1, 2, 3], trained_betas=[[0.01 * i for i in range(1, 41)]], disable_corrector=[[0, 1]], shift_terminal=[0.1], sigma_min=[0.05],
               sigma_max=[60.0], lambda_min_clipped=[-2.0], original_inference_steps=[100], dynamic_thresholding_ratio=[0.5], max_shift=[2.0], base_shift=[0.1])


def other(key, v):
    if key in WORDS:
        return [w for w in WORDS[key] if w != v]
    if key in NUMBERS:
        return NUMBERS[key]
    if isinstance(v, bool) or v is None:
        return [not v]
    return [v + 1] if isinstance(v, int) else [v * 1.5 + 0.01] if isinstance(v, float) else []


def main():
    warnings.simplefilter("ignore")
    out = []
    for name in args[1:]:
        usual = {k: p.default for k, p in inspect.signature(getattr(cases.diffusers, name).__init__).parameters.items() if p.default is not inspect._empty}
        bases = [{}, {"thresholding": True}] if "thresholding" in usual else [{}]
        if name == "PNDMScheduler":
            bases = [{"skip_prk_steps": True}]
        for base in bases:
            for key, v in {"": None, **usual}.items():
                for w in other(key, base.get(key, v)) if key else [None]:
                    config, one = base | ({key: w} if key else {}), {"key": key, "value": json.dumps(w)}
                    try:
                        mu = {"mu": 0.7} if config.get("use_dynamic_shifting") else {}
                        one |= cases.run(name, config, 5, mu)
                        json.dumps(one, allow_nan=False)
                    except Exception as e:  # whatever the library raises
                        one = {"key": key, "value": json.dumps(w), "error": f"{type(e).__name__}: {e}"[:200], "config": {"_class_name": name} | config}
                    try:  # with flow matching's levels it is not what noise is mixed by
                        if not config.get("use_flow_sigmas"):
                            one["bars"] = getattr(getattr(cases.diffusers, name)(**config), "alphas_cumprod", cases.torch.zeros(0)).flip(0).tolist()[::37]
                    except Exception:  # it has none
                        pass
                    out.append(one)
    doc = {"start": cases.START.tolist(), "out": cases.OUT.tolist(), "noise": cases.NOISE.tolist(), "cases": out}
    pathlib.Path(args[0]).write_text(json.dumps(doc, default=lambda x: x.tolist()))
    print(f"{len(out)} configurations of {len(args) - 1} schedulers; {sum('error' in c for c in out)} that diffusers cannot run")


main()
