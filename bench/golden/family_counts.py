"""Counts the parameters of every published model: configs/testdata/parameters.json, and those that a token passes of
models with experts: active.json.

The modules are built on PyTorch's meta device, so nothing is allocated: with transformers where it has the family, else
with the modules of family_modules.py, written from the published configurations. Models with encoders keep the counts of
vlm_counts.py.

Run from the repository's root.
"""

import json
import pathlib

import torch
import yaml
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

import family_modules

OWN = {"qwen", "internlm2", "mimo", "baichuan"}  # families of family_modules.py
KEYS = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
        "tie_word_embeddings", "attention_bias", "max_position_embeddings", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "mlp_only_layers", "decoder_sparse_step",
        "shared_expert_intermediate_size", "n_shared_experts", "first_k_dense_replace", "qk_norm",
        "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "index_topk", "index_n_heads", "index_head_dim", "indexer_types",
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"]
NAMES = {"gpt2": dict(hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head", intermediate_size="n_inner", max_position_embeddings="n_positions"),
         "mixtral": dict(num_experts="num_local_experts"), "gpt_oss": dict(num_experts="num_local_experts"), "minimax_m2": dict(num_experts="num_local_experts"),
         "deepseek_v2": dict(num_experts="n_routed_experts"), "deepseek_v3": dict(num_experts="n_routed_experts"),
         "deepseek_v32": dict(num_experts="n_routed_experts"), "glm_moe_dsa": dict(num_experts="n_routed_experts"),
         "glm4_moe": dict(num_experts="n_routed_experts", qk_norm="use_qk_norm"),
         "ernie4_5_moe": dict(num_experts="moe_num_experts", num_experts_per_tok="moe_k", n_shared_experts="moe_num_shared_experts", first_k_dense_replace="moe_layer_start_index")}


def count(facts):
    family = {"kimi_k2": "deepseek_v3"}.get(facts["model_type"], facts["model_type"])
    if "kv_lora_rank" in facts:
        facts.setdefault("q_lora_rank", None)
    with torch.device("meta"):
        if family in OWN:
            built = family_modules.build(dict(rope_theta=10000.0) | facts)
        else:
            names = NAMES.get(family, {})
            config = CONFIG_MAPPING[family](**{names.get(k, k): facts[k] for k in KEYS if k in facts}, pad_token_id=None)
            built = AutoModelForCausalLM.from_config(config)
    # a tied weight is one parameter; what experts are chosen by is one, though PyTorch calls it a buffer
    total = sum(p.numel() for p in built.parameters()) + sum(b.numel() for n, b in built.named_buffers() if "correction_bias" in n)
    if "num_experts" not in facts:
        return total, None
    own = sum(p.numel() for n, p in built.named_parameters() if ".experts." in n)
    return total, total - own + own // facts["num_experts"] * facts["num_experts_per_tok"]


def main():
    root, table = pathlib.Path("configs/models"), pathlib.Path("configs/testdata/parameters.json")
    counts, active = json.loads(table.read_text()), json.loads(table.with_name("active.json").read_text())  # of composed models by vlm_counts.py
    for path in sorted(root.glob("*/*.yaml")):
        facts = yaml.safe_load(path.read_text())
        if "vision" not in facts:
            name = str(path.relative_to(root).with_suffix(""))
            counts[name], per_token = count(facts)
            if per_token:
                active[name] = per_token
    table.with_name("active.json").write_text(json.dumps(dict(sorted(active.items())), indent=1) + "\n")
    table.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
