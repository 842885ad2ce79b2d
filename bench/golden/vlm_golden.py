"""Golden data of composed families: tiny models with random weights, and what transformers computes with them.

For each case stages/family/testdata/<case>/ gets
  config.json, model.safetensors   a Hugging Face directory
  golden.safetensors               ids, targets [T] of all documents laid end to end (target -100: not counted), logits [T, V]; pixels
                                   [patches, numbers] in the order of the documents' images, normalised; positions [T, 3] for families
                                   with M-RoPE; grad.<weight> for every weight
  golden.json                      documents (lengths), images (grid, spans of rows, video, seconds a row of the grid), loss; 10 steps of
                                   AdamW on the same batch

The last three are modules of vlm_modules.py.

Documents: one image; two images; a video; text alone; an image and a video. Each is computed by itself. Everything is float32
on one thread with plain ("eager") attention.

Run from the repository's root: python bench/golden/vlm_golden.py [case ...]
"""

import json
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import (CLIPVisionConfig, Dinov2Config, Gemma3Config, Gemma3ForConditionalGeneration, InternVLConfig, InternVLForConditionalGeneration, LlamaConfig, LlamaForCausalLM, LlavaConfig, LlavaForConditionalGeneration, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration, Qwen3Config, Qwen3Model, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration, SiglipVisionConfig)

from family_golden import ADAMW, CLIP, DECAY, OUT, randomize
from family_layers import tame
import family_modules
from vlm_modules import InternLM, Llava, LlavaOnevision

STEPS, VOCAB, IMAGE, VIDEO, START, END = 10, 120, 116, 117, 118, 119
TEXT = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, rms_norm_eps=1e-6, attention_dropout=0.0)
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=True)
TOP = dict(image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END, attn_implementation="eager", bos_token_id=1, eos_token_id=2)


def rope(theta, **more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta, **more))


def tied(tie):
    return dict(tie_word_embeddings=tie)


def qwen2_vl(tie):
    vision = dict(depth=2, embed_dim=16, hidden_size=32, num_heads=2, mlp_ratio=3, patch_size=4)
    return Qwen2VLForConditionalGeneration, Qwen2VLConfig(text_config=TEXT | tied(tie) | rope(1e6, mrope_section=[1, 1, 2]), vision_config=vision, **TOP, **tied(tie))


def qwen2_5_vl(tie, act="silu"):
    vision = dict(depth=3, hidden_size=16, out_hidden_size=32, num_heads=2, intermediate_size=24, patch_size=4, window_size=16, fullatt_block_indexes=[1], tokens_per_second=2, hidden_act=act)
    return Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLConfig(text_config=TEXT | tied(tie) | rope(1e6, mrope_section=[1, 1, 2]), vision_config=vision, **TOP, **tied(tie))


def qwen3_vl(tie, taps=(0, 1)):
    vision = dict(depth=3, hidden_size=16, out_hidden_size=32, num_heads=2, intermediate_size=24, patch_size=4, deepstack_visual_indexes=list(taps), num_position_embeddings=25)
    text = TEXT | tied(tie) | dict(head_dim=16) | rope(5e6, mrope_section=[4, 2, 2], mrope_interleaved=True)
    return Qwen3VLForConditionalGeneration, Qwen3VLConfig(text_config=text, vision_config=vision, **TOP, **tied(tie))


def qwen3_5(experts):
    """Three kinds of layers' worth: linear attention, gated attention that turns half a head by three axes, and the same again."""
    vision = dict(depth=2, hidden_size=16, out_hidden_size=32, num_heads=2, intermediate_size=24, patch_size=4, num_position_embeddings=25)
    text = TEXT | tied(False) | dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=20, linear_value_head_dim=12,
                                     layer_types=["linear_attention", "full_attention", "linear_attention"])
    text |= rope(1e7, mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.5)
    if experts:
        del text["intermediate_size"]
        text |= dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=20)
        return Qwen3_5MoeForConditionalGeneration, Qwen3_5MoeConfig(text_config=text, vision_config=vision, **TOP, **tied(False))
    return Qwen3_5ForConditionalGeneration, Qwen3_5Config(text_config=text, vision_config=vision, **TOP, **tied(False))


