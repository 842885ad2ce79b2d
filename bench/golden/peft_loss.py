"""Writes actors/host/testdata/peft_loss.json: the losses of golden models with the adapters that TestPEFTLosses wrote, loaded by PEFT.
With --trained it writes DIR/losses.json: the losses of four steps of AdamW from the adapters of DIR, which TestPEFTTrained wrote.

Run from the repository's root:
  go test ./actors/host -run PEFTLosses -adapters /tmp/adapters && python bench/golden/peft_loss.py /tmp/adapters
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

BASE = pathlib.Path("stages/family/testdata")
IDS = torch.tensor([[(7 * i + 3) % 29 for i in range(24)]])


def main():
    out = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*/*")):
        name = path.parent.name
        model = AutoModelForCausalLM.from_pretrained(BASE / name, attn_implementation="eager", dtype=torch.float32).eval()
        plain = F.cross_entropy(model(input_ids=IDS, use_cache=False).logits[0, :-1].float(), IDS[0, 1:]).item()
        model = PeftModel.from_pretrained(model, path).eval()
        want = load_file(path / "adapter_model.safetensors")
        have = {n.replace(".default", ""): p for n, p in model.named_parameters() if ".lora_" in n}
        assert set(have) == set(want), (name, path.name, sorted(set(have) ^ set(want))[:4])
        with torch.no_grad():
            loss = F.cross_entropy(model(input_ids=IDS, use_cache=False).logits[0, :-1].float(), IDS[0, 1:]).item()
        assert abs(loss - plain) > 1e-4, (name, path.name, loss, plain)
        out[f"{name}/{path.name}"] = loss
        print(f"{name}/{path.name}: {loss:.6f}, without {plain:.6f}, {len(have)} tensors", flush=True)
    pathlib.Path("actors/host/testdata/peft_loss.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {v!r}" for k, v in out.items()) + "\n}\n")


def steps(path, dtype):
    """The losses of four steps, and the names of what learns."""
    model = AutoModelForCausalLM.from_pretrained(BASE / path.parent.name, attn_implementation="eager", dtype=torch.float32)
    model = PeftModel.from_pretrained(model, path, is_trainable=True).eval().to(dtype)
    learns = {n: p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(learns.values(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    losses = []
    for _ in range(4):
        loss = F.cross_entropy(model(input_ids=IDS, use_cache=False).logits[0, :-1], IDS[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {n.replace(".default", "").replace(".modules_to_save", "").replace("vector.weight", "vector") for n in learns}


def trained(out):
    losses = {}
    for path in sorted(out.glob("*/*")):
        name = f"{path.parent.name}/{path.name}"
        want = set(load_file(path / "adapter_model.safetensors"))
        losses[name], have = steps(path, torch.float32)
        losses[name] += steps(path, torch.float64)[0]
        tied = {"base_model.model.lm_head.weight"} if json.loads((path / "adapter_config.json").read_text()).get("ensure_weight_tying") else set()
        if have | tied != want | tied:
            raise SystemExit(f"{name}: {sorted(have ^ want)[:4]}")
    (out / "losses.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {v}" for k, v in losses.items()) + "\n}\n")


if __name__ == "__main__":
    trained(pathlib.Path(sys.argv[2])) if sys.argv[1] == "--trained" else main()
