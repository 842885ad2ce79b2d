"""Golden data of Diffusion Policy: stages/family/robots/testdata/diffusion/, as bench/golden/policies.py makes that of Pi0.5. The ResNet is
lerobot's with narrower layers, and noise and levels are given; all else is lerobot's own class.

With lerobot 0.4.4 of PyPI; from the repository: python bench/golden/policies_diffusion.py [count]
"""

import json
import pathlib
import sys

import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.policies.diffusion import modeling_diffusion as lib
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig

OUT = pathlib.Path("stages/family/robots/testdata/diffusion")
torch.use_deterministic_algorithms(True)
WIDTH = 4  # channels of the first layer; ResNet-18 has 64
CHUNK, ACTION, STATE, SIDES, STEPS = 8, 3, 2, (24, 40), 2
CAMERAS = ["observation.images.top", "observation.images.wrist"]


class Narrow(ResNet):
    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        if planes == 64:
            self.inplanes = WIDTH
            self.conv1, self.bn1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), self._norm_layer(WIDTH)
        return super()._make_layer(block, planes * WIDTH // 64, blocks, stride, dilate)


class Groups(nn.GroupNorm):
    """A norm of fewer channels than lerobot has in a group is one of one group."""

    def __init__(self, num_groups, num_channels):
        super().__init__(max(1, num_groups), num_channels)


def narrow(weights=None, **kwargs):
    m = Narrow(BasicBlock, [2, 2, 2, 2], **kwargs)
    m.fc = nn.Linear(8 * WIDTH, 10)
    return m


def config(shape, state, action, cameras, **more):
    visual = {c: PolicyFeature(type=FeatureType.VISUAL, shape=(3, *shape)) for c in cameras}
    return DiffusionConfig(device="cpu", input_features={"observation.state": PolicyFeature(type=FeatureType.STATE, shape=(state,))} | visual, output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(action,))}, **more)


def main():
    torchvision.models.resnet18 = narrow
    nn.GroupNorm = Groups
    c = config(SIDES, STATE, ACTION, CAMERAS, n_obs_steps=STEPS, horizon=CHUNK, n_action_steps=4, down_dims=(16, 8, 16), n_groups=4, diffusion_step_embed_dim=8, spatial_softmax_num_keypoints=3, num_inference_steps=10)
    g = torch.Generator().manual_seed(57)
    m = lib.DiffusionPolicy(c)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.3 if p.ndim == 2 else 0.2 if p.ndim > 2 else 0.1) + (1 if p.ndim == 1 and n.endswith("weight") else 0)
    m.train()
    samples, tensors = [dict(step=70), dict(step=12)], {}
    for i in range(2):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"], tensors[f"state.{i}"] = torch.rand(CHUNK, ACTION, generator=g) * 2 - 1, torch.randn(CHUNK, ACTION, generator=g), torch.randn(STEPS, STATE, generator=g)
        for k in range(STEPS * len(CAMERAS)):  # step by step, in each camera by camera
            tensors[f"image.{i}.{k}"] = torch.randn(3, *SIDES, generator=g)
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    batch = {"observation.state": stack("state"), "action": stack("actions"), "action_is_pad": torch.zeros(2, CHUNK, dtype=torch.bool)}
    for k, name in enumerate(CAMERAS):
        batch[name] = torch.stack([torch.stack([tensors[f"image.{i}.{s * len(CAMERAS) + k}"] for s in range(STEPS)]) for i in range(2)])
    drawn, levels = stack("noise"), torch.tensor([s["step"] for s in samples])
    randn, randint, seen = torch.randn, torch.randint, {}
    lib.torch.randn, lib.torch.randint = lambda *a, **k: drawn, lambda *a, **k: levels
    m.diffusion.unet.final_conv[1].register_forward_hook(lambda _, __, y: seen.update(y=y))
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses, grads, weights = [], {}, {n: t.detach().clone() for n, t in m.state_dict().items()}
    for step in range(20):
        opt.zero_grad()
        v, _ = m(dict(batch))
        v.backward()
        if step == 0:
            grads = {"grad." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
            dead = [n for n, p in m.named_parameters() if p.grad is None] + [n for n, _ in m.named_buffers()]
            for i in range(2):
                tensors[f"pred.{i}"] = seen["y"][i].T.detach().clone()
        opt.step()
        losses.append(v.item())
    torch.randn, torch.randint = randn, randint
    m.load_state_dict(weights)
    m.eval()
    start, added = torch.randn(2, CHUNK, ACTION, generator=g), torch.randn(10, 2, CHUNK, ACTION, generator=g)
    images = torch.stack([batch[name] for name in CAMERAS], dim=-4)
    observed = {"observation.state": batch["observation.state"], "observation.images": images}
    for i in range(2):
        tensors[f"start.{i}"] = start[i]
        for s in range(10):
            tensors[f"added.{i}.{s}"] = added[s][i]
    import diffusers.schedulers.scheduling_ddpm as ddpm

    for kind in ["DDPM", "DDIM"]:
        used = iter(range(10))
        ddpm.randn_tensor = lambda *a, **k: added[next(used)]
        m.diffusion.noise_scheduler = lib._make_noise_scheduler(kind, num_train_timesteps=100, beta_start=c.beta_start, beta_end=c.beta_end, beta_schedule=c.beta_schedule, clip_sample=True, clip_sample_range=1.0, prediction_type="epsilon")
        with torch.no_grad():
            acted = m.diffusion.conditional_sample(2, global_cond=m.diffusion._prepare_global_conditioning(observed), noise=start.clone())
        for i in range(2):
            tensors[f"{'acted' if kind == 'DDPM' else 'implicit'}.{i}"] = acted[i]
    m.diffusion.noise_scheduler = None
    OUT.mkdir(parents=True, exist_ok=True)
    c._save_pretrained(OUT)
    text = json.loads((OUT / "config.json").read_text()) | dict(backbone_width=WIDTH)
    (OUT / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=losses[0], losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), stored=sum(t.numel() for t in weights.values()), views=STEPS * len(CAMERAS)), indent=1) + "\n")
    print(losses[0], losses[-1], dead, sum(t.numel() for t in weights.values()))


def count():
    """Enters what a file of the published size has, as torch counts it, into configs/testdata/parameters.json."""
    c = config((96, 96), 2, 2, ["observation.image"], crop_shape=(84, 84))
    path = pathlib.Path("configs/testdata/parameters.json")
    all = json.loads(path.read_text())
    m = lib.DiffusionPolicy(c)
    all["diffusion/pusht"] = sum(t.numel() for t in m.state_dict().values())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["diffusion/pusht"], sum(p.numel() for p in m.parameters()))


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
