"""Golden data of ACT: stages/family/robots/testdata/act/, as bench/golden/policies.py makes that of Pi0.5. The ResNet is lerobot's
with narrower layers; the noise of the latent is given.

LEROBOT=/path/to/lerobot, and torchvision and einops beside torch; from the repository: python bench/golden/policies_act.py
"""

import importlib
import json
import os
import pathlib
import sys
import types

import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

OUT = pathlib.Path("stages/family/robots/testdata/act")
torch.use_deterministic_algorithms(True)
WIDTH = 2  # channels of the first layer; ResNet-18 has 64


class Narrow(ResNet):
    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        if planes == 64:
            self.inplanes = WIDTH
            self.conv1, self.bn1 = nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), self._norm_layer(WIDTH)
        return super()._make_layer(block, planes * WIDTH // 64, blocks, stride, dilate)


def narrow(weights=None, **kwargs):
    m = Narrow(BasicBlock, [2, 2, 2, 2], **kwargs)
    m.fc = nn.Linear(8 * WIDTH, 10)
    return m


def lerobot():
    """The module of ACT, with those that it imports for other ends left empty."""
    root = pathlib.Path(os.environ["LEROBOT"]) / "src" / "lerobot"

    def empty(name, path=None, **names):
        m = types.ModuleType(name)
        m.__path__ = [str(path)] if path else []
        m.__dict__.update(names)
        sys.modules[name] = m

    class Pretrained(nn.Module):
        def __init__(self, config):
            super().__init__()

    empty("lerobot", root)
    empty("lerobot.policies", root / "policies")
    empty("lerobot.policies.act", root / "policies" / "act")
    empty("lerobot.utils")
    empty("lerobot.utils.constants", ACTION="action", OBS_ENV_STATE="observation.environment_state", OBS_IMAGES="observation.images", OBS_STATE="observation.state")
    empty("lerobot.policies.pretrained", PreTrainedPolicy=Pretrained)
    empty("lerobot.policies.act.configuration_act", ACTConfig=object)
    torchvision.models.resnet18 = narrow
    return importlib.import_module("lerobot.policies.act.modeling_act")


CHUNK, ACTION, STATE, LATENT, SIDES = 5, 3, 2, 4, (24, 40)
CAMERAS = ["observation.images.top", "observation.images.wrist"]


def main():
    act = lerobot()
    feature = lambda *shape: types.SimpleNamespace(shape=shape)
    settings = dict(chunk_size=CHUNK, n_action_steps=CHUNK, n_obs_steps=1, vision_backbone="resnet18", pretrained_backbone_weights=None, replace_final_stride_with_dilation=False, pre_norm=False, dim_model=16, n_heads=2,
                    dim_feedforward=24, feedforward_activation="relu", n_encoder_layers=2, n_decoder_layers=1, use_vae=True, latent_dim=LATENT, n_vae_encoder_layers=2, temporal_ensemble_coeff=None, dropout=0.0, kl_weight=10.0)
    config = types.SimpleNamespace(**settings, robot_state_feature=feature(STATE), env_state_feature=None, action_feature=feature(ACTION), image_features={c: feature(3, *SIDES) for c in CAMERAS}, validate_features=lambda: None)
    g = torch.Generator().manual_seed(31)
    m = act.ACTPolicy(config)
    for n, p in list(m.named_parameters()):
        p.data = torch.randn(p.shape, generator=g) * (0.3 if p.ndim == 2 else 0.2 if p.ndim == 4 else 0.1) + (1 if "norm" in n and n.endswith("weight") else 0)
    for n, b in m.named_buffers():
        if n.startswith("model.backbone"):
            b.data = torch.rand(b.shape, generator=g) + 0.5 if n.endswith(("weight", "var")) else torch.randn(b.shape, generator=g) * 0.2
    m.train()
    samples, tensors = [dict(pad=2), dict(pad=2)], {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"], tensors[f"state.{i}"] = torch.randn(CHUNK, ACTION, generator=g), torch.randn(LATENT, generator=g), torch.randn(STATE, generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.randn(3, *SIDES, generator=g)
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    batch = {"observation.state": stack("state"), "action": stack("actions"), "action_is_pad": torch.tensor([[j >= CHUNK - s["pad"] for j in range(CHUNK)] for s in samples])}
    for k, c in enumerate(CAMERAS):
        batch[c] = torch.stack([tensors[f"image.{i}.{k}"] for i in range(2)])
    drawn = stack("noise")
    act.torch.randn_like = lambda x: drawn
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses, grads, weights, terms = [], {}, {n: t.detach().clone() for n, t in m.state_dict().items()}, None
    for step in range(20):
        opt.zero_grad()
        v, parts = m(batch)
        v.backward()
        if step == 0:
            grads, terms = {"grad." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}, parts
            dead = [n for n, p in m.named_parameters() if p.grad is None] + [n for n, _ in m.named_buffers()]
        opt.step()
        losses.append(v.item())
    m.load_state_dict(weights)
    given = {k: v for k, v in batch.items() if not k.startswith("action")}
    acted = m.predict_action_chunk(given)
    for i in range(2):
        tensors[f"acted.{i}"] = acted[i].detach()
    OUT.mkdir(parents=True, exist_ok=True)
    visual, vector = (lambda *s: dict(type="VISUAL", shape=s)), lambda kind, n: dict(type=kind, shape=[n])
    features = {"observation.state": vector("STATE", STATE)} | {c: visual(3, *SIDES) for c in CAMERAS}
    usual = dict(device="cpu", use_amp=False, push_to_hub=True, repo_id=None, private=None, tags=None, license=None, use_peft=False, pretrained_path=None,
                 normalization_mapping=dict(VISUAL="MEAN_STD", STATE="MEAN_STD", ACTION="MEAN_STD"), optimizer_lr=1e-5, optimizer_weight_decay=1e-4, optimizer_lr_backbone=1e-5)
    settings["backbone_width"] = WIDTH
    (OUT / "config.json").write_text(json.dumps(dict(type="act", input_features=features, output_features={"action": vector("ACTION", ACTION)}, **settings, **usual), indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=losses[0], l1=terms["l1_loss"], kl=terms["kld_loss"], losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), stored=sum(t.numel() for t in weights.values()), views=2), indent=1) + "\n")
    print(losses[0], losses[-1], terms, dead)
    for n, t in weights.items():
        print(n, tuple(t.shape))


