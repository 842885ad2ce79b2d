"""Golden data of GR00T N1.6: stages/family/robots/testdata/groot_n1d6/, as bench/golden/policies_groot17.py makes that of N1.7. Eagle's tower, how it
and the language model are joined, and the head of actions are NVIDIA's code (gr00t/model/gr00t_n1d6 and modules of Isaac-GR00T), in the copy that LoongForge
has of it (loongforge/embodied/model/groot_n1_6), loaded from a checkout without the parts that read data; the language model is transformers' Qwen3, small.
The tower's attention is flash-attn's there, each view by itself; in its place are plain products with the same borders. Views have another side than the
table of places. Dropout is off; noise and times are given.

With transformers 4.57 and diffusers 0.35 of PyPI; from the repository: python bench/golden/policies_groot16.py CHECKOUT [count]
"""

import ast
import importlib.util
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3Config
from transformers.feature_extraction_utils import BatchFeature

OUT = pathlib.Path("stages/family/robots/testdata/groot_n1d6")
FROM = pathlib.Path(sys.argv[1]) / "loongforge/embodied/model/groot_n1_6"
torch.use_deterministic_algorithms(True)


def load(name, path, keep=None):
    """A module of a file, or those of its classes that keep names, in what stands before them."""
    spec = importlib.util.spec_from_file_location(name, path)
    m = importlib.util.module_from_spec(spec)
    sys.modules[name] = m
    if keep is None:
        spec.loader.exec_module(m)
        return m
    tree = ast.parse(path.read_text())
    tree.body = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name in keep]
    m.__dict__.update(torch=torch, nn=nn, F=nn.functional, BatchFeature=BatchFeature, _is_cuda_capturing=lambda: False, GrootN1d6ModelConfig=None, Tuple=tuple)
    exec(compile(tree, str(path), "exec"), m.__dict__)
    return m


