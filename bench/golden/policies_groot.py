"""Golden data of GR00T N1.5: stages/family/robots/testdata/groot/, as bench/golden/policies.py makes that of Pi0.5. The head of actions and Eagle are
lerobot's own classes; what lerobot makes of files of the hub (the classes of Eagle's tower and language model, and the sizes) is made here, small, of
transformers' SigLIP and Qwen3, with attention that needs no flash-attn. Dropout is off; noise and times are given. Prompts have one length: lerobot's
batches are padded from the left, and its transformers read the padding.

With lerobot 0.4.4, diffusers and transformers of PyPI; from the repository: python bench/golden/policies_groot.py [count]
"""

import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM, SiglipVisionConfig, SiglipVisionModel

import lerobot.policies.groot.groot_n1 as lib

sys.modules.setdefault("peft", types.SimpleNamespace(LoraConfig=None, get_peft_model=None))  # Eagle's file imports it for what is not made here
from lerobot.policies.groot.action_head import flow_matching_action_head as head
from lerobot.policies.groot.action_head.flow_matching_action_head import FlowmatchingActionHead, FlowmatchingActionHeadConfig
from lerobot.policies.groot.eagle2_hg_model.configuration_eagle2_5_vl import Eagle25VLConfig
from lerobot.policies.groot.eagle2_hg_model.modeling_eagle2_5_vl import Eagle25VLForConditionalGeneration

OUT = pathlib.Path("stages/family/robots/testdata/groot")
torch.use_deterministic_algorithms(True)
C = dict(hidden=16, inter=24, layers=2, heads=4, kv=2, head_dim=4, vocab=40, image=7, vision=dict(hidden=12, inter=18, layers=2, heads=2, patch=4, image=8), chunk=5, actions=6, state=5, real=4, robots=3, future=3, width=12, dit_heads=3, dit_layers=3, out=10, vl_heads=4, vl_layers=2, most=8)