def qwen3_vl_moe():
    _, dense = qwen3_vl(False)
    vision = dense.vision_config.to_diff_dict()
    text = TEXT | tied(False) | dict(head_dim=16, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20) | rope(5e6, mrope_section=[4, 2, 2], mrope_interleaved=True)
    return Qwen3VLMoeForConditionalGeneration, Qwen3VLMoeConfig(text_config=text, vision_config={k: v for k, v in vision.items() if k != "model_type"}, **TOP, **tied(False))


def internvl(text, norm, qk, bias):
    vision = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=24, patch_size=[4, 4], image_size=[16, 16], norm_type=norm, use_qk_norm=qk, attention_bias=bias)
    facts = TEXT | tied(False) | rope(1e6) | dict(model_type=text) | (dict(head_dim=16) if text.startswith("qwen3") else {}) | (EXPERTS if "moe" in text else {})
    top = {k: v for k, v in TOP.items() if "video" not in k and "vision" not in k}
    return InternVLForConditionalGeneration, InternVLConfig(text_config=facts, vision_config=vision, **top, **tied(False))


def llava_onevision():
    """A module of vlm_modules.py, with the config.json of the published one."""
    vision = dict(model_type="rice_vit", depth=2, embed_dim=16, hidden_size=16, intermediate_size=24, num_heads=2, in_channels=3, patch_size=4, spatial_merge_size=2,
                  temporal_patch_size=1, hidden_act="gelu", layer_norm_eps=1e-5, initializer_range=0.02, text_hidden_size=32)
    text = TEXT | dict(head_dim=16)
    body = Qwen3Model(Qwen3Config(**text, **rope(5e6), attn_implementation="eager"))
    config = dict(model_type="llavaonevision1_5", architectures=["LLaVAOneVision1_5_ForConditionalGeneration"], vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO,
                  vision_start_token_id=START, tie_word_embeddings=False, text_config=text | dict(model_type="LLaVAOneVision1_5_text", rope_theta=5e6, tie_word_embeddings=False))
    return lambda _: LlavaOnevision(vision | dict(out_hidden_size=32), body), config


def siglip():
    """A custom pair. Images of 18 pixels have 4 whole patches a side: the convolution drops the rest."""
    vision = dict(hidden_size=16, intermediate_size=24, num_attention_heads=2, image_size=18, patch_size=4, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    decoder = LlamaForCausalLM(LlamaConfig(**TEXT, **rope(1e4), tie_word_embeddings=False, attn_implementation="eager"))
    tower = SiglipVisionConfig(**vision, num_hidden_layers=2, vision_use_head=False, attn_implementation="eager")
    own = vision | dict(kind="siglip", depth=2, num_heads=2, in_channels=3, merge=1, projector="mlp", projector_hidden_act="gelu")
    del own["num_attention_heads"]
    config = dict(model_type="vlm", vision_config=own, image_token_id=IMAGE, tie_word_embeddings=False,
                  text_config=TEXT | dict(model_type="llama", rope_theta=1e4, tie_word_embeddings=False, mlp_bias=False))
    return lambda _: Llava(tower, decoder), config


def llava(tower, **more):
    """CLIP's or DINOv2's tower without its last layer before Llama, or SigLIP's with a pooling head that features do not pass before Qwen2."""
    vision = dict(hidden_size=16, intermediate_size=24, num_attention_heads=2, image_size=16, patch_size=4)
    if tower == "dinov2":
        del vision["intermediate_size"]
        vision = Dinov2Config(num_hidden_layers=3, mlp_ratio=2, layerscale_value=0.5, **vision)
        text, of = "llama", dict(vision_feature_layer=-2, vision_feature_select_strategy="default")
    elif tower == "clip":
        vision, text, of = CLIPVisionConfig(num_hidden_layers=3, **vision), "llama", dict(vision_feature_layer=-2, vision_feature_select_strategy="default")
    else:
        vision, text, of = SiglipVisionConfig(num_hidden_layers=2, **vision), "qwen2", dict(vision_feature_layer=-1, vision_feature_select_strategy="full")
    facts = TEXT | tied(False) | rope(1e4) | dict(model_type=text) | more
    return LlavaForConditionalGeneration, LlavaConfig(text_config=facts, vision_config=vision, image_token_id=IMAGE, attn_implementation="eager", **of, **tied(False))


def llava_gpt2():
    """A decoder whose file has names of its own, and whose positions are a table."""
    vision = CLIPVisionConfig(num_hidden_layers=2, hidden_size=16, intermediate_size=24, num_attention_heads=2, image_size=16, patch_size=4)
    text = dict(model_type="gpt2", vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_inner=48, n_positions=256, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0) | tied(False)
    return LlavaForConditionalGeneration, LlavaConfig(text_config=text, vision_config=vision, image_token_id=IMAGE, attn_implementation="eager", vision_feature_layer=-2,
                                                      vision_feature_select_strategy="default", **tied(False))


def gemma3():
    """Windows of 6 tokens, less than the 12 of an image of three tiles: its tokens see what comes behind them, and 6 back."""
    vision = dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=24, num_attention_heads=2, num_hidden_layers=2, image_size=16, patch_size=4, vision_use_head=False)
    text = TEXT | tied(True) | dict(head_dim=16, query_pre_attn_scalar=20, sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    return Gemma3ForConditionalGeneration, Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=IMAGE, boi_token_index=START,
                                                        eoi_token_index=END, attn_implementation="eager", **tied(True))