dit = load("n16.dit", FROM / "modules/dit.py")
mlp = load("n16.embodiment_mlp", FROM / "modules/embodiment_mlp.py")
for name in ("n16", "n16.eagle"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
siglip = load("n16.eagle.modeling_siglip2", FROM / "eagle3_model/modeling_siglip2.py")
eagle_config = load("n16.eagle.configuration_eagle3_vl", FROM / "eagle3_model/configuration_eagle3_vl.py")
eagle = load("n16.eagle.modeling_eagle3_vl", FROM / "eagle3_model/modeling_eagle3_vl.py")
head = load("n16.head", FROM / "modeling_groot_n1_6.py", {"Gr00tN1d6ActionHead"})
head.__dict__.update(AlternateVLDiT=dit.AlternateVLDiT, DiT=dit.DiT, CategorySpecificMLP=mlp.CategorySpecificMLP, MultiEmbodimentActionEncoder=mlp.MultiEmbodimentActionEncoder)


def apart(module, query, key, value, mask, scaling, dropout=0.0, seq_len_list=None, **_):
    """Attention of each view by itself, [1 heads rows head]."""
    out, at = [], 0
    for n in seq_len_list:
        q, k, v = (x[:, :, at : at + n] for x in (query, key, value))
        out.append(torch.softmax(q @ k.transpose(-1, -2) * scaling, -1) @ v)
        at += n
    return torch.cat(out, 2).transpose(1, 2).contiguous(), None


siglip.eager_attention_forward = apart
C = dict(hidden=16, inter=24, layers=2, heads=4, kv=2, head_dim=4, vocab=40, image=7, vision=dict(hidden=12, inter=18, layers=2, heads=3, patch=4, table=3, image=16), chunk=5, actions=6, state=5, real=4, robots=3, width=12, dit_heads=3, dit_layers=5, out=10, most=8)


def settings(c):
    v = c["vision"]
    text = dict(hidden_size=c["hidden"], intermediate_size=c["inter"], num_attention_heads=c["heads"], num_key_value_heads=c["kv"], head_dim=c["head_dim"], vocab_size=c["vocab"], rope_theta=1000000.0, rms_norm_eps=1e-6, tie_word_embeddings=True)
    vision = dict(hidden_size=v["hidden"], intermediate_size=v["inter"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"], patch_size=v["patch"], num_patches=v["table"] ** 2, use_rope=False, use_windows_attn=False)
    return text, vision


class Groot(nn.Module):
    def __init__(self, c):
        super().__init__()
        text, vision = settings(c)
        text = Qwen3Config(num_hidden_layers=c["layers"], architectures=["Qwen3ForCausalLM"], **text)
        text._attn_implementation = "eager"
        vision = siglip.Siglip2VisionConfig(**vision)
        vision._attn_implementation = "eager"
        conf = eagle_config.Eagle3VLConfig(vision_config=vision, text_config=text, select_layer=-1, downsample_ratio=0.5, image_token_index=c["image"])
        conf._attn_implementation = "eager"
        self.backbone = nn.Module()
        m = self.backbone.model = eagle.Eagle3VlForConditionalGeneration(conf)
        m.vision_model.config._attn_implementation = m.language_model.config._attn_implementation = m.language_model.model.config._attn_implementation = "eager"
        self.action_head = head.Gr00tN1d6ActionHead(types.SimpleNamespace(max_state_dim=c["state"], max_action_dim=c["actions"], action_horizon=c["chunk"], hidden_size=c["out"], input_embedding_dim=c["width"], backbone_embedding_dim=c["hidden"], max_seq_len=c["most"], max_num_embodiments=c["robots"],
            num_inference_timesteps=10, use_alternate_vl_dit=True, attend_text_every_n_blocks=2, use_vlln=True, add_pos_embed=True, state_dropout_prob=0.0, state_additive_noise_scale=0.0, noise_beta_alpha=1.5, noise_beta_beta=1.0, noise_s=0.999, num_timestep_buckets=1000,
            tune_projector=True, tune_diffusion_model=True, tune_vlln=True, diffusion_model_cfg=self.dit(c)))

    @staticmethod
    def dit(c):
        return dict(positional_embeddings=None, num_layers=c["dit_layers"], num_attention_heads=c["dit_heads"], attention_head_dim=c["width"] // c["dit_heads"], norm_type="ada_norm", dropout=0.2, final_dropout=True, output_dim=c["out"], interleave_self_attention=True)

    def acts(self, seen, state, robots, actions, steps=10):
        """The steps of NVIDIA's get_action_with_features, without what joins chunks."""
        h, seen = self.action_head, self.action_head.process_backbone_output(seen)
        state = h.state_encoder(state, robots)
        for k in range(steps):
            time = torch.full((len(actions),), int(k / float(steps) * h.num_timestep_buckets))
            x = h.action_encoder(actions, time, robots) + h.position_embedding.weight[: actions.shape[1]]
            y = h.model(hidden_states=torch.cat((state, x), 1), encoder_hidden_states=seen.backbone_features, timestep=time, image_mask=seen.image_mask, backbone_attention_mask=seen.backbone_attention_mask)
            actions = actions + 1.0 / steps * h.action_decoder(y, robots)[:, -actions.shape[1] :]
        return actions.detach()

    def seen(self, tokens, images):
        """What NVIDIA's EagleBackbone.forward gives."""
        m = self.backbone.model
        states = m(pixel_values=images, input_ids=tokens, attention_mask=torch.ones_like(tokens), output_hidden_states=True).hidden_states[-1]
        return BatchFeature(data=dict(backbone_features=states, backbone_attention_mask=torch.ones_like(tokens) == 1, image_mask=tokens == m.config.image_token_index))


def main():
    m = Groot(C)
    g = torch.Generator().manual_seed(89)
    for n, p in m.named_parameters():
        p.requires_grad = True
        p.data = torch.randn(p.shape, generator=g) * (0.2 if p.ndim > 1 else 0.1) + (1 if ("norm" in n or "mlp1.0" in n) and n.endswith("weight") and p.ndim == 1 else 0)
    m.eval()
    side = C["vision"]["image"]
    n, chunk = (side // C["vision"]["patch"]) ** 2 // 4, C["chunk"]
    samples = [dict(tokens=[3, 9, 14, 2] + [7] * n + [5] + [7] * n + [6], views=[True, True], time=0.7, robot=2), dict(tokens=[3, 21, 11, 4] + [7] * n + [8] + [7] * n + [1], views=[True, True], time=0.253, robot=0)]
    tensors = {}
    for i, s in enumerate(samples):
        tensors[f"actions.{i}"], tensors[f"noise.{i}"] = torch.randn(chunk, C["actions"], generator=g), torch.randn(chunk, C["actions"], generator=g)
        tensors[f"state.{i}"] = torch.randn(C["state"], generator=g)
        for k in range(2):
            tensors[f"image.{i}.{k}"] = torch.rand(3, side, side, generator=g) * 2 - 1
    stack = lambda name: torch.stack([tensors[f"{name}.{i}"] for i in range(2)])
    images = [tensors[f"image.{i}.{k}"][None] for i in range(2) for k in range(2)]
    tokens, robots = torch.tensor([s["tokens"] for s in samples]), torch.tensor([s["robot"] for s in samples])
    mask = torch.zeros(2, chunk, C["actions"])
    mask[:, :, : C["real"]] = 1
    given = BatchFeature(data=dict(state=stack("state")[:, None], action=stack("actions"), action_mask=mask, embodiment_id=robots))
    # NVIDIA's time is 1 where the actions are clean, and here it is 1 where they are noise
    m.action_head.sample_time = lambda *a, **k: 1 - torch.tensor([s["time"] for s in samples])
    said, drawn = {}, torch.randn
    m.action_head.action_decoder.register_forward_hook(lambda _, __, y: said.update(y=y))

    def loss():
        torch.randn = lambda *a, **k: stack("noise")
        out = m.action_head(m.seen(tokens, images), given)["loss"]
        torch.randn = drawn
        return out

    first = loss()
    first.backward()
    for i in range(2):
        tensors[f"pred.{i}"] = -said["y"][i, -chunk:].detach().clone()
    grads = {"grad." + n: p.grad.clone() for n, p in m.named_parameters() if p.grad is not None}
    dead = [n for n, p in m.named_parameters() if p.grad is None]
    weights = {n: p.detach().clone() for n, p in m.named_parameters()}
    start = torch.randn(2, chunk, C["actions"], generator=g)
    acted = m.acts(m.seen(tokens, images), stack("state")[:, None], robots, start)
    for i in range(2):
        tensors[f"start.{i}"], tensors[f"acted.{i}"] = start[i], acted[i]
    opt, losses = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0), []
    for _ in range(20):
        opt.zero_grad()
        v = loss()
        v.backward()
        opt.step()
        losses.append(v.item())
    text, vision = settings(C)
    config = dict(model_type="Gr00tN1d6", backbone_model_type="eagle", select_layer=C["layers"], max_action_dim=C["actions"], max_state_dim=C["state"], action_horizon=chunk, max_num_embodiments=C["robots"], max_seq_len=C["most"], input_embedding_dim=C["width"], hidden_size=C["out"], backbone_embedding_dim=C["hidden"],
                  use_alternate_vl_dit=True, attend_text_every_n_blocks=2, diffusion_model_cfg=Groot.dit(C), text_config=text, vision_config=vision, image_token=C["image"], views=2, view_size=side)
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
    torch.distributions.Beta = lambda *a: None
    with torch.device("meta"):
        m = Groot(dict(hidden=2048, inter=6144, layers=16, heads=16, kv=8, head_dim=128, vocab=151680, image=151669, vision=dict(hidden=1152, inter=4304, layers=27, heads=16, patch=14, table=16, image=252), chunk=50, actions=128, state=128, robots=32, width=1536, dit_heads=32, dit_layers=32, out=1024, most=1024))
    all = json.loads(path.read_text())
    all["groot/n1.6"] = sum(p.numel() for p in m.parameters())
    path.write_text(json.dumps(dict(sorted(all.items())), indent=1) + "\n")
    print(all["groot/n1.6"])


if __name__ == "__main__":
    count() if sys.argv[2:] == ["count"] else main()
