"""Writes actors/host/testdata/peft_begin.json: of golden models with PEFT's PiSSA and OLoRA, the sizes of the first A and B of a layer, and the losses of
five steps of AdamW in float32 and in float64. With --load DIR it prints as JSON the losses of the adapters that TestPEFTBegins wrote there, on the plain models.

Run from the repository's root:
  python bench/golden/peft_begin.py
  go test ./actors/host -run PEFTBegins -adapters /tmp/begun && python bench/golden/peft_begin.py --load /tmp/begun
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

BASE = pathlib.Path("stages/family/testdata")
IDS = torch.tensor([[(7 * i + 3) % 29 for i in range(24)]])
MODULES = {"llama3.1": ["q_proj", "v_proj"], "qwen2-tied": ["k_proj", "down_proj"], "qwen3": ["o_proj", "up_proj"], "gemma2": ["q_proj", "gate_proj"],
           "olmo2": ["v_proj", "o_proj"], "mistral": ["q_proj", "down_proj"]}
FORMS = {"pissa": {}, "olora": {}, "pissa rslora": {"use_rslora": True}, "olora ranks": {"rank_pattern": {r"layers\.0\..*": 3}, "alpha_pattern": {r"layers\.1\..*": 5}}}


def loss(model):
    return F.cross_entropy(model(input_ids=IDS, use_cache=False).logits[0, :-1], IDS[0, 1:])


def base(name):
    return AutoModelForCausalLM.from_pretrained(BASE / name, attn_implementation="eager", dtype=torch.float32).eval()


def steps(name, form, dtype):
    torch.manual_seed(1)
    config = LoraConfig(r=2, lora_alpha=6, target_modules=MODULES[name], init_lora_weights=form.split()[0], **FORMS[form])
    model = get_peft_model(base(name), config).eval().to(dtype)
    learns = {n: p for n, p in model.named_parameters() if p.requires_grad}
    first = {n.removeprefix("base_model.model.").replace(".default", ""): p.detach().abs().flatten().tolist() for n, p in list(learns.items())[:2]}
    optimizer = torch.optim.AdamW(learns.values(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(5):
        x = loss(model)
        optimizer.zero_grad()
        x.backward()
        optimizer.step()
        losses.append(x.item())
    return losses, first


if len(sys.argv) > 2:
    with torch.no_grad():
        print(json.dumps({p.parent.name + "/" + p.name: loss(PeftModel.from_pretrained(base(p.parent.name), p).eval()).item() for p in pathlib.Path(sys.argv[2]).glob("*/*")}))
else:
    out = {}
    for name in MODULES:
        for form in FORMS:
            losses, first = steps(name, form, torch.float32)
            out[f"{name}/{form}"] = {"losses": losses + steps(name, form, torch.float64)[0], "first": first if form == "pissa" or form == "olora" else {}}
            print(name, form, losses, flush=True)
    pathlib.Path("actors/host/testdata/peft_begin.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")