def internlm():
    """InternVL with a decoder that transformers does not have."""
    _, theirs = internvl("qwen2", "layer_norm", False, True)
    facts = TEXT | dict(model_type="internlm2", rope_theta=1e6, tie_word_embeddings=False, bias=False)
    del facts["attention_dropout"]
    config = theirs.to_diff_dict() | dict(text_config=facts)
    return lambda _: InternLM(theirs, family_modules.build(facts | dict(head_dim=8))), config


CASES = {
    "qwen2-vl": lambda: qwen2_vl(False),
    "qwen2.5-vl": lambda: qwen2_5_vl(False),
    "qwen2.5-vl-tied": lambda: qwen2_5_vl(True),
    "qwen2.5-vl-gelu": lambda: qwen2_5_vl(False, "gelu"),
    "qwen3-vl": lambda: qwen3_vl(True),
    "internvl2.5": lambda: internvl("qwen2", "layer_norm", False, True),
    "internvl3.5-6b": lambda: internvl("qwen3", "rms_norm", True, False),
    "llava-onevision1.5": llava_onevision,
    "siglip-llama": siglip,
    "internvl2.5-internlm2": internlm,
    "llava-clip": lambda: llava("clip"),
    "llava-siglip": lambda: llava("siglip"),
    "llava-clip-granite": lambda: llava("clip", model_type="granite", embedding_multiplier=3.0, attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=1.0),
    "qwen3-vl-unsorted": lambda: qwen3_vl(True, (2, 0)),
    "llava-dinov2": lambda: llava("dinov2"),
    "qwen3-vl-moe": qwen3_vl_moe,
    "internvl3.5-moe": lambda: internvl("qwen3_moe", "layer_norm", False, True),
    "gemma3-vision": gemma3,
    "qwen3.5-vision": lambda: qwen3_5(False),
    "qwen3.5-moe-vision": lambda: qwen3_5(True),
    "llava-clip-gpt2": lambda: llava_gpt2(),
    # for vision_fuzz.py: tokens of an image see each other in Gemma 3's own composition alone
    "llava-clip-gemma3": lambda: llava("clip", model_type="gemma3_text", head_dim=16, query_pre_attn_scalar=20, sliding_window=6, hidden_activation="gelu_pytorch_tanh",
                                       layer_types=["sliding_attention", "full_attention", "sliding_attention"][:TEXT["num_hidden_layers"]]),
}


