"""Golden data of policies of robots: stages/family/robots/testdata/<case>/ with config.json, weights under lerobot's names,
golden.json (loss, 20 steps of AdamW, ten steps of Euler) and golden.safetensors (images, tokens, actions, noise, what the model
predicts, the gradient of every parameter). The model is that of lerobot's own source, made small: its class hard-wires sizes
where it is made, so that these parts are made here and every computation is lerobot's.

Run from the repository's root: LEROBOT=<checkout of huggingface/lerobot> python bench/golden/policies.py, with torch and
transformers 5.24; of lerobot at 7427f318.
"""

import importlib
import json
import os
import pathlib
import sys
import types
import zlib

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.auto import CONFIG_MAPPING

ROOT = pathlib.Path("stages/family/robots/testdata")
torch.use_deterministic_algorithms(True)


def lerobot():
    """The modules of Pi0.5, with those that they import for other ends left empty."""
    root = pathlib.Path(os.environ["LEROBOT"]) / "src" / "lerobot"

    def empty(name, path=None, **names):
        m = types.ModuleType(name)
        m.__path__ = [str(path)] if path else []
        m.__dict__.update(names)
        sys.modules[name] = m

    empty("lerobot", root)
    empty("lerobot.policies", root / "policies")
    empty("lerobot.policies.pi05", root / "policies" / "pi05")
    empty("lerobot.policies.common", root / "policies" / "common")
    empty("lerobot.utils")
    empty("lerobot.utils.import_utils", _transformers_available=True, require_package=lambda *a, **k: None)
    empty("lerobot.utils.device_utils", get_safe_dtype=lambda d, kind: d)
    empty("lerobot.utils.constants", ACTION="", OBS_LANGUAGE_ATTENTION_MASK="", OBS_LANGUAGE_TOKENS="", OBS_STATE="", OPENPI_ATTENTION_MASK_VALUE=-2.3819763e38)
    empty("lerobot.configs", PreTrainedConfig=object)
    empty("lerobot.policies.pretrained", PreTrainedPolicy=nn.Module, T=None)
    empty("lerobot.policies.rtc")
    empty("lerobot.policies.rtc.modeling_rtc", RTCProcessor=object)
    empty("lerobot.policies.pi05.configuration_pi05", DEFAULT_IMAGE_SIZE=224, PI05Config=object)
    empty("lerobot.policies.pi05.memory", encode_video_with_mem=None, sample_observation_history=None)
    pi = importlib.import_module("lerobot.policies.pi05.modeling_pi05")
    # transformers hands masks of four axes on as they are; 5.24 has another signature than lerobot calls
    sys.modules["lerobot.policies.pi_gemma"].create_causal_mask = lambda **k: k["attention_mask"]
    return pi


C = dict(hidden=16, inter=24, expert=12, expert_inter=20, layers=3, heads=8, kv=1, head_dim=4, vocab=40, chunk=5, actions=6, real=4,
         vision=dict(hidden=12, inter=18, layers=2, heads=2, patch=4, image=8))


def tiny(pi):
    v = C["vision"]
    vlm = CONFIG_MAPPING["paligemma"](
        vision_config=dict(model_type="siglip_vision_model", hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], image_size=v["image"], projection_dim=C["hidden"], vision_use_head=False),
        text_config=dict(model_type="gemma", hidden_size=C["hidden"], intermediate_size=C["inter"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], vocab_size=C["vocab"], hidden_activation="gelu_pytorch_tanh"),
        projection_dim=C["hidden"])
    vlm.text_config.use_adarms, vlm.text_config.adarms_cond_dim = False, None
    expert = CONFIG_MAPPING["gemma"](hidden_size=C["expert"], intermediate_size=C["expert_inter"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], vocab_size=C["vocab"], hidden_activation="gelu_pytorch_tanh")
    expert.use_adarms, expert.adarms_cond_dim = True, C["expert"]

    class Joint(pi.PaliGemmaWithExpertModel):
        def __init__(self):
            nn.Module.__init__(self)
            self.freeze_vision_encoder = self.train_expert_only = False
            self.paligemma = pi.PaliGemmaForConditionalGenerationWithPiGemma(config=vlm)
            self.gemma_expert = pi.PiGemmaForCausalLM(config=expert)
            self.gemma_expert.model.embed_tokens = None
            for m in (self.paligemma.model.language_model, self.gemma_expert.model):
                m.config._attn_implementation = "eager"

    class Policy(pi.PI05Pytorch):
        def __init__(self):
            nn.Module.__init__(self)
            self.config = types.SimpleNamespace(max_action_dim=C["actions"], chunk_size=C["chunk"], min_period=4e-3, max_period=4.0, num_inference_steps=10, rtc_config=None)
            self.paligemma_with_expert = Joint()
            self.action_in_proj, self.action_out_proj = nn.Linear(C["actions"], C["expert"]), nn.Linear(C["expert"], C["actions"])
            self.time_mlp_in, self.time_mlp_out = nn.Linear(C["expert"], C["expert"]), nn.Linear(C["expert"], C["expert"])
            self.proprio_history_proj, self.gradient_checkpointing_enabled, self.rtc_processor = None, False, None

    return Policy()


