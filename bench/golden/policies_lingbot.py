"""Golden data of LingBot-VA: stages/family/robots/testdata/lingbot_va/, as bench/golden/policies_fastwam.py makes that of FastWAM. The policy is lerobot's own
(src/lerobot/policies/lingbot_va of its main branch, 2026-08), put into PyPI's 0.4.4. What it needs a GPU for is done in float32 by the definition: attention under
its own masks, in the place of flex attention. Each sample has levels, a chunk and a window of its own, where lerobot draws one of each for a batch.

With lerobot 0.4.4, diffusers and einops of PyPI; from the repository: python bench/golden/policies_lingbot.py CHECKOUT [count]
"""

import importlib
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file

import lerobot.configs
import lerobot.optim.schedulers
import lerobot.utils.import_utils as has

OUT = pathlib.Path("stages/family/robots/testdata/lingbot_va")
FROM = pathlib.Path(sys.argv[1]) / "src/lerobot/policies/lingbot_va"
torch.use_deterministic_algorithms(True)
has._diffusers_available = has._transformers_available = True
has.require_package = lambda *a, **k: None
lerobot.optim.schedulers.ConstantWithWarmupSchedulerConfig = object
sys.modules["lerobot.policies.lingbot_va"] = types.ModuleType("lerobot.policies.lingbot_va")
sys.modules["lerobot.policies.lingbot_va"].__path__ = [str(FROM)]
lib = importlib.import_module("lerobot.policies.lingbot_va.utils")
mod = importlib.import_module("lerobot.policies.lingbot_va.modeling_lingbot_va")
settings = importlib.import_module("lerobot.policies.lingbot_va.configuration_lingbot_va")


class Given:
    """torch, but for what is given here."""

    def __init__(self, **own):
        self.__dict__.update(own)

    def __getattr__(self, name):
        return getattr(torch, name)


C = dict(patch_size=(1, 2, 2), num_attention_heads=4, attention_head_dim=12, in_channels=6, out_channels=6, action_dim=5, text_dim=10, freq_dim=8, ffn_dim=36, num_layers=2, eps=1e-6, attn_mode="flex", dtype="float32", height=32, width=24, action_per_frame=2, frame_chunk_size=4, num_inference_steps=10, action_num_inference_steps=10, max_sequence_length=6,
         used_action_channel_ids=[0, 1, 2], obs_cam_keys=["observation.images.a", "observation.images.b"])
LATENTS, FRAMES = (6, 4, 4, 6), 4


def policy(c):
    features = {k: settings.PolicyFeature(type=settings.FeatureType.VISUAL, shape=(3, c["height"], c["width"])) for k in c["obs_cam_keys"]}
    return mod.LingBotVAPolicy(settings.LingBotVAConfig(**c, device="cpu", input_features=features, output_features={}))


