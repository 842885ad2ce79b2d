"""Golden data of Pi0-FAST: actors/host/testdata/pi0fast/ with config.json, weights under PaliGemma's published names, golden.json (loss, 20 steps of AdamW,
tokens that are drawn greedily) and golden.safetensors (images, the gradient of every parameter). Masks, embeddings, loss and drawing are those of lerobot's own
class PI0FastPytorch (src/lerobot/policies/pi0_fast of its main branch, 2026-08), whose PaliGemma hard-wires its sizes and is made small here.

With torch and transformers 5.24; from the repository: python bench/golden/policies_pi0fast.py CHECKOUT
"""

import importlib
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.auto import CONFIG_MAPPING

OUT = pathlib.Path("actors/host/testdata/pi0fast")
torch.use_deterministic_algorithms(True)
ROOT = pathlib.Path(sys.argv[1]) / "src" / "lerobot"


def empty(name, path=None, **names):
    m = types.ModuleType(name)
    m.__path__ = [str(path)] if path else []
    m.__dict__.update(names)
    sys.modules[name] = m


empty("lerobot", ROOT)
empty("lerobot.policies", ROOT / "policies")
empty("lerobot.policies.pi0_fast", ROOT / "policies" / "pi0_fast")
empty("lerobot.policies.common", ROOT / "policies" / "common")
empty("lerobot.utils")
empty("lerobot.utils.import_utils", _transformers_available=True, _scipy_available=False, require_package=lambda *a, **k: None)
empty("lerobot.utils.constants", ACTION="", ACTION_TOKEN_MASK="", ACTION_TOKENS="", OBS_LANGUAGE_ATTENTION_MASK="", OBS_LANGUAGE_TOKENS="", OPENPI_ATTENTION_MASK_VALUE=-2.3819763e38)
empty("lerobot.utils.device_utils", get_safe_dtype=lambda d, kind: d)
empty("lerobot.configs", PreTrainedConfig=object)
empty("lerobot.policies.pretrained", PreTrainedPolicy=nn.Module, T=None)
empty("lerobot.policies.rtc")
empty("lerobot.policies.rtc.modeling_rtc", RTCProcessor=object)
empty("lerobot.policies.pi0_fast.configuration_pi0_fast", PI0FastConfig=object)
fast = importlib.import_module("lerobot.policies.pi0_fast.modeling_pi0_fast")
# transformers hands masks of four axes on as they are; 5.24 has another signature than lerobot calls
sys.modules["lerobot.policies.pi_gemma"].create_causal_mask = lambda **k: k["attention_mask"]

C = dict(hidden=16, inter=24, layers=3, heads=8, kv=1, head_dim=4, vocab=120, image_token=116, vision=dict(hidden=12, inter=18, layers=2, heads=2, patch=4, image=8))


def tiny():
    v = C["vision"]
    vlm = CONFIG_MAPPING["paligemma"](
        vision_config=dict(model_type="siglip_vision_model", hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], image_size=v["image"], projection_dim=C["hidden"], vision_use_head=False),
        text_config=dict(model_type="gemma", hidden_size=C["hidden"], intermediate_size=C["inter"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], vocab_size=C["vocab"], hidden_activation="gelu_pytorch_tanh"),
        projection_dim=C["hidden"], image_token_index=C["image_token"])
    vlm.text_config.use_adarms, vlm.text_config.adarms_cond_dim = False, None

    class Pali(fast.PI0FastPaliGemma):
        def __init__(self):
            nn.Module.__init__(self)
            self.paligemma = fast.PaliGemmaForConditionalGenerationWithPiGemma(config=vlm)
            self.paligemma.model.language_model.config._attn_implementation = "eager"

    class Policy(fast.PI0FastPytorch):
        def __init__(self):
            nn.Module.__init__(self)
            self.config = types.SimpleNamespace(max_action_tokens=8)
            self._paligemma_tokenizer = types.SimpleNamespace(bos_token_id=2)
            self.paligemma_with_expert = Pali()
            self.gradient_checkpointing_enabled, self.rtc_processor = False, None

    return Policy()


def named(n):
    n = n.removeprefix("paligemma_with_expert.paligemma.")
    for a, b in (("model.language_model.", "language_model.model."), ("model.vision_tower.vision_model.", "vision_tower.vision_model."), ("model.vision_tower.", "vision_tower.vision_model."), ("model.multi_modal_projector.", "multi_modal_projector."), ("lm_head.", "language_model.lm_head.")):
        if n.startswith(a):
            return b + n.removeprefix(a)
    return n


def main():
    m = tiny()
    g = torch.Generator().manual_seed(101)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.3 if p.ndim > 1 else 0.2)
    m.train()
    samples = [dict(tokens=[2, 3, 9, 14, 5], answer=[2, 20, 21, 40, 41, 42, 1], views=[True, True]), dict(tokens=[2, 7, 21, 8, 30, 11, 4], answer=[2, 20, 21, 44, 39, 1], views=[True, False])]
    most, long, side = 8, 8, C["vision"]["image"]
    tensors = {}
    for i, s in enumerate(samples):
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, side, side, generator=g) * 2 - 1 if s["views"][k] else -torch.ones(3, side, side)
    images = [torch.stack([tensors[f"image.{i}.{k}"] for i in range(2)]) for k in range(2)]
    masks = [torch.tensor([s["views"][k] for s in samples]) for k in range(2)]
    pad = lambda key, n: (torch.tensor([s[key] + [0] * (n - len(s[key])) for s in samples]), torch.tensor([[True] * len(s[key]) + [False] * (n - len(s[key])) for s in samples]))
    (tokens, valid), (answer, answered) = pad("tokens", most), pad("answer", long)
    loss = lambda: m(images, masks, tokens, valid, answer, answered)["loss"]
    first = loss()
    first.backward()
    tied = {id(m.paligemma_with_expert.paligemma.lm_head.weight)} if m.paligemma_with_expert.paligemma.lm_head.weight is m.paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight else set()
    names = [(named(n), p) for n, p in m.named_parameters() if not (n.endswith("lm_head.weight") and id(p) in tied)]
    grads = {"grad." + n: p.grad.clone() for n, p in names if p.grad is not None}
    dead = [n for n, p in names if p.grad is None]
    weights = {n: p.detach().clone() for n, p in names}
    m.eval()
    drawn = []
    for i, s in enumerate(samples):
        there = [k for k in range(2) if s["views"][k]]
        one = torch.tensor([s["tokens"]])
        drawn.append(m.sample_actions_fast([tensors[f"image.{i}.{k}"][None] for k in there], [torch.tensor([True])] * len(there), one, torch.ones_like(one, dtype=torch.bool), max_decoding_steps=6)[0].tolist())
    m.train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    v = C["vision"]
    config = dict(model_type="paligemma", architectures=["PaliGemmaForConditionalGeneration"], image_token_index=C["image_token"], projection_dim=C["hidden"], tie_word_embeddings=bool(tied),
                  vision_config=dict(model_type="siglip_vision_model", hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], image_size=v["image"], projection_dim=C["hidden"], vision_use_head=False),
                  text_config=dict(model_type="gemma", hidden_size=C["hidden"], intermediate_size=C["inter"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], vocab_size=C["vocab"], tie_word_embeddings=bool(tied)))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, drawn=drawn, parameters=sum(p.numel() for p in weights.values())), indent=1) + "\n")
    print("loss", first.item(), losses[-1], drawn, dead, bool(tied))
    for k, v in weights.items():
        print(k, tuple(v.shape))


if __name__ == "__main__":
    main()
