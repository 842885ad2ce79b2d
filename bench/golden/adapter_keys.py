"""Print, as a line of JSON each, the keys of PEFT's adapter_config.json with a value, and whether the merged weights of a small model move with it,
for `go test ./stages/checkpoint/quant -run TestAdapterKeys -long`.

Run: python bench/golden/adapter_keys.py. Needs torch and peft (made with 0.21).
"""
import copy
import dataclasses
import json
import pathlib
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

VALUES = dict(r=[8], lora_alpha=[3], use_rslora=[True], rank_pattern=[{"k": 8}], alpha_pattern=[{"layers.0.q": 3}], use_dora=[True], fan_in_fan_out=[True], bias=["all", "lora_only"],
              modules_to_save=[["head"]], lora_bias=[True], init_lora_weights=[False, "gaussian", "pissa", "olora", "eva", "loftq"], lora_dropout=[0.3], inference_mode=[False],
              base_model_name_or_path=["x"], revision=["x"], task_type=["CAUSAL_LM"], auto_mapping=[{"base_model_class": "x"}], peft_version=["0.1"], exclude_modules=[["k"]],
              layers_to_transform=[[0]], layers_pattern=["layers"], target_modules=[["q"], "all-linear"], target_parameters=[["layers.0.q.weight"]], layer_replication=[[[0, 1], [0, 1]]],
              ensure_weight_tying=[True], trainable_token_indices=[[1]], megatron_config=[{"a": 1}], megatron_core=["x"], loftq_config=[{"loftq_bits": 4}], runtime_config=[{"ephemeral_gpu_offload": True}],
              qalora_group_size=[4], use_qalora=[True], alora_invocation_tokens=[[1, 2]], arrow_config=[{"top_k": 1}], use_bdlora=[{"nblocks": 2}], eva_config=[{"rho": 2.0}], corda_config=[{"cov": 1}],
              lora_ga_config=[{"direction": "x"}], unknown_key=[3], peft_type=["IA3"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleDict({"q": nn.Linear(8, 8), "k": nn.Linear(8, 8)}) for _ in range(2)])
        self.head = nn.Linear(8, 4)


def merged(net, folder):
    m = PeftModel.from_pretrained(copy.deepcopy(net), folder).merge_and_unload()
    return {k: v.clone() for k, v in m.state_dict().items()}


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    net = Net()
    model = get_peft_model(copy.deepcopy(net), LoraConfig(r=4, lora_alpha=8, target_modules=["q", "k"]))
    for n, p in model.named_parameters():
        if "lora" in n:
            nn.init.normal_(p)
    with tempfile.TemporaryDirectory() as d:
        model.save_pretrained(d)
        path = pathlib.Path(d) / "adapter_config.json"
        base = json.loads(path.read_text())
        was = merged(net, d)
        print(json.dumps({"keys": sorted({f.name for f in dataclasses.fields(LoraConfig)} | set(base)), "base": base}))
        for key, values in VALUES.items():
            for v in values:
                path.write_text(json.dumps(base | {key: v}))
                one = {"key": key, "value": v}
                try:
                    now = merged(net, d)
                    one["moved"] = set(now) != set(was) or any(now[k].shape != was[k].shape or not torch.allclose(now[k], was[k]) for k in was)
                except Exception as e:  # whatever the library raises
                    one["error"] = f"{type(e).__name__}: {e}"[:150]
                print(json.dumps(one), flush=True)


main()
