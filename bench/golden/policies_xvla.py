"""Golden data of X-VLA: stages/family/robots/testdata/xvla/ and xvla_ee6d/, as bench/golden/policies.py makes that of Pi0.5. The classes are lerobot's
own, made small. Dropout and DropPath are off, which have no place here; noise and times are given.

With lerobot 0.4.4 of PyPI; from the repository: python bench/golden/policies_xvla.py [count]
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.xvla import modeling_xvla as lib
from lerobot.policies.xvla.configuration_xvla import XVLAConfig

ROOT = pathlib.Path("stages/family/robots/testdata")
torch.use_deterministic_algorithms(True)
SMALL = dict(
    vision_config=dict(model_type="davit", drop_path_rate=0.0, patch_size=[7, 3], patch_stride=[4, 2], patch_padding=[3, 1], patch_prenorm=[False, True], dim_embed=[8, 12], num_heads=[2, 3], num_groups=[2, 3], depths=[1, 2], window_size=4, projection_dim=12, visual_temporal_embedding=dict(type="COSINE", max_temporal_embeddings=3), image_pos_embed=dict(type="learned_abs_2d", max_pos_embeddings=5), image_feature_source=["spatial_avg_pool", "temporal_avg_pool"]),
    text_config=dict(vocab_size=40, d_model=12, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=40, activation_function="gelu", dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0, scale_embedding=False, pad_token_id=1, bos_token_id=0, eos_token_id=2),
    projection_dim=12, vocab_size=40, pad_token_id=1)
SIZES = dict(chunk_size=5, n_action_steps=5, hidden_size=16, depth=2, num_heads=2, num_domains=3, len_soft_prompts=3, dim_time=8, max_len_seq=64, tokenizer_max_length=8)
SIDE = 24


def made(mode, state, width, real, florence=SMALL, views=2, side=SIDE, **sizes):
    features = {"observation.state": PolicyFeature(FeatureType.STATE, (state,))} | {f"observation.images.{k}": PolicyFeature(FeatureType.VISUAL, (3, side, side)) for k in range(views)}
    c = XVLAConfig(device="cpu", florence_config=florence, action_mode=mode, max_state_dim=state, max_action_dim=width, input_features=features, output_features={"action": PolicyFeature(FeatureType.ACTION, (real,))}, **sizes)
    c.num_image_views = views
    f = c.get_florence_config()
    f._attn_implementation = f.text_config._attn_implementation = "eager"
    return c, lib.XVLAModel(c, f, state)


def case(name, mode, state, width, real):
    c, m = made(mode, state, width, real, **SIZES)
    g = torch.Generator().manual_seed(71)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") else 0)
    m.eval()
    samples = [dict(tokens=[0, 9, 14, 2, 1, 1, 1, 1], views=[True, True], time=0.7, robot=2), dict(tokens=[0, 21, 8, 30, 11, 2, 1, 1], views=[True, False], time=0.25, robot=0)]
    chunk, tensors = SIZES["chunk_size"], {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(chunk, width, generator=g), torch.randn(chunk, width, generator=g)
        for k in m.action_space.gripper_idx:
            tensors[f"actions.{i}"][:, k] = (tensors[f"actions.{i}"][:, k] > 0).float()
        tensors[f"state.{i}"] = torch.randn(state, generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, SIDE, SIDE, generator=g) * 2 - 1 if s["views"][k] else torch.zeros(3, SIDE, SIDE)
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    images = torch.stack([torch.stack([tensors[f"image.{i}.{k}"] for k in range(2)]) for i in range(2)])
    masks = torch.tensor([s["views"] for s in samples])
    tokens, robots, time = torch.tensor([s["tokens"] for s in samples]), torch.tensor([s["robot"] for s in samples]), torch.tensor([s["time"] for s in samples])
    seen = {}

    def loss():
        enc = m.forward_vlm(tokens, images, masks)
        t = time.view(-1, 1, 1)
        proprio, noisy = m.action_space.preprocess(stack("state"), stack("noise") * t + stack("actions") * (1 - t))
        seen["y"] = m.transformer(domain_id=robots, action_with_noise=noisy, t=time, proprio=proprio, **enc)
        return sum(m.action_space.compute_loss(seen["y"], stack("actions")).values())

    first = loss()
    first.backward()
    for i in range(2):
        tensors[f"pred.{i}"] = seen["y"][i].detach().clone()
    rename = lambda n: "model." + n.replace("language_model.model.shared", "language_model.model.encoder.embed_tokens")
    grads = {"grad." + rename(n): p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [rename(n) for n, p in m.named_parameters() if p.grad is None] + ["model." + n for n, _ in m.named_buffers()]
    weights = {"model." + n: p.detach().clone() for n, p in m.state_dict().items() if "model.shared" not in n}
    start = torch.randn(2, chunk, width, generator=g)
    if mode == "auto":
        m.action_space.postprocess = lambda a: a
    drawn, torch.randn = torch.randn, lambda *a, **k: start
    acted = m.generate_actions(tokens, images, masks, robots, stack("state"), 10)
    torch.randn = drawn
    for i in range(2):
        tensors[f"start.{i}"], tensors[f"acted.{i}"] = start[i], acted[i]
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    out = ROOT / name
    out.mkdir(parents=True, exist_ok=True)
    config = dict(type="xvla", florence_config=SMALL, action_mode=mode, max_state_dim=state, max_action_dim=width, input_features={f"observation.images.{k}": dict(type="VISUAL", shape=[3, SIDE, SIDE]) for k in range(2)} | {"observation.state": dict(type="STATE", shape=[state])}, output_features={"action": dict(type="ACTION", shape=[real])}, **SIZES)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, out / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, out / "golden.safetensors")
    n = sum(p.numel() for p in m.parameters())
    (out / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=n, stored=sum(v.numel() for v in weights.values()), real=real), indent=1) + "\n")
    print(name, first.item(), losses[-1], n, dead)
    for k, v in weights.items():
        print(k, tuple(v.shape))


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json: Florence-2's large model below the defaults of lerobot's class."""
    path = pathlib.Path("configs/testdata/parameters.json")
    line, torch.linspace = torch.linspace, lambda *a, **k: line(*a, **k, device="cpu")
    large = dict(SMALL, projection_dim=1024, vocab_size=51289)
    large["vision_config"] = dict(SMALL["vision_config"], patch_size=[7, 3, 3, 3], patch_stride=[4, 2, 2, 2], patch_padding=[3, 1, 1, 1], patch_prenorm=[False, True, True, True], dim_embed=[256, 512, 1024, 2048], num_heads=[8, 16, 32, 64], num_groups=[8, 16, 32, 64], depths=[1, 1, 9, 1], window_size=12, projection_dim=1024, visual_temporal_embedding=dict(type="COSINE", max_temporal_embeddings=100), image_pos_embed=dict(type="learned_abs_2d", max_pos_embeddings=50))
    large["text_config"] = dict(SMALL["text_config"], vocab_size=51289, d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16, decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, max_position_embeddings=4096)
    with torch.device("meta"):
        _, m = made("ee6d", 20, 20, 20, florence=large, views=3, side=224, chunk_size=30, n_action_steps=30)
    all = json.loads(path.read_text())
    all["xvla/base"] = sum(v.numel() for n, v in m.state_dict().items() if "model.shared" not in n)
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["xvla/base"], "of which learn", sum(p.numel() for p in m.parameters()))


if __name__ == "__main__":
    if sys.argv[1:] == ["count"]:
        count()
    else:
        case("xvla", "auto", 5, 6, 4)
        case("xvla_ee6d", "ee6d", 20, 20, 20)
