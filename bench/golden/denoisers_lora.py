"""Golden data of adapters of models of diffusion: actors/host/testdata/diffusers-lora/<case>/ with pytorch_lora_weights.safetensors as the
pipeline of diffusers saves it, and golden.json: the losses of five steps of AdamW on the adapters alone, over the weights and samples of
stages/family/denoisers/testdata/<case>, and the sum of squares of each adapter's first gradient.

Run from the repository's root: python bench/golden/denoisers_lora.py [case ...], with torch, peft and diffusers 0.42.1.
With --load DIR CASE it has diffusers load an export of ours and prints the loss.
"""

import json
import pathlib
import shutil
import sys
import zlib

import diffusers
import torch
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file

from denoisers import CASES, ROOT

OUT = pathlib.Path("actors/host/testdata/diffusers-lora")
PIPELINES = {"wan": "WanPipeline", "flux": "FluxPipeline", "qwen-image": "QwenImagePipeline", "sd3.5": "StableDiffusion3Pipeline"}
TARGETS = {
    "wan": ["to_q", "to_k", "to_v", "to_out.0", "ffn.net.0.proj", "ffn.net.2"],
    "flux": ["to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "to_add_out", "ff.net.0.proj", "ff.net.2", "proj_mlp"],
    "qwen-image": ["to_q", "to_k", "to_v", "to_out.0", "add_k_proj", "to_add_out", "img_mlp.net.0.proj"],
    "sd3.5": ["to_q", "to_k", "to_v", "to_out.0", "add_k_proj", "to_add_out", "ff.net.0.proj", "ff_context.net.2"],
}


def losses(name, m):
    kind, how, config = CASES[name]
    t = load_file(ROOT / name / "golden.safetensors")
    meta = json.loads((ROOT / name / "golden.json").read_text())["samples"]
    rows, total = sum(s["tokens"] for s in meta), 0.0
    for i, s in enumerate(meta):
        x0, eps, sigma = t[f"x0.{i}"], t[f"noise.{i}"], s["sigma"]
        y = how.predict(m, (1 - sigma) * x0 + sigma * eps, t[f"text.{i}"], sigma, t.get(f"pool.{i}"))
        total = total + ((y - (eps - x0)) ** 2).mean() * s["tokens"] / rows
    return total


def model(name):
    return getattr(diffusers, CASES[name][0]).from_pretrained(ROOT / name)


def case(name):
    g = torch.Generator().manual_seed(zlib.crc32(b"lora" + name.encode()))
    m = model(name)
    config = LoraConfig(r=3, lora_alpha=5, target_modules=TARGETS[name])
    m.add_adapter(config)
    ps = {n: p for n, p in m.named_parameters() if "lora_" in n}
    for p in ps.values():
        p.data = torch.randn(p.shape, generator=g) * 0.2
    out = OUT / name
    shutil.rmtree(out, ignore_errors=True)
    getattr(diffusers, PIPELINES[name]).save_lora_weights(out, transformer_lora_layers=get_peft_model_state_dict(m),
                                                          transformer_lora_adapter_metadata=config.to_dict())
    opt = torch.optim.AdamW(ps.values(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    got, squares = [], {}
    for _ in range(5):
        opt.zero_grad()
        v = losses(name, m)
        v.backward()
        if not got:
            squares = {n.replace(".default", ""): float((p.grad.double() ** 2).sum()) if p.grad is not None else 0.0 for n, p in ps.items()}
        opt.step()
        got.append(v.item())
    (out / "golden.json").write_text(json.dumps(dict(targets=TARGETS[name], r=3, alpha=5, losses=got, squares=squares), indent=1) + "\n")
    print(name, got[0], got[-1], len(squares))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        m = model(sys.argv[3])
        m.load_lora_adapter(sys.argv[2], weight_name="pytorch_lora_weights.safetensors")
        print(len([n for n, _ in m.named_parameters() if "lora_A" in n]), losses(sys.argv[3], m).item())
        sys.exit()
    for name in sys.argv[1:] or TARGETS:
        case(name)
