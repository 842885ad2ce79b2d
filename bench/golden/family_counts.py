"""Counts the parameters of every published model: configs/testdata/parameters.json.

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

OWN = {"qwen", "internlm2", "mimo"}  # families of family_modules.py
KEYS = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
        "tie_word_embeddings", "attention_bias", "max_position_embeddings"]
NAMES = {"gpt2": dict(hidden_size="n_embd", num_hidden_layers="n_layer", num_attention_heads="n_head", intermediate_size="n_inner", max_position_embeddings="n_positions")}


def count(facts):
    family = facts["model_type"]
    with torch.device("meta"):
        if family in OWN:
            built = family_modules.build(facts)
        else:
            names = NAMES.get(family, {})
            config = CONFIG_MAPPING[family](**{names.get(k, k): facts[k] for k in KEYS if k in facts}, pad_token_id=None)
            built = AutoModelForCausalLM.from_config(config)
    return sum(p.numel() for p in built.parameters())  # a tied weight is one parameter


def main():
    root, table = pathlib.Path("configs/models"), pathlib.Path("configs/testdata/parameters.json")
    counts = json.loads(table.read_text())
    for path in sorted(root.glob("*/*.yaml")):
        facts = yaml.safe_load(path.read_text())
        if "vision" not in facts:
            counts[str(path.relative_to(root).with_suffix(""))] = count(facts)
    table.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
