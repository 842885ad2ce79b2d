"""Writes the parameter counts of configs/towers from transformers, on the meta device; RICE-ViT's from vlm_modules.py. A count is
that of the tower alone, without what joins features to a decoder, without deepstack's mergers, without a pooling head and without DINOv2's
token for masked patches; the norm behind the last layer of CLIP, SigLIP and DINOv2 counts.
Run from the repository's root: python bench/golden/tower_counts.py
"""
import glob
import re

import torch
import yaml
from transformers import CLIPVisionConfig, CLIPVisionModel, Dinov2Config, Dinov2Model, InternVLVisionConfig, InternVLVisionModel, SiglipVisionConfig, SiglipVisionModel
from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeVisionConfig, Ernie4_5_VLMoeVisionTransformerPretrainedModel as Ernie
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel as Qwen25, Qwen2_5_VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel as Qwen2, Qwen2VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionConfig, Qwen3VLVisionModel

from vlm_modules import Rice


def build(v):
    d = dict(hidden_size=v["hidden_size"], intermediate_size=v["intermediate_size"])
    layers = d | dict(num_hidden_layers=v["depth"], num_attention_heads=v["num_heads"])
    match v["kind"]:
        case "qwen2_vl":
            return Qwen2(Qwen2VLVisionConfig(depth=v["depth"], embed_dim=v["hidden_size"], num_heads=v["num_heads"], mlp_ratio=v["intermediate_size"] // v["hidden_size"], patch_size=v["patch_size"]))
        case "qwen2_5_vl":
            return Qwen25(Qwen2_5_VLVisionConfig(depth=v["depth"], num_heads=v["num_heads"], patch_size=v["patch_size"], **d))
        case "qwen3_vl":
            return Qwen3VLVisionModel(Qwen3VLVisionConfig(depth=v["depth"], num_heads=v["num_heads"], patch_size=v["patch_size"], num_position_embeddings=v["num_position_embeddings"],
                                                          deepstack_visual_indexes=v["deepstack_visual_indexes"], **d))
        case "internvl":
            side = dict(patch_size=[v["patch_size"]] * 2, image_size=[v["image_size"]] * 2)
            return InternVLVisionModel(InternVLVisionConfig(norm_type="rms_norm" if v.get("rms_norm") else "layer_norm", use_qk_norm=v.get("use_qk_norm", False), attention_bias=v["attention_bias"],
                                                            use_mean_pooling=True, **layers, **side))
        case "rice":
            return Rice(d | dict(depth=v["depth"], num_heads=v["num_heads"], in_channels=3, patch_size=v["patch_size"], spatial_merge_size=2, layer_norm_eps=1e-5, out_hidden_size=64))
        case "ernie_vit":
            return Ernie(Ernie4_5_VLMoeVisionConfig(depth=v["depth"], num_heads=v["num_heads"], patch_size=v["patch_size"], **d))
        case "clip":
            return CLIPVisionModel(CLIPVisionConfig(patch_size=v["patch_size"], image_size=v["image_size"], **layers))
        case "dinov2":
            return Dinov2Model(Dinov2Config(patch_size=v["patch_size"], image_size=v["image_size"], mlp_ratio=v["intermediate_size"] // v["hidden_size"], hidden_size=v["hidden_size"],
                                            num_hidden_layers=v["depth"], num_attention_heads=v["num_heads"], use_mask_token=False))
        case "siglip":
            return SiglipVisionModel(SiglipVisionConfig(patch_size=v["patch_size"], image_size=v["image_size"], vision_use_head=False, **layers))


for file in sorted(glob.glob("configs/towers/*.yaml")):
    text = open(file).read()
    v = yaml.safe_load(text)
    if "of" in v:
        v = yaml.safe_load(open(f"configs/models/{v['of']}.yaml"))["vision"]
    with torch.device("meta"):
        n = sum(p.numel() for name, p in build(v).named_parameters() if not name.startswith(("merger.", "deepstack_merger_list.")))
    open(file, "w").write(re.sub(r"parameters: \d+", f"parameters: {n}", text))
    print(file, n)
