"""Writes stages/checkpoint/quant/testdata/merge: a small model's weights (base.safetensors), and for each kind of additions a directory as PEFT saves it,
with want.safetensors, the tensors that PEFT's merge_and_unload changes.

Run from the repository's root: python bench/golden/peft_merge.py
"""

import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers.pytorch_utils import Conv1D

DIR = pathlib.Path("stages/checkpoint/quant/testdata/merge")


class Layer(torch.nn.Module):
    def __init__(self, turned):
        super().__init__()
        make = (lambda o, i: Conv1D(o, i)) if turned else (lambda o, i: torch.nn.Linear(i, o))
        self.up, self.down = make(10, 6), make(6, 10)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Small(torch.nn.Module):
    def __init__(self, turned=False):
        super().__init__()
        self.embed = torch.nn.Embedding(9, 6)
        self.layers = torch.nn.ModuleList(Layer(turned) for _ in range(2))
        self.head = torch.nn.Linear(6, 9, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


CASES = dict(
    plain=dict(target_modules=["up", "down"], lora_alpha=6),
    root=dict(target_modules=["up"], lora_alpha=6, use_rslora=True),
    dora=dict(target_modules=["up", "down"], lora_alpha=6, use_dora=True),
    patterns=dict(target_modules=["up", "down", "head"], rank_pattern={"layers.0.up": 3, r".*\.down": 1}, alpha_pattern={"^layers.1.up$": 5, "head": 7}),
    table=dict(target_modules=["embed", "up"], modules_to_save=["head"], lora_alpha=3),
    turned=dict(target_modules=["up", "down"], fan_in_fan_out=True, lora_alpha=5),
)


def main():
    shutil.rmtree(DIR, ignore_errors=True)
    torch.manual_seed(1)
    for name, options in CASES.items():
        model = Small(turned=name == "turned")
        if name in ("plain", "turned"):
            base = {k: v.clone() for k, v in model.state_dict().items()}
            (DIR / name).mkdir(parents=True)
            save_file(base, DIR / ("turned.safetensors" if name == "turned" else "base.safetensors"))
        else:
            model.load_state_dict(base)
        wrapped = get_peft_model(model, LoraConfig(r=2, **options))
        with torch.no_grad():
            for n, p in wrapped.named_parameters():
                if "lora_" in n or "modules_to_save" in n:
                    p.copy_(torch.randn(p.shape).abs() + 0.1 if "magnitude" in n else torch.randn(p.shape))
        wrapped.save_pretrained(DIR / name)
        (DIR / name / "README.md").unlink(missing_ok=True)
        merged = {k: v.contiguous() for k, v in wrapped.merge_and_unload().state_dict().items()}
        save_file({k: v for k, v in merged.items() if not torch.equal(v, base[k])}, DIR / name / "want.safetensors")
        print(name, [k for k, v in merged.items() if not torch.equal(v, base[k])])
        conf = json.loads((DIR / name / "adapter_config.json").read_text())
        (DIR / name / "adapter_config.json").write_text(json.dumps(conf, indent=1, sort_keys=False) + "\n")
        if name == "plain":
            base = {k: v.clone() for k, v in base.items()}


if __name__ == "__main__":
    main()
