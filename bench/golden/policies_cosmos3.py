"""Golden data of Cosmos3 as a policy: stages/family/robots/testdata/cosmos3/, as bench/golden/policies_fastwam.py makes that of FastWAM. Losses and gradients are those of
LoongForge's copy of NVIDIA's trainer (loongforge/embodied/model/cosmos3), whose autoencoder gives latents that are given, and whose attention, which needs a GPU, is
done by its definition. What the model says, and its steps of Euler, are those of diffusers' Cosmos3OmniTransformer with the same weights, under whose names they are kept.

With torch, transformers and diffusers of PyPI; from the repository: python bench/golden/policies_cosmos3.py CHECKOUT [count]
"""

import importlib
import importlib.machinery
import json
import pathlib
import sys
import types

import torch
from diffusers import Cosmos3OmniTransformer
from safetensors.torch import save_file
from torch import nn

OUT = pathlib.Path("stages/family/robots/testdata/cosmos3")
CHECKOUT = pathlib.Path(sys.argv[1])
C = dict(hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=8, num_hidden_layers=3, vocab_size=40, rms_norm_eps=1e-6, rope_theta=5000000.0)
AXES, ACTIONS, REAL, DOMAINS, LATENTS, CHUNK, PATCH, RATE = [2, 1, 1], 5, 3, 4, (6, 3, 4, 6), 8, 2, 15.0
TOKENS = dict(start_of_generation=37, end_of_generation=38, eos_token_id=36)
BY_ACTION = 10.0


def empty(name, path=None, **names):
    m = types.ModuleType(name)
    m.__spec__ = importlib.machinery.ModuleSpec(name, None)
    m.__path__ = [str(path)] if path else []
    m.__dict__.update(names)
    sys.modules[name] = m


def trainer():
    """LoongForge's modules, with those that they import for other ends left empty."""
    root = CHECKOUT / "loongforge"
    empty("einops", rearrange=None, repeat=None)
    empty("flash_attn")
    empty("flash_attn.flash_attn_interface", flash_attn_func=None, flash_attn_varlen_func=None)
    for name in ("", ".embodied", ".embodied.model", ".embodied.model.cosmos3"):
        empty("loongforge" + name, root / name.strip(".").replace(".", "/"))
    empty("loongforge.embodied.model.registry", register_model=lambda name: lambda c: c)
    empty("loongforge.embodied.model.cosmos3.wan2pt2_vae_4x16x16", Wan2pt2VAEInterface=None)
    for name in ("data", "data.datasets", "data.datasets.cosmos3", "data.datasets.cosmos3.transforms", "train", "train.utils"):
        empty("loongforge.embodied." + name)
    empty("loongforge.embodied.data.datasets.cosmos3.transforms.cosmos3_preprocessor", Cosmos3Batch=None)
    empty("loongforge.embodied.train.utils.utils", resolve_dtype=None)
    torch.compile = lambda f=None, **k: f
    return importlib.import_module("loongforge.embodied.model.cosmos3.modeling_cosmos3")


def attend(q, k, v, cumulative_seqlen_Q, cumulative_seqlen_KV, is_causal=False, **_):
    out = torch.zeros_like(q)
    for i in range(len(cumulative_seqlen_Q) - 1):
        a, b, c, d = (int(x) for x in (*cumulative_seqlen_Q[i : i + 2], *cumulative_seqlen_KV[i : i + 2]))
        part = [x[0, e:f].transpose(0, 1)[None] for x, e, f in ((q, a, b), (k, c, d), (v, c, d))]
        o = nn.functional.scaled_dot_product_attention(*part, is_causal=is_causal, enable_gqa=True)
        out = torch.cat([out[:, :a], o[0].transpose(0, 1)[None], out[:, b:]], 1)
    return out


class Given:
    """torch, but for what is given here."""

    def __init__(self, **own):
        self.__dict__.update(own)

    def __getattr__(self, name):
        return getattr(torch, name)


def build(mod):
    lib = sys.modules[mod.__name__.rsplit(".", 1)[0] + ".attention"]
    lib.attention = attend
    text = dict(C, mrope=None, rope_scaling=dict(rope_type="default", mrope_section=AXES), attention_bias=False, hidden_act="silu", max_position_embeddings=40000, pad_token_id=None)
    text.pop("mrope")
    mot = mod.Qwen3VLMoTConfig({"text_config": text}, qk_norm_for_text=True, qk_norm_for_diffusion=True)
    net = mod.Cosmos3VFMNetwork(mod.Qwen3VLTextForCausalLM(mot), mod.Cosmos3VFMNetworkConfig(
        vision_gen=True, action_gen=True, sound_gen=False, vlm_config=mot.text_config, latent_patch_size=PATCH, latent_channel_size=LATENTS[0], latent_downsample_factor=8, position_embedding_type="unified_3d_mrope",
        joint_attn_implementation="two_way", action_dim=ACTIONS, num_embodiment_domains=DOMAINS, temporal_compression_factor_vision=4, enable_fps_modulation=True, base_fps=24))
    m = mod.Cosmos3.__new__(mod.Cosmos3)
    nn.Module.__init__(m)
    m.net = net
    m.rectified_flow = mod.RectifiedFlow(velocity_field=None, train_time_distribution="waver", train_time_weight_method="uniform", shift=5)
    m.__dict__.update(shift=5.0, latent_patch_size=PATCH, position_embedding_type="unified_3d_mrope", enable_fps_modulation=True, base_fps=24, unified_3d_mrope_reset_spatial_ids=True,
                      unified_3d_mrope_temporal_modality_margin=15000, action_loss_weight=BY_ACTION, loss_scale=1.0, _special_tokens=TOKENS)
    return m


