"""Golden data of DreamZero: stages/family/robots/testdata/dreamzero/ (Wan 2.2's form) and dreamzero_i2v/ (Wan 2.1's, which reads the first frame beside each), as
bench/golden/policies_lingbot.py makes that of LingBot-VA. The classes are those of LoongForge (loongforge/embodied/model/dreamzero/modules), which has NVIDIA's. What they need a
GPU for is done in float32 by the definition: attention, in the place of flash attention, and what is bfloat16 there. Encoders give what is drawn here.

With torch, torchvision, einops, transformers and diffusers of PyPI; from the repository: python bench/golden/policies_dreamzero.py CHECKOUT [count]
"""

import contextlib
import importlib
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from transformers.feature_extraction_utils import BatchFeature

OUT = pathlib.Path("stages/family/robots/testdata")
FROM = pathlib.Path(sys.argv[1]) / "loongforge/embodied/model/dreamzero/modules"
torch.use_deterministic_algorithms(True)
torch.compile = lambda f=None, **k: f if f else (lambda g: g)
sys.modules["dreamzero"] = types.ModuleType("dreamzero")
sys.modules["dreamzero"].__path__ = [str(FROM)]
head, net, sub = (importlib.import_module("dreamzero." + n) for n in ("action_head_tf", "causal_wan_model", "wan2_1_submodule"))


class Given:
    """torch, but for what is given here."""

    def __init__(self, **own):
        self.__dict__.update(own)

    def __getattr__(self, name):
        return getattr(torch, name)


def attend(q, k, v, k_lens=None, causal=False, **_):
    return torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal).transpose(1, 2)


class Attention(torch.nn.Module):
    def __init__(self, causal=False, **_):
        super().__init__()
        self.causal = causal

    def forward(self, q, k, v):
        return attend(q, k, v, causal=self.causal)


IMAGE, FRAMES, SIDE, TEXT, PICTURES = 12, 7, (4, 4), 6, 257  # features of an image, frames of latents, their height and width, rows of a caption, rows of features
C = dict(patch_size=(1, 2, 2), frame_seqlen=4, text_len=TEXT, dim=24, ffn_dim=36, freq_dim=8, text_dim=10, num_heads=2, num_layers=2, max_chunk_size=2, num_frame_per_block=2, action_dim=5, max_state_dim=3, hidden_size=7, num_action_per_block=4)
FORMS = {"dreamzero": dict(model_type="ti2v", in_dim=6, out_dim=6, concat_first_frame_latent=False), "dreamzero_i2v": dict(model_type="i2v", in_dim=12, out_dim=4, concat_first_frame_latent=True)}
BLOCKS, REAL = 3, 3
STEPS, GUIDE = 10, 5.0


