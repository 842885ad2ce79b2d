"""Golden data of FastWAM: stages/family/robots/testdata/fastwam/, as bench/golden/policies.py makes that of Pi0.5. The model is lerobot's own
(src/lerobot/policies/fastwam/wan of its main branch, 2026-08; PyPI's 0.4.4 has none), loaded from a checkout by itself. Latents of clips and states of
captions are given in the place of the autoencoder and the encoder of captions; noise and times are given.

With torch, diffusers, transformers and einops of PyPI; from the repository: python bench/golden/policies_fastwam.py CHECKOUT [count]
"""

import importlib
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from torch import nn

OUT = pathlib.Path("stages/family/robots/testdata/fastwam")
FROM = pathlib.Path(sys.argv[1]) / "src/lerobot/policies/fastwam"
torch.use_deterministic_algorithms(True)
has = types.ModuleType("lerobot.utils.import_utils")  # which the files ask what is installed
has._transformers_available = has._diffusers_available = True
has.require_package = lambda *a, **k: None
sys.modules["lerobot.utils.import_utils"] = has
sys.modules["fastwam"] = types.ModuleType("fastwam")
sys.modules["fastwam"].__path__ = [str(FROM)]
lib = importlib.import_module("fastwam.wan")

C = dict(
    video=dict(patch_size=[1, 2, 2], in_dim=6, hidden_dim=24, ffn_dim=36, freq_dim=8, text_dim=10, out_dim=6, num_heads=4, attn_head_dim=6, num_layers=3, eps=1e-6, seperated_timestep=True, video_attention_mask_mode="first_frame_causal", action_conditioned=False, action_dim=3, fp32_attention=True),
    action=dict(action_dim=3, hidden_dim=16, ffn_dim=20, num_heads=4, attn_head_dim=6, num_layers=3, text_dim=10, freq_dim=8, eps=1e-6, fp32_attention=True), state=5, chunk=8, rows=6, latents=(6, 3, 4, 6), frames=9)


class Autoencoder(nn.Module):
    upsampling_factor, temporal_downsample_factor, z_dim = 16, 4, 6


def build(c):
    video, action = lib.WanVideoDiT(**c["video"]), lib.ActionDiT(**c["action"])
    mot = lib.MoT(mixtures=dict(video=video, action=action), mot_checkpoint_mixed_attn=False)
    return lib.FastWAM(video_expert=video, action_expert=action, mot=mot, vae=Autoencoder(), text_dim=c["video"]["text_dim"], proprio_dim=c["state"], loss_lambda_video=0.7, loss_lambda_action=1.3, device=c.get("device", "cpu"))


def main():
    m = build(C)
    g = torch.Generator().manual_seed(83)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") else 0)
    samples = [dict(rows=4, time=0.7, clip_time=0.35, pad=0, clip_pad=0), dict(rows=6, time=0.253, clip_time=0.9, pad=3, clip_pad=1)]
    tensors, chunk = {}, C["chunk"]
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(chunk, 3, generator=g), torch.randn(chunk, 3, generator=g)
        tensors[f"clip.{i}"], tensors[f"clip_noise.{i}"] = torch.randn(C["latents"], generator=g), torch.randn(C["latents"], generator=g)
        tensors[f"state.{i}"], tensors[f"text.{i}"] = torch.randn(C["state"], generator=g), torch.randn(s["rows"], 10, generator=g)
        tensors[f"start.{i}"] = torch.randn(chunk, 3, generator=g)
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    context = torch.zeros(2, C["rows"], 10)
    for i, s in enumerate(samples):
        context[i, : s["rows"]] = tensors[f"text.{i}"]
    seen = torch.ones(2, C["rows"], dtype=torch.bool)
    padded = lambda rows, key, each: torch.tensor([[k >= rows - each * s[key] for k in range(rows)] for s in samples])
    m._encode_video_latents = lambda *a, **k: stack("clip")
    m.train_video_scheduler.sample_training_t = lambda **k: 1000 * torch.tensor([s["clip_time"] for s in samples])
    m.train_action_scheduler.sample_training_t = lambda **k: 1000 * torch.tensor([s["time"] for s in samples])
    given = dict(video=torch.zeros(2, 3, C["frames"], 32, 48), context=context, context_mask=seen, proprio=stack("state")[:, None], action=stack("actions"), action_is_pad=padded(chunk, "pad", 1), image_is_pad=padded(C["frames"], "clip_pad", 4))
    said, drawn = {}, torch.randn_like
    m.action_expert.head.register_forward_hook(lambda _, __, y: said.update(y=y))

    def loss():
        noise = iter([stack("clip_noise"), stack("noise")])
        torch.randn_like = lambda *a, **k: next(noise)
        out = m.training_loss(given)[0]
        torch.randn_like = drawn
        return out

    first = loss()
    first.backward()
    for i in range(2):
        tensors[f"pred.{i}"] = said["y"][i].detach().clone()
    name = lambda n: "model." + n
    grads = {"grad." + name(n): p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [name(n) for n, p in m.named_parameters() if p.grad is None]
    weights = {name(n): p.detach().clone() for n, p in m.state_dict().items()}
    for i in range(2):
        m._encode_input_image_latents_tensor = lambda **k: tensors[f"clip.{i}"][None, :, :1]
        m._make_action_latents = lambda *a: tensors[f"start.{i}"][None]
        tensors[f"acted.{i}"] = m.infer_action(prompt=None, input_image=torch.zeros(3, 32, 48), action_horizon=chunk, proprio=tensors[f"state.{i}"], context=context[i], context_mask=seen[i], num_inference_steps=10)["action"].clone()
    m.train()
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    features = {"observation.images.a": dict(type="VISUAL", shape=[3, 32, 24]), "observation.images.b": dict(type="VISUAL", shape=[3, 32, 24]), "observation.state": dict(type="STATE", shape=[5])}
    shift = dict(train_shift=5.0, infer_shift=5.0, num_train_timesteps=1000)
    config = dict(type="fastwam", action_dim=3, proprio_dim=C["state"], action_horizon=chunk, num_video_frames=9, action_video_freq_ratio=1, image_size=[32, 48], tokenizer_max_len=C["rows"], video_scale=[4, 8, 8], video_scheduler=shift, action_scheduler=shift, loss=dict(lambda_video=0.7, lambda_action=1.3),
                  video_dit_config=C["video"], action_dit_config=C["action"], input_features=features, output_features=dict(action=dict(type="ACTION", shape=[3])))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=3), indent=1) + "\n")
    print("loss", first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)
    for k, v in weights.items():
        print(k, tuple(v.shape))


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    video = C["video"] | dict(in_dim=48, out_dim=48, hidden_dim=3072, ffn_dim=14336, freq_dim=256, text_dim=4096, num_heads=24, attn_head_dim=128, num_layers=30, action_dim=7)
    action = C["action"] | dict(action_dim=7, hidden_dim=1024, ffn_dim=4096, num_heads=24, attn_head_dim=128, num_layers=30, text_dim=4096, freq_dim=256)
    lib.modular.WanContinuousFlowMatchScheduler._precompute_training_weight_stats = lambda self: (0.0, 1.0)  # numbers, which the meta device has not
    with torch.device("meta"):
        m = build(C | dict(video=video, action=action, state=8, device="meta"))
    all = json.loads(path.read_text())
    all["fastwam/base"] = sum(p.numel() for p in m.parameters())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["fastwam/base"])


if __name__ == "__main__":
    count() if sys.argv[2:] == ["count"] else main()