def count():
    """Enters what a file of the published size has, as torch counts it, into configs/testdata/parameters.json."""
    wide = torchvision.models.resnet18
    act = lerobot()
    torchvision.models.resnet18 = wide
    feature = lambda *shape: types.SimpleNamespace(shape=shape)
    config = types.SimpleNamespace(chunk_size=100, n_action_steps=100, n_obs_steps=1, vision_backbone="resnet18", pretrained_backbone_weights=None, replace_final_stride_with_dilation=False, pre_norm=False, dim_model=512, n_heads=8,
                                   dim_feedforward=3200, feedforward_activation="relu", n_encoder_layers=4, n_decoder_layers=1, use_vae=True, latent_dim=32, n_vae_encoder_layers=4, temporal_ensemble_coeff=None, dropout=0.1, kl_weight=10.0,
                                   robot_state_feature=feature(14), env_state_feature=None, action_feature=feature(14), image_features={"observation.images.top": feature(3, 480, 640)}, validate_features=lambda: None)
    path = pathlib.Path("configs/testdata/parameters.json")
    all = json.loads(path.read_text())
    m = act.ACTPolicy(config)
    all["act/aloha"] = sum(t.numel() for t in m.state_dict().values())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["act/aloha"], sum(p.numel() for p in m.parameters()))


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