def form(name):
    own = FORMS[name]
    channels = own["out_dim"]
    latents = (channels, FRAMES, *SIDE)
    net.AttentionModule, net.MLPProj, sub.flash_attention = Attention, lambda _, out: sub.MLPProj(IMAGE, out), attend
    model = net.CausalWanModel(**C, **own)
    config = head.WANPolicyHeadConfig(model_dtype="float32", num_frame_per_block=2, action_dim=C["action_dim"], action_horizon=C["num_action_per_block"], num_frames=25, hidden_size=7, num_inference_steps=STEPS, cfg_scale=GUIDE)
    for k, v in head.WANPolicyHeadConfig.__dict__.items():  # defaults of dataclasses, which newer configurations lose
        if isinstance(v, (int, float, str, bool)) and not k.startswith("_") and k not in config.__dict__:
            setattr(config, k, v)
    for k in ("target_video_height", "target_video_width"):
        setattr(config, k, None)
    stub = torch.nn.Linear(1, 1)
    m = head.WANPolicyHead(config, stub, torch.nn.Linear(1, 1), torch.nn.Linear(1, 1), model)
    m.scheduler.set_timesteps(1000, training=True)
    g = torch.Generator().manual_seed(97)
    for n, p in model.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if ("norm" in n or ".proj.0" in n or ".proj.4" in n) and n.endswith("weight") else 0)
    samples = [dict(rows=4, levels=dict(clip=[120, 700, 700, 431, 431, 905, 905], actions=[700, 431, 905])), dict(rows=6, levels=dict(clip=[930, 12, 12, 630, 630, 250, 250], actions=[12, 630, 250]))]
    tensors, chunk, text = {}, BLOCKS * C["num_action_per_block"], C["text_dim"]
    for i, s in enumerate(samples):
        shapes = {"actions": (chunk, 5), "noise": (chunk, 5), "state": (BLOCKS, 3), "clip": latents, "clip_noise": latents, "text": (s["rows"], text), "none": (1, text), "image": (PICTURES, IMAGE), "start": (chunk // BLOCKS, 5), "clip_start": (channels, 2, *SIDE), "later_start": (chunk // BLOCKS, 5), "later_clip_start": (channels, 2, *SIDE)}
        if own["concat_first_frame_latent"]:
            shapes["given"] = (own["in_dim"] - channels, FRAMES, *SIDE)
        for n, shape in shapes.items():
            tensors[f"{n}.{i}"] = torch.randn(shape, generator=g)
        tensors[f"actions.{i}"] = tensors[f"actions.{i}"].clamp(-2, 2) / 2
        tensors[f"actions.{i}"][:, REAL:] = 0
    padded = lambda x: torch.cat([x, torch.zeros(TEXT - len(x), text)])[None]
    mask = torch.zeros(1, chunk, 5)
    mask[..., :REAL] = 1
    said = {}
    model.action_decoder.register_forward_hook(lambda _, __, y: said.update(y=y))
    plain = lambda **own: Given(bfloat16=torch.float32, amp=types.SimpleNamespace(autocast=lambda **k: contextlib.nullcontext()), **own)

    def data(i, **own):
        video = torch.zeros(1, own.pop("frames", 25), 8, 8, 3)
        return BatchFeature(dict(images=video, embodiment_id=torch.zeros(1, dtype=torch.long), has_real_action=torch.ones(1), action_mask=mask, state=tensors[f"state.{i}"][None, own.pop("states", slice(BLOCKS))], action=tensors[f"actions.{i}"][None], text=torch.ones(1, TEXT), text_attention_mask=torch.ones(1, TEXT), text_negative=torch.zeros(1, TEXT), text_attention_mask_negative=torch.ones(1, TEXT)) | own)

    def seen(i):
        given = tensors.get(f"given.{i}", torch.zeros(20, FRAMES, *SIDE))[None]
        m.encode_image = lambda *a, **k: (tensors[f"image.{i}"][None], given, tensors[f"clip.{i}"][None, :, :1])
        m.encode_clip_image = lambda *a, **k: tensors[f"image.{i}"][None]
        m.encode_video = lambda *a, **k: tensors[f"clip.{i}"][None]
        m.encode_prompt = lambda ids, _: padded(tensors[f"{'text' if ids.any() else 'none'}.{i}"])

    def one(i):
        seen(i)
        noises = iter([tensors[f"clip_noise.{i}"][None], tensors[f"noise.{i}"][None]])
        head.torch = plain(randn_like=lambda _: next(noises), randint=lambda *a: torch.tensor([samples[i]["levels"]["clip"]]))
        return m(None, data(i)).loss

    loss = lambda: (one(0) + one(1)) / 2
    for i in range(2):
        one(i)
        tensors[f"pred.{i}"] = said["y"][0].detach().clone()
    first = loss()
    first.backward()
    grads = {"grad.action_head.model." + n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    dead = [n for n, p in model.named_parameters() if p.grad is None]
    weights = {"action_head.model." + n: p.detach().clone() for n, p in model.named_parameters()}
    for i in range(2):
        seen(i)
        m.reset_inference()
        starts = iter(tensors[f"{n}.{i}"][None].clone() for n in ("clip_start", "start", "later_clip_start", "later_start"))
        m.generate_noise = lambda *a, **k: next(starts)
        head.torch = plain()
        out = m.lazy_joint_video_action(None, data(i, frames=1, states=slice(1)))
        tensors[f"acted.{i}"], tensors[f"drawn.{i}"] = out["action_pred"][0].clone(), out["video_pred"][0, :, 1:].clone()
        # the next block, behind what was seen of the first
        out = m.lazy_joint_video_action(None, data(i, frames=5, states=slice(1, 2)), latent_video=tensors[f"clip.{i}"][None, :, 1:3])
        tensors[f"later_acted.{i}"], tensors[f"later_drawn.{i}"] = out["action_pred"][0].clone(), out["video_pred"][0].clone()
    opt, losses = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    keys = dict(type="dreamzero", **{k: C[k] for k in ("dim", "ffn_dim", "num_heads", "num_layers", "freq_dim", "text_dim", "text_len", "action_dim", "max_state_dim", "num_frame_per_block")}, out_dim=channels, dit_action_state_hidden_size=C["hidden_size"], chunk_size=chunk, views=1, view_height=32, view_width=32, image_dim=IMAGE, image_rows=PICTURES,
                video_scale=[4, 8, 8], num_frames=25, video_every=1, num_inference_steps=STEPS, cfg_scale=GUIDE, block_window=5, video_given=own["in_dim"] - channels if own["concat_first_frame_latent"] else 0)
    to = OUT / name
    to.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in weights.items()}, to / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, to / "golden.safetensors")
    (to / "config.json").write_text(json.dumps(keys, indent=1) + "\n")
    (to / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in model.parameters()), real=REAL), indent=1) + "\n")
    print(name, "loss", first.item(), losses[-1], sum(p.numel() for p in model.parameters()), dead)
    for k, v in weights.items():
        print(k, tuple(v.shape))


def count():
    """Enters what torch counts in the published sizes into configs/testdata/parameters.json, as LoongForge's files make them."""
    path = pathlib.Path("configs/testdata/parameters.json")
    all = json.loads(path.read_text())
    for name, own in {"dreamzero/5b": dict(model_type="ti2v", in_dim=48, out_dim=48, dim=3072, ffn_dim=14336, num_heads=24, num_layers=30, concat_first_frame_latent=False), "dreamzero/14b": dict(model_type="i2v", in_dim=36, out_dim=16, dim=5120, ffn_dim=13824, num_heads=40, num_layers=40)}.items():
        with torch.device("meta"):
            m = net.CausalWanModel(**own, freq_dim=256, num_frame_per_block=2, num_action_per_block=24, max_chunk_size=4, action_dim=32, max_state_dim=64, skip_init_weights=True)
        all[name] = sum(p.numel() for p in m.parameters())
        print(name, all[name])
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[2:] == ["count"]:
        count()
    else:
        for n in FORMS:
            form(n)
