"""Golden data of SmolVLA: stages/family/robots/testdata/smolvla/, as bench/golden/policies.py makes that of Pi0.5. The class is lerobot's own; its
language model and tower are made small. transformers 4.57 gives a tower's patches other places than those before and after it, of which the model was
trained with the former: places are given here.

With lerobot 0.4.4 of PyPI; from the repository: python bench/golden/policies_smolvla.py [count]
"""

import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from transformers import SmolVLMConfig
from transformers.models.smolvlm import modeling_smolvlm as tower

from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.smolvla import modeling_smolvla as lib
from lerobot.policies.smolvla import smolvlm_with_expert as joint
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig

OUT = pathlib.Path("stages/family/robots/testdata/smolvla")
torch.use_deterministic_algorithms(True)
C = dict(hidden=16, inter=24, layers=4, heads=4, kv=2, head_dim=4, vocab=40, chunk=5, actions=6, state=5, real=4, vision=dict(hidden=12, inter=18, layers=2, heads=2, patch=4, image=16), fold=2)


def sized(hidden, inter, layers, heads, kv, head_dim, vocab, vision, fold):
    v = vision
    return SmolVLMConfig(scale_factor=fold, tie_word_embeddings=False,
                         vision_config=dict(hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], image_size=v["image"]),
                         text_config=dict(model_type="llama", hidden_size=hidden, intermediate_size=inter, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, head_dim=head_dim, vocab_size=vocab, rms_norm_eps=1e-5, rope_theta=100000, pad_token_id=2, max_position_embeddings=8192))


def made(vlm, **more):
    joint.AutoConfig = types.SimpleNamespace(from_pretrained=lambda *a, **k: vlm)
    joint.AutoProcessor = types.SimpleNamespace(from_pretrained=lambda *a, **k: types.SimpleNamespace(tokenizer=types.SimpleNamespace(fake_image_token_id=1, global_image_token_id=2)))
    c = SmolVLAConfig(device="cpu", load_vlm_weights=False, **more)
    return c, lib.VLAFlowMatching(c)


def places(self, pixel_values, patch_attention_mask):
    x = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    return x + self.position_embedding(torch.arange(x.shape[1]).expand(x.shape[0], -1))


def main():
    tower.SmolVLMVisionEmbeddings.forward = places
    vlm = sized(**{k: C[k] for k in ["hidden", "inter", "layers", "heads", "kv", "head_dim", "vocab", "vision", "fold"]})
    vlm._attn_implementation = "eager"
    c, m = made(vlm, num_vlm_layers=C["layers"], max_state_dim=C["state"], max_action_dim=C["actions"], chunk_size=C["chunk"], n_action_steps=C["chunk"], train_expert_only=False, freeze_vision_encoder=False, resize_imgs_with_padding=(16, 16))
    g = torch.Generator().manual_seed(61)
    for n, p in m.named_parameters():
        p.requires_grad = True
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") else 0)
    m.train()
    samples = [dict(tokens=[3, 9, 14, 5], views=[True, True], time=0.7), dict(tokens=[7, 21, 8, 30, 11, 4], views=[True, False], time=0.25)]
    most, side, tensors = 8, C["vision"]["image"], {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(C["chunk"], C["actions"], generator=g), torch.randn(C["chunk"], C["actions"], generator=g)
        tensors[f"state.{i}"] = torch.randn(C["state"], generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, side, side, generator=g) * 2 - 1 if s["views"][k] else -torch.ones(3, side, side)
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    images = [torch.stack([tensors[f"image.{i}.{k}"] for i in range(2)]) for k in range(2)]
    masks = [torch.tensor([s["views"][k] for s in samples]) for k in range(2)]
    tokens = torch.tensor([s["tokens"] + [0] * (most - len(s["tokens"])) for s in samples])
    valid = torch.tensor([[True] * len(s["tokens"]) + [False] * (most - len(s["tokens"])) for s in samples])
    time, seen = torch.tensor([s["time"] for s in samples]), {}
    m.action_out_proj.register_forward_hook(lambda _, __, y: seen.update(y=y))

    def loss():
        return m(images, masks, tokens, valid, stack("state"), stack("actions"), stack("noise"), time)[:, :, : C["real"]].mean()

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
        acted = m.sample_actions(images, masks, tokens, valid, stack("state"), noise=start.clone())
    m.train()
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
    OUT.mkdir(parents=True, exist_ok=True)
    c._save_pretrained(OUT)
    text = json.loads((OUT / "config.json").read_text())
    del text["vlm_model_name"], text["expert_width_multiplier"]
    expert = m.vlm_with_expert.lm_expert.config
    text |= dict(hidden_size=C["hidden"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], intermediate_size=C["inter"], vocab_size=C["vocab"], expert_hidden_size=expert.hidden_size, expert_intermediate_size=expert.intermediate_size, views=2,
                 view_size=v["image"], view_patch=v["patch"], view_hidden_size=v["hidden"], view_intermediate_size=v["inter"], view_heads=v["heads"], view_layers=v["layers"], view_fold=C["fold"])
    (OUT / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=C["real"]), indent=1) + "\n")
    print(first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    with torch.device("meta"):
        _, m = made(sized(960, 2560, 32, 15, 5, 64, 49280, dict(hidden=768, inter=3072, layers=12, heads=12, patch=16, image=512), 4))
    all = json.loads(path.read_text())
    all["smolvla/base"] = sum(p.numel() for p in m.parameters())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["smolvla/base"])


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