def published(name):
    """The name of a parameter in diffusers' files."""
    name = name.removeprefix("language_model.").removeprefix("model.")
    for a, b in {"vae2llm.": "proj_in.", "llm2vae.": "proj_out.", "action2llm.": "action_proj_in.", "llm2action.": "action_proj_out.", "time_embedder.mlp.0.": "time_embedder.linear_1.", "time_embedder.mlp.2.": "time_embedder.linear_2.",
                 "q_proj_moe_gen.": "add_q_proj.", "k_proj_moe_gen.": "add_k_proj.", "v_proj_moe_gen.": "add_v_proj.", "o_proj_moe_gen.": "to_add_out.", "q_norm_moe_gen.": "norm_added_q.", "k_norm_moe_gen.": "norm_added_k.",
                 "self_attn.q_proj.": "self_attn.to_q.", "self_attn.k_proj.": "self_attn.to_k.", "self_attn.v_proj.": "self_attn.to_v.", "self_attn.o_proj.": "self_attn.to_out.", "q_norm.": "norm_q.", "k_norm.": "norm_k."}.items():
        name = name.replace(a, b)
    return name


SIZES = dict(C, latent_channel=LATENTS[0], latent_patch_size=PATCH, patch_latent_dim=LATENTS[0] * PATCH**2, action_dim=ACTIONS, action_gen=True, num_embodiment_domains=DOMAINS, rope_axes_dim=AXES, rope_scaling=dict(rope_type="default", mrope_section=AXES))


