"""Golden data of GR00T N1.7: stages/family/robots/testdata/groot_n1d7/, as bench/golden/policies_groot.py makes that of N1.5. The head of actions and
what reads the language model are lerobot's own (src/lerobot/policies/groot/groot_n1_7.py and action_head/cross_attention_dit.py of its main branch,
2026-08; PyPI's 0.4.4 for Python 3.11 has no N1.7), loaded from a checkout by themselves; the language model is transformers' Qwen3-VL, small. Dropout is
off; noise and times are given. lerobot's transformer of what is seen and told reads padding, as no row here does, so that prompts have one length.

With transformers 4.57, diffusers 0.35 and lerobot 0.4.4 of PyPI; from the repository: python bench/golden/policies_groot17.py CHECKOUT [count]
"""

import importlib.util
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.feature_extraction_utils import BatchFeature

OUT = pathlib.Path("stages/family/robots/testdata/groot_n1d7")
FROM = pathlib.Path(sys.argv[1]) / "src/lerobot/policies/groot"
torch.use_deterministic_algorithms(True)


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    m = importlib.util.module_from_spec(spec)
    sys.modules[name] = m
    spec.loader.exec_module(m)
    return m


for name in ("lr", "lr.policies", "lr.policies.groot", "lr.policies.groot.action_head"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
has = types.ModuleType("lerobot.utils.import_utils")  # which the files ask what is installed
has._transformers_available = has._diffusers_available = True
has.require_package = lambda *a, **k: None
sys.modules["lerobot.utils.import_utils"] = has
sizes = types.ModuleType("lr.policies.groot.configuration_groot")
sizes.N1_7_DEFAULT_IMAGE_CROP_SIZE, sizes.N1_7_DEFAULT_IMAGE_TARGET_SIZE = [230, 230], [256, 256]
sys.modules["lr.policies.groot.configuration_groot"] = sizes
load("lr.policies.groot.action_head.cross_attention_dit", FROM / "action_head/cross_attention_dit.py")
lib = load("lr.policies.groot.groot_n1_7", FROM / "groot_n1_7.py")

C = dict(hidden=16, inter=24, layers=3, heads=4, kv=2, head_dim=8, vocab=40, image=7, video=8, start=9, vision=dict(depth=3, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, num_position_embeddings=16, deepstack_visual_indexes=[0, 1], spatial_merge_size=2, temporal_patch_size=2, in_channels=3, out_hidden_size=16, hidden_act="gelu_pytorch_tanh"),
         chunk=5, actions=6, state=5, real=4, robots=3, width=12, dit_heads=3, dit_layers=5, out=10, vl_heads=4, vl_layers=2, most=8, sections=[2, 1, 1])


def text_of(c):
    return dict(attention_bias=False, bos_token_id=1, eos_token_id=2, head_dim=c["head_dim"], hidden_act="silu", hidden_size=c["hidden"], initializer_range=0.02, intermediate_size=c["inter"], max_position_embeddings=262144, num_attention_heads=c["heads"], num_hidden_layers=c["layers"], num_key_value_heads=c["kv"],
                rms_norm_eps=1e-6, rope_scaling=dict(mrope_interleaved=True, mrope_section=c["sections"], rope_type="default"), rope_theta=5000000, tie_word_embeddings=True, vocab_size=c["vocab"])


class Groot(nn.Module):
    def __init__(self, c):
        super().__init__()
        qwen = Qwen3VLConfig(image_token_id=c["image"], video_token_id=c["video"], vision_start_token_id=c["start"], tie_word_embeddings=True, text_config=text_of(c), vision_config=c["vision"])
        qwen._attn_implementation = "eager"
        self.backbone = lib.Qwen3Backbone.__new__(lib.Qwen3Backbone)
        nn.Module.__init__(self.backbone)
        self.backbone.model = Qwen3VLForConditionalGeneration._from_config(qwen, attn_implementation="eager")
        self.backbone.tune_llm = self.backbone.tune_visual = True
        lib._tie_unused_qwen_lm_head(self.backbone.model)
        self.action_head = lib.GR00TN17ActionHead(lib.GR00TN17Config(backbone_embedding_dim=c["hidden"], max_state_dim=c["state"], max_action_dim=c["actions"], action_horizon=c["chunk"], hidden_size=c["out"], input_embedding_dim=c["width"], max_seq_len=c["most"], max_num_embodiments=c["robots"], num_inference_timesteps=10, state_dropout_prob=0.0,
            diffusion_model_cfg=dict(positional_embeddings=None, num_layers=c["dit_layers"], num_attention_heads=c["dit_heads"], attention_head_dim=c["width"] // c["dit_heads"], norm_type="ada_norm", dropout=0.2, final_dropout=True, output_dim=c["out"], interleave_self_attention=True),
            vl_self_attention_cfg=dict(positional_embeddings=None, num_layers=c["vl_layers"], num_attention_heads=c["vl_heads"], attention_head_dim=c["hidden"] // c["vl_heads"], dropout=0.2, final_dropout=True)))


def main():
    m = Groot(C)
    g = torch.Generator().manual_seed(97)
    for n, p in m.named_parameters():
        p.requires_grad = True
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if "norm" in n and n.endswith("weight") and p.ndim == 1 else 0)
    m.eval()
    n, chunk = 4, C["chunk"]
    samples = [dict(tokens=[3, 9] + [7] * n + [5, 9] + [7] * n + [14, 2, 6], views=[True, True], time=0.7, robot=2), dict(tokens=[3, 9] + [7] * n + [11, 9] + [7] * n + [12, 4, 1], views=[True, True], time=0.253, robot=0)]
    tensors = {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(chunk, C["actions"], generator=g), torch.randn(chunk, C["actions"], generator=g)
        tensors[f"state.{i}"] = torch.randn(C["state"], generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(16, 3 * 2 * 16, generator=g) * 2 - 1
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    images = torch.cat([tensors[f"image.{i}.{k}"] for i in range(2) for k in range(2)])
    tokens, robots = torch.tensor([s["tokens"] for s in samples]), torch.tensor([s["robot"] for s in samples])
    seen = lambda: BatchFeature(data=dict(input_ids=tokens, attention_mask=torch.ones_like(tokens), pixel_values=images, image_grid_thw=torch.tensor([[1, 4, 4]] * 4)))
    mask = torch.zeros(2, chunk, C["actions"])
    mask[:, :, : C["real"]] = 1
    given = BatchFeature(data=dict(state=stack("state")[:, None], action=stack("actions"), action_mask=mask, embodiment_id=robots))
    # lerobot's time is 1 where the actions are clean, and here it is 1 where they are noise
    m.action_head.sample_time = lambda *a, **k: 1 - torch.tensor([s["time"] for s in samples])
    said, drawn = {}, torch.randn
    m.action_head.action_decoder.register_forward_hook(lambda _, __, y: said.update(y=y))

    def loss():
        torch.randn = torch.randn_like = lambda *a, **k: stack("noise")
        out = m.action_head(m.backbone(seen()), given)["loss"]
        torch.randn, torch.randn_like = drawn, like
        return out

    like = torch.randn_like
    first = loss()
    first.backward()
    for i in range(2):
        tensors[f"pred.{i}"] = -said["y"][i, -chunk:].detach().clone()
    grads = {"grad." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [n for n, p in m.named_parameters() if p.grad is None]
    weights = {n: p.detach().clone() for n, p in m.named_parameters()}
    start = torch.randn(2, chunk, C["actions"], generator=g)
    torch.randn = lambda *a, **k: start.clone()
    asked = BatchFeature(data=dict(state=stack("state")[:, None], embodiment_id=robots))
    acted = m.action_head.get_action(m.backbone(seen()), asked)["action_pred"]
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
    config = dict(model_type="Gr00tN1d7", backbone_model_type="qwen", select_layer=C["layers"], max_action_dim=C["actions"], max_state_dim=C["state"], action_horizon=chunk, max_num_embodiments=C["robots"], max_seq_len=C["most"], input_embedding_dim=C["width"], hidden_size=C["out"], backbone_embedding_dim=C["hidden"],
                  use_alternate_vl_dit=True, attend_text_every_n_blocks=2, diffusion_model_cfg=m.action_head.config.diffusion_model_cfg, vl_self_attention_cfg=m.action_head.config.vl_self_attention_cfg, text_config=text_of(C), vision_config=C["vision"], image_token_id=C["image"], video_token_id=C["video"], vision_start_token_id=C["start"])
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in weights.items()}, OUT / "model.safetensors")
    save_file({k: v.contiguous() for k, v in (tensors | grads).items()}, OUT / "golden.safetensors")
    (OUT / "golden.json").write_text(json.dumps(dict(samples=samples, loss=first.item(), losses=losses, dead=dead, parameters=sum(p.numel() for p in m.parameters()), real=C["real"], grid=[1, 4, 4]), indent=1) + "\n")
    print("loss", first.item(), losses[-1], sum(p.numel() for p in m.parameters()), dead)
    for k, v in weights.items():
        print(k, tuple(v.shape))


def count():
    """Enters what torch counts in the published size into configs/testdata/parameters.json."""
    path = pathlib.Path("configs/testdata/parameters.json")
    with torch.device("meta"):
        model = lib.GR00TN17(lib.GR00TN17Config(), load_backbone_weights=False)
    n = sum(p.numel() for p in model.parameters())
    all = json.loads(path.read_text())
    all["groot/n1.7"] = n
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(n)


if __name__ == "__main__":
    count() if sys.argv[2:] == ["count"] else main()