class Groot(nn.Module):
    def __init__(self, c):
        super().__init__()
        v = c["vision"]
        vision = SiglipVisionConfig(hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], image_size=v["image"], vision_use_head=True)
        text = Qwen3Config(hidden_size=c["hidden"], intermediate_size=c["inter"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv"], head_dim=c["head_dim"], vocab_size=c["vocab"], rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=False)
        for x in (vision, text):
            x._attn_implementation = "eager"
        eagle = Eagle25VLConfig(vision_config=vision.to_dict() | dict(model_type="siglip_vision_model"), text_config=text.to_dict() | dict(architectures=["Qwen3ForCausalLM"]), select_layer=-1, use_pixel_shuffle=False, mlp_connector_layers=1, image_token_index=c["image"], downsample_ratio=0.5)
        eagle._attn_implementation = "eager"
        self.backbone = lib.EagleBackbone.__new__(lib.EagleBackbone)
        nn.Module.__init__(self.backbone)
        self.backbone.eagle_model = Eagle25VLForConditionalGeneration(eagle, vision_model=SiglipVisionModel(vision), language_model=Qwen3ForCausalLM(text))
        self.backbone.eagle_linear, self.backbone.select_layer = nn.Identity(), c["layers"]
        self.backbone.tune_llm = self.backbone.tune_visual = True
        self.action_head = FlowmatchingActionHead(FlowmatchingActionHeadConfig(
            diffusion_model_cfg=dict(attention_head_dim=c["width"] // c["dit_heads"], cross_attention_dim=c["hidden"], dropout=0.2, final_dropout=True, interleave_self_attention=True, norm_type="ada_norm", num_attention_heads=c["dit_heads"], num_layers=c["dit_layers"], output_dim=c["out"], positional_embeddings=None),
            vl_self_attention_cfg=dict(attention_head_dim=c["hidden"] // c["vl_heads"], dropout=0.2, final_dropout=True, num_attention_heads=c["vl_heads"], num_layers=c["vl_layers"], positional_embeddings=None),
            input_embedding_dim=c["width"], backbone_embedding_dim=c["hidden"], hidden_size=c["out"], max_seq_len=c["most"], max_state_dim=c["state"], action_dim=c["actions"], action_horizon=c["chunk"], num_inference_timesteps=10, max_num_embodiments=c["robots"], num_target_vision_tokens=c["future"], add_pos_embed=True, use_vlln=True, noise_beta_alpha=1.5, noise_beta_beta=1.0, noise_s=0.999, num_timestep_buckets=1000, expand_batch=None, tune_projector=True, tune_diffusion_model=True))


def main():
    m = Groot(C)
    g = torch.Generator().manual_seed(83)
    for n, p in m.named_parameters():
        p.requires_grad = True
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") and p.ndim == 1 else 0)
    m.eval()
    side, n = C["vision"]["image"], (C["vision"]["image"] // C["vision"]["patch"]) ** 2
    samples = [dict(tokens=[3, 9] + [7] * n + [5] + [7] * n + [14, 2, 6], views=[True, True], time=0.7, robot=2), dict(tokens=[3, 21] + [7] * n + [8] + [7] * n + [11, 4, 1], views=[True, True], time=0.253, robot=0)]
    tensors, chunk = {}, C["chunk"]
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(chunk, C["actions"], generator=g), torch.randn(chunk, C["actions"], generator=g)
        tensors[f"state.{i}"] = torch.randn(C["state"], generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, side, side, generator=g) * 2 - 1
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    images = torch.stack([tensors[f"image.{i}.{k}"] for i in range(2) for k in range(2)])
    tokens, robots = torch.tensor([s["tokens"] for s in samples]), torch.tensor([s["robot"] for s in samples])
    eagle = lambda: lib.BatchFeature(data=dict(eagle_pixel_values=images, eagle_input_ids=tokens, eagle_attention_mask=torch.ones_like(tokens), eagle_image_sizes=None))
    mask = torch.zeros(2, chunk, C["actions"])
    mask[:, :, : C["real"]] = 1
    given = lib.BatchFeature(data=dict(state=stack("state")[:, None], action=stack("actions"), action_mask=mask, embodiment_id=robots))
    # lerobot's time is 1 where the actions are clean, and here it is 1 where they are noise
    m.action_head.sample_time = lambda *a, **k: 1 - torch.tensor([s["time"] for s in samples])
    seen, drawn = {}, torch.randn
    m.action_head.action_decoder.register_forward_hook(lambda _, __, y: seen.update(y=y))

    def loss():
        torch.randn = lambda *a, **k: stack("noise")
        out = m.action_head(m.backbone(eagle()), given)["loss"]
        torch.randn = drawn
        return out

    first = loss()
    first.backward()
    for i in range(2):
        tensors[f"pred.{i}"] = -seen["y"][i, -chunk:].detach().clone()
    name = lambda n: "_groot_model." + n
    grads = {"grad." + name(n): p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [name(n) for n, p in m.named_parameters() if p.grad is None]
    weights = {name(n): p.detach().clone() for n, p in m.state_dict().items()}
    start = torch.randn(2, chunk, C["actions"], generator=g)
    torch.randn = lambda *a, **k: start
    acted = m.action_head.get_action(m.backbone(eagle()), given)["action_pred"]
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
    v = C["vision"]
    config = dict(type="groot", hidden_size=C["hidden"], num_hidden_layers=C["layers"], num_attention_heads=C["heads"], num_key_value_heads=C["kv"], head_dim=C["head_dim"], intermediate_size=C["inter"], vocab_size=C["vocab"], chunk_size=chunk, max_action_dim=C["actions"], max_state_dim=C["state"], views=2, view_size=v["image"], view_patch=v["patch"], view_hidden_size=v["hidden"],
                  view_intermediate_size=v["inter"], view_heads=v["heads"], view_layers=v["layers"], image_token=C["image"], embodiments=C["robots"], future_tokens=C["future"], dit_width=C["width"], dit_heads=C["dit_heads"], dit_layers=C["dit_layers"], dit_output=C["out"], mixer_heads=C["vl_heads"], mixer_layers=C["vl_layers"], action_positions=C["most"])
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=C["real"]), indent=1) + "\n")
    print("loss", first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)
    for k, v in weights.items():
        print(k, tuple(v.shape))


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    head.Beta = lambda *a: None
    with torch.device("meta"):
        m = Groot(dict(hidden=2048, inter=6144, layers=12, heads=16, kv=8, head_dim=128, vocab=151680, image=151669, vision=dict(hidden=1152, inter=4304, layers=27, heads=16, patch=14, image=224), chunk=16, actions=32, state=64, robots=32, future=32, width=1536, dit_heads=32, dit_layers=16, out=1024, vl_heads=32, vl_layers=4, most=1024))
    all = json.loads(path.read_text())
    all["groot/n1.5"] = sum(p.numel() for p in m.parameters())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["groot/n1.5"])


if __name__ == "__main__":
    count() if sys.argv[1:] == ["count"] else main()