class Case:
    def __init__(self, name):
        self.name, self.path = name, OUT / name
        self.gen = torch.Generator().manual_seed(100 + list(CASES).index(name))
        torch.manual_seed(0)
        cls, self.config = CASES[name]()
        torch.manual_seed(0)
        self.own, self.join = isinstance(self.config, dict), 1 if name.startswith(("siglip", "llava-clip", "llava-siglip", "llava-dinov2")) else 4
        self.model = cls(self.config)
        self.model.eval()
        randomize(self.model, self.gen)
        with torch.no_grad():
            for n, p in self.model.named_parameters():
                if "lambda" in n:
                    p.copy_(0.3 + 0.1 * torch.randn(p.shape, generator=self.gen))
        if name.startswith("qwen3.5"):
            tame(self.model.model.language_model, self.config.text_config)
        self.tiles, self.frames = name.startswith(("internvl", "siglip", "gemma3", "llava-clip", "llava-siglip", "llava-dinov2")), name.startswith("qwen3")
        self.seconds = 0.7 if name.startswith("qwen2.5") else 0
        self.documents()

    def documents(self):
        if self.tiles:
            one, two, video, mixed = [("image", (1, 4, 4))], [("image", (2, 4, 4)), ("image", (1, 4, 4))], [("image", (3, 4, 4))], [("image", (1, 4, 4))]
        else:
            one, two = [("image", (1, 4, 6))], [("image", (1, 2, 2)), ("image", (1, 10, 6))]
            video, mixed = [("video", (3, 4, 4))], [("image", (1, 6, 4)), ("video", (2, 2, 4))]
        self.docs = [self.document(parts) for parts in (one, two, video, [], mixed)]

    def words(self, n):
        return torch.randint(3, 110, (n,), generator=self.gen).tolist()

    def document(self, parts):
        ids, images, values = self.words(4), [], []
        for kind, (t, h, w) in parts:
            token = IMAGE if kind == "image" else VIDEO
            spans = []
            if kind == "video" and self.frames:
                for _ in range(t):
                    ids += self.words(2) + [START]
                    spans.append([len(ids), len(ids) + h * w // self.join])
                    ids += [token] * (h * w // self.join) + [END]
            else:
                ids += [START]
                spans.append([len(ids), len(ids) + t * h * w // self.join])
                ids += [token] * (t * h * w // self.join) + [END]
            ids += self.words(3)
            more, deep = (2, 1) if self.name.startswith("siglip") else (0, 1 if self.own else 2)
            size = (t, 3, 4 * h + more, 4 * w + more) if self.tiles else (t * h * w, 3 * deep * 4 * 4)
            values.append(torch.randn(size, generator=self.gen))
            images.append(dict(grid=[t, h, w], spans=spans, video=kind == "video", every=self.seconds if kind == "video" else 0))
        return dict(ids=ids, images=images, values=values)

    def arguments(self, doc):
        kinds = {k: [i for i, p in enumerate(doc["images"]) if p["video"] == (k == "video")] for k in ("image", "video")}
        ids = torch.tensor([doc["ids"]])
        out = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
        if self.own:
            out |= {k: self.config[k] for k in ("image_token_id", "video_token_id") if k in self.config}
        if self.tiles:
            if doc["values"]:
                out["pixel_values"] = torch.cat(doc["values"])
            if self.name.startswith("gemma3"):
                out["token_type_ids"] = (ids == IMAGE).long()
            return out
        if not self.own:
            out["mm_token_type_ids"] = torch.where(ids == IMAGE, 1, torch.where(ids == VIDEO, 2, 0)).int()
        for kind, names in (("image", ("pixel_values", "image_grid_thw")), ("video", ("pixel_values_videos", "video_grid_thw"))):
            if kinds[kind]:
                out[names[0]] = torch.cat([doc["values"][i] for i in kinds[kind]])
                out[names[1]] = torch.tensor([doc["images"][i]["grid"] for i in kinds[kind]])
        if kinds["video"] and self.seconds:
            out["second_per_grid_ts"] = torch.full((len(kinds["video"]),), self.seconds)
        return out

    def targets(self, doc):
        ids = doc["ids"]
        return [-100 if i + 1 == len(ids) or ids[i + 1] in (IMAGE, VIDEO) else ids[i + 1] for i in range(len(ids))]

    def loss(self):
        logits = torch.cat([self.model(**self.arguments(d), use_cache=False).logits[0] for d in self.docs])
        targets = torch.tensor(sum((self.targets(d) for d in self.docs), []))
        return F.cross_entropy(logits.float(), targets, ignore_index=-100), logits, targets

    def curve(self):
        params = dict(self.model.named_parameters())
        flat = lambda n, p: p.dim() == 1 or any(w in n for w in ("cls_token", "position_embedding", "pos_emb"))
        groups = [dict(params=[p for n, p in params.items() if not flat(n, p)], weight_decay=DECAY),
                  dict(params=[p for n, p in params.items() if flat(n, p)], weight_decay=0.0)]
        optimizer = torch.optim.AdamW(groups, foreach=False, fused=False, **ADAMW)
        losses, norms = [], []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = self.loss()[0]
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(params.values(), CLIP).item())
            optimizer.step()
            losses.append(loss.item())
        return dict(losses=losses, grad_norms=norms, final_loss=self.loss()[0].item(), steps=STEPS, clip_grad=CLIP, weight_decay=DECAY,
                    lr=ADAMW["lr"], betas=ADAMW["betas"], eps=ADAMW["eps"])

    def patches(self, values):
        """Rows of the patches' convolution: tiles are cut, row after row."""
        if not self.tiles:
            return values
        t, c, h, w = values.shape
        h, w = h // 4 * 4, w // 4 * 4
        values = values[:, :, :h, :w].contiguous()
        return values.view(t, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, c * 16)

    def write(self):
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        if self.own:
            save_file({n: p.detach().contiguous() for n, p in self.model.named_parameters()}, self.path / "model.safetensors")
            (self.path / "config.json").write_text(json.dumps(self.config, indent=1) + "\n")
        else:
            self.model.save_pretrained(self.path)
        (self.path / "generation_config.json").unlink(missing_ok=True)
        loss, logits, targets = self.loss()
        loss.backward()
        at, images = 0, []
        for d in self.docs:
            images += [p | dict(spans=[[a + at, b + at] for a, b in p["spans"]]) for p in d["images"]]
            at += len(d["ids"])
        tensors = dict(ids=torch.tensor(sum((d["ids"] for d in self.docs), [])).int(), targets=targets.int(), logits=logits.detach().contiguous(),
                       pixels=torch.cat([self.patches(v) for d in self.docs for v in d["values"]]).contiguous())
        if not self.tiles and not self.own:
            tensors["positions"] = torch.cat([self.positions(d) for d in self.docs]).int().contiguous()
        saved = self.saved_names()
        for n, p in self.model.named_parameters():
            grad = torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()  # none: features do not pass it
            for name, take in saved[n]:
                tensors["grad." + name] = take(grad).contiguous()
        facts = dict(documents=[[len(d["ids"]) for d in self.docs]], images=images, loss=loss.item(), versions=dict(torch=torch.__version__, transformers=__import__("transformers").__version__))
        facts["adamw"] = self.curve()
        save_file(tensors, self.path / "golden.safetensors")
        (self.path / "golden.json").write_text(json.dumps(facts, indent=1) + "\n")

    def positions(self, doc):
        a = self.arguments(doc)
        names = ("input_ids", "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "second_per_grid_ts")
        return self.model.model.get_rope_index(**{k: a[k] for k in names if k in a})[0][:, 0].T

    def saved_names(self):
        """The names under which save_pretrained stored each parameter, told by its contents, with what of it each has: experts may be cut apart."""
        from safetensors.torch import load_file
        stored = {k: v for k, v in load_file(self.path / "model.safetensors").items()}
        out = {}
        for n, p in self.model.named_parameters():
            takes = [lambda t: t]
            if ".experts." in n and n not in stored:
                cuts = [slice(0, p.shape[1] // 2), slice(p.shape[1] // 2, None)] if "gate_up" in n else [slice(None)]
                takes = [lambda t, e=e, c=c: t[e][c] for e in range(len(p)) for c in cuts]
            out[n] = []
            for take in takes:
                part = take(p)
                same = [k for k, v in stored.items() if v.shape == part.shape and torch.equal(v, part)]
                assert len(same) == 1, (n, same)
                out[n].append((same[0], take))
        return out


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        Case(name).write()
        print(name)


if __name__ == "__main__":
    main()
