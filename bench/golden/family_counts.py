"""Counts the parameters of every published model: configs/testdata/parameters.json.

The modules are built on PyTorch's meta device, so nothing is allocated: with transformers for llama, qwen2 and qwen3,
with the modules of family_modules.py, written from the published configurations, for the families that it lacks.

Run from the repository's root.
"""

import json
import pathlib

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

import family_modules

TRANSFORMERS = {
    "llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
KEYS = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
        "tie_word_embeddings"]


def count(facts):
    with torch.device("meta"):
        if facts["model_type"] in TRANSFORMERS:
            config, model = TRANSFORMERS[facts["model_type"]]
            built = model(config(**{k: facts[k] for k in KEYS}))
        else:
            built = family_modules.build(facts)
    return sum(p.numel() for p in built.parameters())  # a tied weight is one parameter


def main():
    root = pathlib.Path("configs/models")
    counts = {}
    for path in sorted(root.glob("*/*.yaml")):
        counts[str(path.relative_to(root).with_suffix(""))] = count(yaml.safe_load(path.read_text()))
    pathlib.Path("configs/testdata/parameters.json").write_text(json.dumps(counts, indent=1) + "\n")


if __name__ == "__main__":
    main()
