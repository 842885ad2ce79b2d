"""Golden data of VQ-BeT: stages/family/robots/testdata/vqbet/ (a model whose codes are learnt) and vqbet_codes/ (twelve steps of codes and eight
behind them), as bench/golden/policies.py makes that of Pi0.5. The ResNet is lerobot's with narrower layers, and codes are drawn by noise that is
given; all else is lerobot's own class.

With lerobot 0.4.4 of PyPI; from the repository: python bench/golden/policies_vqbet.py [count]
"""

import json
import pathlib
import sys

import torch
import torchvision
from safetensors.torch import save_file
from torch import nn

import policies_diffusion as narrow
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.vqbet import modeling_vqbet as lib
from lerobot.policies.vqbet.configuration_vqbet import VQBeTConfig

ROOT = pathlib.Path("stages/family/robots/testdata")
ACTION, STATE, SIDES, STEPS, TOKENS, EACH = 3, 2, (24, 40), 2, 2, 3
WINDOWS, CHUNK = STEPS + TOKENS - 1, STEPS + TOKENS + EACH - 2
WIDTH, CAMERA = narrow.WIDTH, "observation.images.top"


def config(shape, state, action, **more):
    return VQBeTConfig(device="cpu", input_features={"observation.state": PolicyFeature(type=FeatureType.STATE, shape=(state,)), CAMERA: PolicyFeature(type=FeatureType.VISUAL, shape=(3, *shape))},
                       output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(action,))}, **more)


def case(name, seed, learn, codes, **more):
    c = config(SIDES, STATE, ACTION, n_obs_steps=STEPS, n_action_pred_token=TOKENS, action_chunk_size=EACH, crop_shape=None, spatial_softmax_num_keypoints=3, n_vqvae_training_steps=learn, vqvae_n_embed=codes, vqvae_embedding_dim=8,
               vqvae_enc_hidden_dim=12, gpt_block_size=10, gpt_input_dim=10, gpt_output_dim=14, gpt_n_layer=2, gpt_n_head=2, gpt_hidden_dim=16, dropout=0.0, offset_loss_weight=100.0, **more)
    g = torch.Generator().manual_seed(seed)
    m = lib.VQBeTPolicy(c)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.3 if p.ndim == 2 else 0.2 if p.ndim > 2 else 0.1) + (1 if p.ndim == 1 and n.endswith("weight") else 0)
    vq = m.vqbet.action_head.vqvae_model
    for layer in vq.vq_layer.layers:
        book = layer._codebook
        book.embed.copy_(torch.randn(book.embed.shape, generator=g) * 0.5)
        book.embed_avg.copy_(book.embed)
        if learn == 0:  # books that were learnt: averages and what follows from them
            book.cluster_size.copy_(torch.rand(book.cluster_size.shape, generator=g) * 3 + 0.5)
            book.embed_avg.copy_(book.embed * book.cluster_size[..., None])
    if learn == 0:
        vq.discretized, vq.vq_layer.freeze_codebook = torch.tensor(True), torch.tensor(True)
    tensors = {}
    for i in range(2):
        tensors[f"actions.{i}"], tensors[f"state.{i}"] = torch.rand(CHUNK, ACTION, generator=g) * 2 - 1, torch.randn(STEPS, STATE, generator=g)
        tensors[f"noise.{i}"] = -torch.log(-torch.log(torch.rand(WINDOWS, 2, codes, generator=g)))
        for k in range(STEPS):
            tensors[f"image.{i}.{k}"] = torch.randn(3, *SIDES, generator=g)
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    batch = {"observation.state": stack("state"), "action": stack("actions"), CAMERA: torch.stack([torch.stack([tensors[f"image.{i}.{k}"] for k in range(STEPS)]) for i in range(2)])}
    noise, turn = stack("noise").reshape(2 * WINDOWS, 2, codes), [0]

    def drawn(probs, num_samples):
        of = noise.reshape(-1, codes) if len(probs) > len(noise) else noise[:, turn[0]]
        turn[0] = 1 - turn[0]
        return (probs.log() + of).argmax(-1, keepdim=True)

    torch.multinomial = drawn
    whole = batch | {"observation.images": batch[CAMERA].unsqueeze(2)}
    kept = {n: t.detach().clone() for n, t in m.state_dict().items()}
    vq.vq_layer.freeze_codebook = torch.tensor(True)
    said, parts = m.vqbet(whole, rollout=False)
    loss = parts["loss"].item()
    for i in range(2):
        y = said["predicted_action"][i].reshape(WINDOWS, EACH, ACTION).detach()
        at = [min(k, STEPS - 1) if k - min(k, STEPS - 1) < EACH else k - EACH + 1 for k in range(CHUNK)]
        tensors[f"acted.{i}"] = torch.stack([y[w, k - w] for k, w in enumerate(at)])
    vq.vq_layer.freeze_codebook = torch.tensor(learn == 0)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses, grads = [], {}
    for step in range(20):
        m.train()
        opt.zero_grad()
        v, _ = m(dict(batch))
        v.backward()
        if step == 0:
            grads = {"grad." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
            dead = [n for n, p in m.named_parameters() if p.grad is None] + [n for n, _ in m.named_buffers()]
        opt.step()
        losses.append(v.item())
    if learn > 0:
        grads |= {"after." + n: t.clone() for n, t in m.state_dict().items() if "_codebook." in n}
    out = ROOT / name
    out.mkdir(parents=True, exist_ok=True)
    c._save_pretrained(out)
    text = json.loads((out / "config.json").read_text()) | dict(backbone_width=WIDTH)
    (out / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    save_file({k: v.contiguous().clone() for k, v in kept.items()}, out / "model.safetensors")
    save_file({k: v.contiguous().clone() for k, v in (tensors | grads).items()}, out / "golden.safetensors")
    (out / "golden.json").write_text(json.dumps(dict(samples=[{}, {}], loss=loss, losses=losses, dead=dead, stored=sum(t.numel() for t in kept.values()), views=STEPS), indent=1) + "\n")
    print(name, loss, losses, sum(t.numel() for t in kept.values()))


def main():
    torchvision.models.resnet18 = narrow.narrow
    nn.GroupNorm = narrow.Groups
    case("vqbet", 71, 0, 6)
    case("vqbet_codes", 73, 12, 2, sequentially_select=True)


def count():
    """Enters what a file of the published size has, as torch counts it, into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    all = json.loads(path.read_text())
    m = lib.VQBeTPolicy(config((96, 96), 2, 2))
    all["vqbet/pusht"] = sum(t.numel() for t in m.state_dict().values())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["vqbet/pusht"], sum(p.numel() for p in m.parameters()))


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
