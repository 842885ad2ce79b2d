"""Loads an adapter of every golden model with PEFT's own loader, and writes stages/trained/testdata/peft.json: for each model the
tensors, with their shapes, that arrived in layers of the model as transformers builds it. An adapter of the wrong name is only
a warning to PEFT; here it is an assertion, as are weights of zero and a scale that is not alpha/r.

Run from the repository's root:
  go test ./stages/family/all -run PEFT -adapters /tmp/adapters && python bench/golden/peft_load.py /tmp/adapters
"""

import json
import pathlib
import sys
import warnings

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import ernie_vl  # noqa: F401: its models are among vlm_golden's
import family_golden
import vlm_golden

TESTDATA = pathlib.Path("stages/family/testdata")


def skeleton(path):
    """The linear layers of a checkpoint under its own names: those of the modules of Kimi's own code, which transformers renames and cuts."""
    root = torch.nn.Module()
    for key, w in load_file(path / "model.safetensors").items():
        if key.endswith(".weight") and w.dim() == 2:
            at, words = root, key.split(".")[:-1]
            for word in words[:-1]:
                if not hasattr(at, word):
                    at.add_module(word, torch.nn.Module())
                at = getattr(at, word)
            at.add_module(words[-1], torch.nn.Linear(w.shape[1], w.shape[0]))
    return root


def build(name):
    if name == "kimi-k2.5":
        return skeleton(TESTDATA / name)
    if name in vlm_golden.CASES:
        make, config = vlm_golden.CASES[name]()
        return make(config)
    kind = json.loads((TESTDATA / name / "config.json").read_text())["model_type"]
    if kind in ("qwen", "internlm2", "mimo", "baichuan"):
        family, changes, _ = family_golden.CASES[name]
        return family_golden.make(family, changes)[0]
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(TESTDATA / name))


def load(name, path):
    model = build(name)
    if not hasattr(model, "prepare_inputs_for_generation"):  # PEFT asks models of task CAUSAL_LM for it
        model.prepare_inputs_for_generation = None
    if not hasattr(model, "config"):
        model.config = dict(model_type="own")
    wrapped = PeftModel.from_pretrained(model, path)
    want = load_file(path / "adapter_model.safetensors")
    have = {n.replace(".default", ""): p for n, p in wrapped.named_parameters() if ".lora_" in n}
    assert set(have) == set(want), (name, sorted(set(have) ^ set(want))[:4])
    for n, p in have.items():
        assert torch.equal(p, want[n]) and p.abs().sum() > 0, (name, n)
    for n, m in wrapped.named_modules():
        if hasattr(m, "lora_A"):
            assert m.scaling["default"] == 3, (name, n, m.scaling)
    nonzero = sum(int((p != 0).sum()) for p in have.values())
    print(f"{name}: {len(have)} tensors, {nonzero} weights that are not zero")
    return {n: list(p.shape) for n, p in sorted(have.items())}


def main():
    warnings.simplefilter("error", UserWarning)  # of missing keys
    warnings.filterwarnings("ignore", message=".*base_model_name_or_path.*|.*config file.*|.*vocab.*|.*__array_wrap__.*|fan_in_fan_out is set.*")
    out = {path.name: load(path.name, path) for path in sorted(pathlib.Path(sys.argv[1]).iterdir())}
    pathlib.Path("stages/trained/testdata/peft.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")


if __name__ == "__main__":
    main()