def main():
    pi = lerobot()
    name = "pi05"
    g = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    m = tiny(pi)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.3 if p.ndim > 1 else 0.2)
    m.train()
    out = ROOT / name
    out.mkdir(parents=True, exist_ok=True)
    samples = [dict(tokens=[3, 9, 14, 5], views=[True, True], time=0.7), dict(tokens=[7, 21, 8, 30, 11, 2], views=[True, False], time=0.25)]
    most, side = 8, C["vision"]["image"]
    tensors = {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(C["chunk"], C["actions"], generator=g), torch.randn(C["chunk"], C["actions"], generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, side, side, generator=g) * 2 - 1 if s["views"][k] else -torch.ones(3, side, side)
    images = [torch.stack([tensors[f"image.{i}.{k}"] for i in range(2)]) for k in range(2)]
    masks = [torch.tensor([s["views"][k] for s in samples]) for k in range(2)]
    tokens = torch.tensor([s["tokens"] + [0] * (most - len(s["tokens"])) for s in samples])
    valid = torch.tensor([[True] * len(s["tokens"]) + [False] * (most - len(s["tokens"])) for s in samples])
    actions, noise = (torch.stack([tensors[f"{w}.{i}"] for i in range(2)]) for w in ("actions", "noise"))
    time = torch.tensor([s["time"] for s in samples])
    seen = {}
    m.action_out_proj.register_forward_hook(lambda _, __, y: seen.update(y=y))

    def loss():
        return m(images, masks, tokens, valid, actions, noise, time)[:, :, : C["real"]].mean()

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
        acted = m.sample_actions(images, masks, tokens, valid, noise=start.clone())
    m.train()
    for m2 in (m.paligemma_with_expert.paligemma.model.language_model, m.paligemma_with_expert.gemma_expert.model):
        m2.config._attn_implementation = "eager"
    for i in range(2):
        tensors[f"start.{i}"], tensors[f"acted.{i}"] = start[i], acted[i]
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    v = C["vision"]
    config = dict(type="pi05", hidden_size=C["hidden"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], intermediate_size=C["inter"], vocab_size=C["vocab"],
                  expert_hidden_size=C["expert"], expert_intermediate_size=C["expert_inter"], chunk_size=C["chunk"], max_action_dim=C["actions"], views=2, view_size=v["image"], view_patch=v["patch"], view_hidden_size=v["hidden"],
                  view_intermediate_size=v["inter"], view_heads=v["heads"], view_layers=v["layers"])
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, out / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=C["real"]), indent=1) + "\n")
    print(first.item(), losses[-1], sum(p.numel() for p in m.parameters()))
    for n, p in m.named_parameters():
        print(n, tuple(p.shape), "" if p.grad is not None else "DEAD")


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    pi = lerobot()
    config = types.SimpleNamespace(paligemma_variant="gemma_2b", action_expert_variant="gemma_300m", image_resolution=(224, 224), dtype="float32", freeze_vision_encoder=False, train_expert_only=False, max_action_dim=32, max_state_dim=32, use_proprioceptive_memory=False, compile_model=False)
    with torch.device("meta"):
        m = pi.PI05Pytorch(config)
    all = json.loads(path.read_text())
    all["pi/0.5"] = sum(p.numel() for p in m.parameters())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["pi/0.5"])
    return m


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
