"""Golden data of Pi0: stages/family/robots/testdata/pi0/, as bench/golden/policies.py makes that of Pi0.5.

LEROBOT=/path/to/lerobot python bench/golden/policies_pi0.py
"""

import importlib
import json
import os
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.auto import CONFIG_MAPPING

import policies
from policies import C

OUT = pathlib.Path("stages/family/robots/testdata/pi0")
STATE = 3


def lerobot():
    policies.lerobot()
    root = pathlib.Path(os.environ["LEROBOT"]) / "src" / "lerobot"
    for name, path, names in (("lerobot.policies.pi0", [str(root / "policies" / "pi0")], {}), ("lerobot.policies.pi0.configuration_pi0", [], dict(DEFAULT_IMAGE_SIZE=224, PI0Config=object))):
        m = types.ModuleType(name)
        m.__path__ = path
        m.__dict__.update(names)
        sys.modules[name] = m
    return importlib.import_module("lerobot.policies.pi0.modeling_pi0")


def tiny(pi):
    v = C["vision"]
    text = dict(model_type="gemma", hidden_size=C["hidden"], intermediate_size=C["inter"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], vocab_size=C["vocab"], hidden_activation="gelu_pytorch_tanh")
    vlm = CONFIG_MAPPING["paligemma"](
        vision_config=dict(model_type="siglip_vision_model", hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], image_size=v["image"], projection_dim=C["hidden"], vision_use_head=False),
        text_config=text, projection_dim=C["hidden"])
    vlm.text_config.use_adarms, vlm.text_config.adarms_cond_dim = False, None
    expert = CONFIG_MAPPING["gemma"](**({k: x for k, x in text.items() if k != "model_type"} | dict(hidden_size=C["expert"], intermediate_size=C["expert_inter"])))
    expert.use_adarms, expert.adarms_cond_dim = False, None

    class Joint(pi.PaliGemmaWithExpertModel):
        def __init__(self):
            nn.Module.__init__(self)
            self.freeze_vision_encoder = self.train_expert_only = False
            self.paligemma = pi.PaliGemmaForConditionalGenerationWithPiGemma(config=vlm)
            self.gemma_expert = pi.PiGemmaForCausalLM(config=expert)
            self.gemma_expert.model.embed_tokens = None
            for m in (self.paligemma.model.language_model, self.gemma_expert.model):
                m.config._attn_implementation = "eager"

    class Policy(pi.PI0Pytorch):
        def __init__(self):
            nn.Module.__init__(self)
            self.config = types.SimpleNamespace(max_action_dim=C["actions"], chunk_size=C["chunk"], min_period=4e-3, max_period=4.0, num_inference_steps=10, rtc_config=None)
            self.paligemma_with_expert = Joint()
            w = C["expert"]
            self.action_in_proj, self.action_out_proj, self.state_proj = nn.Linear(C["actions"], w), nn.Linear(w, C["actions"]), nn.Linear(STATE, w)
            self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * w, w), nn.Linear(w, w)
            self.gradient_checkpointing_enabled, self.rtc_processor = False, None

    return Policy()


def main():
    pi = lerobot()
    g = torch.Generator().manual_seed(41)
    m = tiny(pi)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.3 if p.ndim > 1 else 0.2)
    m.train()
    OUT.mkdir(parents=True, exist_ok=True)
    samples = [dict(tokens=[3, 9, 14, 5], views=[True, True], time=0.7), dict(tokens=[7, 21, 8, 30, 11, 2], views=[True, False], time=0.25)]
    most, side, tensors = 8, C["vision"]["image"], {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"], tensors[f"state.{i}"] = torch.randn(C["chunk"], C["actions"], generator=g), torch.randn(C["chunk"], C["actions"], generator=g), torch.randn(STATE, generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, side, side, generator=g) * 2 - 1 if s["views"][k] else -torch.ones(3, side, side)
    images = [torch.stack([tensors[f"image.{i}.{k}"] for i in range(2)]) for k in range(2)]
    masks = [torch.tensor([s["views"][k] for s in samples]) for k in range(2)]
    tokens = torch.tensor([s["tokens"] + [0] * (most - len(s["tokens"])) for s in samples])
    valid = torch.tensor([[True] * len(s["tokens"]) + [False] * (most - len(s["tokens"])) for s in samples])
    actions, noise, state = (torch.stack([tensors[f"{w}.{i}"] for i in range(2)]) for w in ("actions", "noise", "state"))
    time, seen = torch.tensor([s["time"] for s in samples]), {}
    m.action_out_proj.register_forward_hook(lambda _, __, y: seen.update(y=y))

    def loss():
        return m(images, masks, tokens, valid, state, actions, noise, time)[:, :, : C["real"]].mean()

    first = loss()
    first.backward()
    for i in range(2):
        tensors[f"pred.{i}"] = seen["y"][i].detach().clone()
    grads = {"grad.model." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = ["model." + n for n, p in m.named_parameters() if p.grad is None]
    weights = {"model." + n: p.detach().clone() for n, p in m.named_parameters()}
    start = torch.randn(2, C["chunk"], C["actions"], generator=g)
    m.eval()
    with torch.no_grad():
        acted = m.sample_actions(images, masks, tokens, valid, state, noise=start.clone())
    m.train()
    for part in (m.paligemma_with_expert.paligemma.model.language_model, m.paligemma_with_expert.gemma_expert.model):
        part.config._attn_implementation = "eager"
    for i in range(2):
        tensors[f"start.{i}"], tensors[f"acted.{i}"] = start[i], acted[i]
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    v = C["vision"]
    config = dict(type="pi0", hidden_size=C["hidden"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], intermediate_size=C["inter"], vocab_size=C["vocab"],
                  expert_hidden_size=C["expert"], expert_intermediate_size=C["expert_inter"], chunk_size=C["chunk"], max_action_dim=C["actions"], max_state_dim=STATE, views=2, view_size=v["image"], view_patch=v["patch"], view_hidden_size=v["hidden"],
                  view_intermediate_size=v["inter"], view_heads=v["heads"], view_layers=v["layers"])
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=C["real"]), indent=1) + "\n")
    print(first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path, pi = pathlib.Path("configs/testdata/parameters.json"), lerobot()
    config = types.SimpleNamespace(paligemma_variant="gemma_2b", action_expert_variant="gemma_300m", image_resolution=(224, 224), dtype="float32", freeze_vision_encoder=False, train_expert_only=False, max_action_dim=32, max_state_dim=32, compile_model=False)
    with torch.device("meta"):
        m = pi.PI0Pytorch(config)
    all = json.loads(path.read_text())
    all["pi/0"] = sum(p.numel() for p in m.parameters())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["pi/0"])


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
