"""Golden data of LoRA: peft's adapters on the tiny qwen2 model of stages/family/testdata, with loss and gradients.

Writes actors/host/testdata/lora/: a PEFT directory (adapter_config.json, adapter_model.safetensors) with random A and B, and
golden.safetensors with grad.<adapter tensor>, golden.json with the loss. The batch is the model's own golden batch.
Run from the repository's root.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

BASE, OUT = pathlib.Path("stages/family/testdata/qwen2"), pathlib.Path("actors/host/testdata/lora")
golden = load_file(BASE / "golden.safetensors")
ids, positions, targets = (golden[k].long() for k in ("ids", "positions", "targets"))
document = torch.cumsum((positions == 0).long(), 1)
seen = (document[:, :, None] == document[:, None, :]) & torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]

model = AutoModelForCausalLM.from_pretrained(BASE, attn_implementation="eager", dtype=torch.float32)
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"], task_type="CAUSAL_LM"))
gen = torch.Generator().manual_seed(5)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "lora_" in name:
            p.copy_(torch.randn(p.shape, generator=gen) * 0.2)
logits = model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits
loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
loss.backward()
OUT.mkdir(parents=True, exist_ok=True)
model.save_pretrained(OUT)
(OUT / "README.md").unlink(missing_ok=True)
grads = {"grad." + n.replace(".default", ""): p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
save_file(grads, OUT / "golden.safetensors")
(OUT / "golden.json").write_text(json.dumps(dict(loss=loss.item(), tensors=len(grads))) + "\n")