def places(mod, told):
    lib = sys.modules["loongforge.embodied.model.cosmos3.unified_3dmrope_utils"]
    text, at = lib.get_3d_mrope_ids_text_tokens(told, 0, True)
    at += 15000
    clip, _ = lib.get_3d_mrope_ids_vae_tokens(LATENTS[1], LATENTS[2] // PATCH, LATENTS[3] // PATCH, at, True, RATE, 24.0, 4)
    acts, _ = lib.get_3d_mrope_ids_vae_tokens(CHUNK + 1, 1, 1, at, True, RATE, 24.0, 1, 4, 0)
    return torch.cat([text, clip, acts], 1)


def main():
    mod = trainer()
    m = build(mod)
    g = torch.Generator().manual_seed(97)
    for n, p in m.net.named_parameters():
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n else 0)
    samples = [dict(tokens=[3, 9, 14, 5], robot=1, time=0.7), dict(tokens=[7, 21, 8, 30, 11, 2], robot=3, time=0.253)]
    tensors = {}
    for i in range(2):
        for name, shape in {"actions": (CHUNK, ACTIONS), "noise": (CHUNK, ACTIONS), "start": (CHUNK, ACTIONS), "state": (ACTIONS,), "clip": LATENTS, "clip_noise": LATENTS, "clip_start": LATENTS}.items():
            tensors[f"{name}.{i}"] = torch.randn(shape, generator=g)
        for name in ("actions", "noise", "start", "state"):
            tensors[f"{name}.{i}"][..., REAL:] = 0
    packing = sys.modules["loongforge.embodied.model.cosmos3.sequence_packing"]
    packing.PackedSequence.to_cuda = lambda self: None
    m.rectified_flow.get_timesteps_sigmas_from_shift = lambda *a, **k: (1000 * torch.tensor([s["time"] for s in samples]), torch.tensor([s["time"] for s in samples]))
    plan = lambda: packing.SequencePlan(has_text=True, has_vision=True, has_action=True, condition_frame_indexes_vision=[0], condition_frame_indexes_action=[0], action_start_frame_offset=0)
    batch = lambda: types.SimpleNamespace(
        videos=[torch.zeros(3, 9, 32, 48)] * 2, text_token_ids=[s["tokens"] for s in samples], sequence_plans=[plan(), plan()], fps_values=[RATE] * 2, actions=[torch.cat([tensors[f"state.{i}"][None], tensors[f"actions.{i}"]]) for i in range(2)],
        raw_action_dims=[torch.tensor(REAL)] * 2, action_domain_ids=[torch.tensor(s["robot"]) for s in samples])

    def loss():
        clips = iter([tensors[f"clip.{i}"][None] for i in range(2)])
        m._get_vae_encoder = lambda: types.SimpleNamespace(encode=lambda v: next(clips).clone())
        noise = iter([tensors[f"clip_noise.{i}"] for i in range(2)] + [torch.cat([torch.zeros(1, ACTIONS), tensors[f"noise.{i}"]]) for i in range(2)])
        mod.torch = Given(randn=lambda *a, **k: next(noise))
        return m(batch())

    first, parts = loss()
    first.backward()
    grads = {"grad." + published(n): p.grad.clone() for n, p in m.net.named_parameters() if p.grad is not None}
    dead = [published(n) for n, p in m.net.named_parameters() if p.grad is None]
    weights = {published(n): p.detach().clone() for n, p in m.net.named_parameters()}
    d = Cosmos3OmniTransformer(**SIZES)
    d.load_state_dict(weights)

    def say(i, clip, acts, time):
        s, told = samples[i], len(samples[i]["tokens"]) + 2
        frame = LATENTS[2] * LATENTS[3] // PATCH**2
        rows = LATENTS[1] * frame
        vision, noisy = torch.arange(told, told + rows), torch.arange(1, LATENTS[1])
        action = torch.arange(told + rows, told + rows + CHUNK + 1)
        with torch.no_grad():
            out = d(torch.tensor(s["tokens"] + [TOKENS["eos_token_id"], TOKENS["start_of_generation"]]), torch.arange(told), places(mod, told), told, told + rows + CHUNK + 1, [clip[None]], [(LATENTS[1], LATENTS[2] // PATCH, LATENTS[3] // PATCH)], vision,
                    vision[frame:], torch.full((rows - frame,), 1000 * time), [noisy], action_tokens=[torch.cat([tensors[f"state.{i}"][None], acts])], action_token_shapes=[(CHUNK + 1, 1, 1)], action_sequence_indexes=action, action_mse_loss_indexes=action[1:],
                    action_timesteps=torch.full((CHUNK,), 1000 * time), action_noisy_frame_indexes=[torch.arange(1, CHUNK + 1)], action_domain_ids=[torch.tensor([s["robot"]])])
        return out.sample[0][0], out.action[0][1:]

    worst = 0
    for i, s in enumerate(samples):
        t = torch.tensor(s["time"])
        clip = t * tensors[f"clip_noise.{i}"] + (1 - t) * tensors[f"clip.{i}"]
        clip[:, 0] = tensors[f"clip.{i}"][:, 0]
        clip_said, tensors[f"pred.{i}"] = say(i, clip, t * tensors[f"noise.{i}"] + (1 - t) * tensors[f"actions.{i}"], s["time"])
        err = ((clip_said - tensors[f"clip_noise.{i}"] + tensors[f"clip.{i}"])[:, 1:] ** 2).sum() / clip.numel()
        err += BY_ACTION * ((tensors[f"pred.{i}"] - tensors[f"noise.{i}"] + tensors[f"actions.{i}"])[:, :REAL] ** 2).sum() / ((CHUNK + 1) * REAL)
        worst += err / 2
    print("loss by diffusers", worst.item(), "by LoongForge", first.item())
    at = lambda k: (lambda s: (torch.tensor(5.0) * s / (1 + torch.tensor(4.0) * s)).item())(torch.tensor(1 - k / 10))
    for i in range(2):
        clip, acts = tensors[f"clip_start.{i}"].clone(), tensors[f"start.{i}"].clone()
        clip[:, 0] = tensors[f"clip.{i}"][:, 0]
        for k in range(10):
            v, a = say(i, clip, acts, at(k))
            clip[:, 1:] -= (at(k) - at(k + 1)) * v[:, 1:]
            acts -= (at(k) - at(k + 1)) * a
            acts[:, REAL:] = 0
        tensors[f"drawn.{i}"], tensors[f"acted.{i}"] = clip, acts
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()[0]
        v.backward()
        opt.step()
        losses.append(v.item())
    for s in samples:
        s["tokens"] += [TOKENS["eos_token_id"], TOKENS["start_of_generation"]]
    config = dict(SIZES, _class_name="Cosmos3OmniTransformer", chunk_size=CHUNK, views=2, view_height=32, view_width=24, video_scale=[4, 8, 8], unified_3d_mrope_temporal_modality_margin=15000, base_fps=24)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=REAL), indent=1) + "\n")
    print("loss", first.item(), parts, losses[-1], sum(p.numel() for p in m.parameters()), dead)
    for k, v in weights.items():
        print(k, tuple(v.shape), "" if "grad." + k in grads else "DEAD", "zero" if "grad." + k in grads and not grads["grad." + k].any() else "")


def count():
    """Enters what diffusers counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    with torch.device("meta"):
        n = sum(p.numel() for p in Cosmos3OmniTransformer(action_gen=True, action_dim=64).parameters())
    all = json.loads(path.read_text())
    all["cosmos3/nano"] = n
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(n)


if __name__ == "__main__":
    count() if sys.argv[2:] == ["count"] else main()