def mask(latent, action, padded, chunk, window_size, patch_size, device):
    b, _, f, h, w = latent
    a_f, a_h, a_w = action[2:]
    rows, acts = f * (h // patch_size[1]) * (w // patch_size[2]), a_f * a_h * a_w
    frame, act = torch.arange(f).repeat_interleave(rows // f), torch.arange(a_f).repeat_interleave(acts // a_f)
    ids = torch.cat([frame // chunk * 2] * 2 + [act // chunk * 2 + 1] * 2 + [torch.full((padded,), -1)])
    noise = torch.cat([torch.zeros(rows), torch.ones(rows), torch.zeros(acts), torch.ones(acts), torch.full((padded,), -1)]).long()
    of = torch.cat([torch.zeros(2 * (rows + acts)), torch.full((padded,), -1)]).long()
    sees = lib.FlexAttnFunc._get_mask_mod(of, ids, noise, window_size)
    q, k = torch.arange(len(ids))[:, None], torch.arange(len(ids))[None]
    lib.FlexAttnFunc.attention_mask = sees(torch.tensor(0), torch.tensor(0), q, k) | (of[:, None] < 0) & (q == k)  # padding sees itself
    lib.FlexAttnFunc.cross_attention_mask = None


def attend(self, q, k, v, dtype=None):
    m = lib.FlexAttnFunc.cross_attention_mask if self.is_cross else lib.FlexAttnFunc.attention_mask
    return torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=m).transpose(1, 2)


def main():
    lib.torch = Given(bfloat16=torch.float32)
    lib.FlexAttnFunc.init_mask, lib.FlexAttnFunc.forward = staticmethod(mask), attend
    m = policy(C)
    g = torch.Generator().manual_seed(89)
    for n, p in m.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") else 0)
    samples = [dict(rows=4, levels=dict(actions=[120, 700, 431, 905], clip=[310, 44, 820, 555]), chunk=2, window=64), dict(rows=6, levels=dict(actions=[12, 630, 250, 77], clip=[900, 402, 13, 231], clean=[510, 777, 900, 640]), chunk=1, window=4)]
    tensors, chunk = {}, FRAMES * C["action_per_frame"]
    real = len(C["used_action_channel_ids"])
    for i, s in enumerate(samples):
        for name, shape in {"actions": (chunk, 5), "noise": (chunk, 5), "start": (chunk, 5), "clip": LATENTS, "clip_noise": LATENTS, "clean_noise": LATENTS, "clip_start": LATENTS, "text": (s["rows"], 10), "none": (1, 10)}.items():
            tensors[f"{name}.{i}"] = torch.randn(shape, generator=g)
        for name in ("actions", "noise", "start"):
            tensors[f"{name}.{i}"][:, real:] = 0
    grid = lambda x: x.reshape(FRAMES, -1, 5).permute(2, 0, 1)[None, ..., None]  # [1, numbers, frames, actions of each, 1]
    padded = lambda x: torch.cat([x, torch.zeros(C["max_sequence_length"] - len(x), 10)])[None]
    used = torch.zeros(1, 5, FRAMES, C["action_per_frame"], 1)
    used[:, :real] = 1
    said, drawn = {}, torch.Tensor.normal_
    m.transformer.action_proj_out.register_forward_hook(lambda _, __, y: said.update(y=y))

    def one(i):
        s = samples[i]
        clean = s["levels"].get("clean")
        ids = iter([s["levels"]["clip"]] + ([clean] if clean else []) + [s["levels"]["actions"]])
        noises = iter([tensors[f"clip_noise.{i}"][None]] + ([tensors[f"clean_noise.{i}"][None]] if clean else []) + [grid(tensors[f"noise.{i}"])])
        numbers = iter([s["chunk"], s["window"]])
        noisy = iter([0.0 if clean else 1.0, 1.0])
        mod._sample_timestep_id = lambda *a, **k: torch.tensor(next(ids))
        mod.torch = Given(rand=lambda *a: torch.tensor([next(noisy)]), randint=lambda *a: torch.tensor([next(numbers)]))
        torch.Tensor.normal_ = lambda *a: next(noises)
        out = m.training_loss_from_streams(tensors[f"clip.{i}"][None], grid(tensors[f"actions.{i}"]) * used, used, padded(tensors[f"text.{i}"]))[0]
        torch.Tensor.normal_ = drawn
        return out

    loss = lambda: (one(0) + one(1)) / 2
    for i in range(2):
        one(i)
        tensors[f"pred.{i}"] = said["y"].reshape(chunk, 5).detach().clone()
    first = loss()
    first.backward()
    grads = {"grad." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [n for n, p in m.named_parameters() if p.grad is None]
    weights = {n: p.detach().clone() for n, p in m.state_dict().items()}
    lib.FlexAttnFunc.forward = lambda self, q, k, v: lib.custom_sdpa(q, k, v)
    mod.LingBotVAPolicy._latent_hw = property(lambda self: LATENTS[2:])
    for i in range(2):
        m.reset()
        m._prompt_embeds, m._negative_prompt_embeds = padded(tensors[f"text.{i}"]), padded(tensors[f"none.{i}"])
        starts = iter([tensors[f"clip_start.{i}"][None].clone(), grid(tensors[f"start.{i}"]).clone()])
        mod.torch = Given(randn=lambda *a, **k: next(starts))
        init = tensors[f"clip.{i}"][None, :, :1]
        m._init_streaming_cache(init)
        acts, drew = m._infer(init, frame_st_id=0)
        tensors[f"acted.{i}"], tensors[f"drawn.{i}"] = acts[0, ..., 0].permute(1, 2, 0).reshape(chunk, 5).clone(), drew[0].clone()
    lib.FlexAttnFunc.forward = attend
    m.reset()
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    m.train()
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    features = {k: dict(type="VISUAL", shape=[3, 32, 24]) for k in C["obs_cam_keys"]}
    config = {k: v for k, v in C.items() if k not in ("dtype", "attn_mode")} | dict(type="lingbot_va", video_scale=[4, 8, 8], input_features=features, output_features=dict(action=dict(type="ACTION", shape=[3])))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=real), indent=1) + "\n")
    print("loss", first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)
    for k, v in weights.items():
        print(k, tuple(v.shape))


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    with torch.device("meta"):
        n = sum(p.numel() for p in lib.WanTransformer3DModel().parameters())
    all = json.loads(path.read_text())
    all["lingbot-va/base"] = n
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(n)


if __name__ == "__main__":
    count() if sys.argv[2:] == ["count"] else main()
