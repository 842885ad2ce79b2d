"""Every leaf of the config.json of composed models altered alone, or left out: what transformers computes with each, for TestVisionFuzz of actors/host.

For each case of vlm_golden.py that transformers has a class of, and each leaf of its configuration, of its parts and their mappings too, DIR/<case>~<path>~<n>/ gets
config.json, model.safetensors, golden.json and golden.safetensors as vlm_golden.py writes them, without gradients. "moved" in golden.json says whether
transformers' logits are others than those of the model that was altered: with a leaf that says nothing they are not. What transformers cannot build or
run, and what is not finite, is left out.

Run from the repository's root: python bench/golden/vision_fuzz.py DIR [case ...]
"""

import contextlib
import copy
import io
import json
import pathlib
import sys
import warnings

import torch
import transformers
from safetensors.torch import save_file

import vlm_golden as vlm
from family_fuzz import ALONE, other

# other values of leaves that are texts or nothing, by their last name
WORDS = dict(
    vision_feature_select_strategy=["default", "full"], norm_type=["layer_norm", "rms_norm"], rope_type=["linear", "yarn", "llama3", "dynamic"],
    hidden_act=["gelu", "relu", "silu", "quick_gelu", "gelu_pytorch_tanh"], hidden_activation=["gelu", "silu"], projector_hidden_act=["relu", "silu"],
    head_dim=[16], sliding_window=[3, 9], attn_logit_softcapping=[5.0], final_logit_softcapping=[5.0], rope_scaling=[{"rope_type": "linear", "factor": 2.0}],
    num_key_value_heads=[1, 4], vision_feature_layer=[-1, 0, 1, [-1, -2], [1, -1]], use_bidirectional_attention=[True, False], factor=[2.0])
FIXED = ALONE | {"patch_size", "image_size", "image_token_id", "image_token_index", "video_token_id", "vision_start_token_id", "vision_end_token_id", "boi_token_index", "eoi_token_index",
                 "vision_token_id", "_commit_hash", "tokenizer_class", "prefix", "finetuning_task", "sep_token_id", "cross_attention_hidden_size"}


# sizes, whose defaults are those of published models
SIZES = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "depth", "embed_dim", "out_hidden_size", "num_heads", "num_experts", "moe_intermediate_size",
         "shared_expert_intermediate_size", "head_dim", "num_position_embeddings", "image_size", "model_type", "vocab_size", "linear_num_value_heads", "linear_num_key_heads",
         "linear_key_head_dim", "linear_value_head_dim", "mlp_ratio", "deepstack_visual_indexes"}
GONE = object()


def leaves(at, path=()):
    """The leaves of a mapping; a list is a leaf."""
    for key, value in at.items():
        if key in FIXED or key.startswith("_"):
            continue
        if isinstance(value, dict):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def others(key, value):
    out = [w for w in WORDS.get(key, []) if w != value]
    if isinstance(value, list) and value:
        if all(isinstance(x, str) for x in value):
            words = sorted({*value, "full_attention", "sliding_attention"}) if "attention" in value[0] else [*value, "other"]
            out += [value[::-1], value[:-1] + [next(w for w in words if w != value[-1])]]
        else:
            out += [value[::-1], [other(x) if i == len(value) - 1 else x for i, x in enumerate(value)]]
    elif not out:
        out = [other(value)]
    if key == "layer_types" and value is None:
        out = [["sliding_attention", "full_attention", "full_attention"]]
    return [x for x in out if x is not None and x != value] + ([GONE] if key not in SIZES and value is not None else [])


def replaced(config, path, value):
    out = copy.deepcopy(config)
    at = out
    for key in path[:-1]:
        at = at[key]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return out


class Altered(vlm.Case):
    """A case with another configuration, and weights and documents of the same seed."""

    def __init__(self, name, config):
        cls, base = vlm.CASES[name]()
        kept = vlm.CASES[name]
        made = type(base).from_dict(copy.deepcopy(config))
        for part in (made, made.text_config, made.vision_config):
            part._attn_implementation = "eager"
        vlm.CASES[name] = lambda: (cls, made)
        try:
            super().__init__(name)
        finally:
            vlm.CASES[name] = kept

    def golden(self, path, config, whole):
        loss, logits, targets = self.loss()
        if not torch.isfinite(logits).all():
            raise ValueError("not finite")
        self.model.save_pretrained(path)
        if whole:
            (path / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        at, images = 0, []
        for d in self.docs:
            images += [p | dict(spans=[[a + at, b + at] for a, b in p["spans"]]) for p in d["images"]]
            at += len(d["ids"])
        tensors = dict(ids=torch.tensor(sum((d["ids"] for d in self.docs), [])).int(), targets=targets.int(), logits=logits.detach().contiguous(),
                       pixels=torch.cat([self.patches(v) for d in self.docs for v in d["values"]]).contiguous())
        if not self.tiles:
            tensors["positions"] = torch.cat([self.positions(d) for d in self.docs]).int().contiguous()
        save_file(tensors, path / "golden.safetensors")
        return dict(documents=[[len(d["ids"]) for d in self.docs]], images=images, loss=loss.item()), logits


def main():
    out = pathlib.Path(sys.argv[1])
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(50)
    torch.set_num_threads(1)
    made = left = 0
    for name in sys.argv[2:] or vlm.CASES:
        base = vlm.CASES[name]()[1]
        if isinstance(base, dict):
            continue  # a module of our own, not transformers'
        config = base.to_dict()
        with torch.no_grad():
            plain = Altered(name, config).loss()[1]
        for path, value in leaves(config):
            for n, new in enumerate(others(path[-1], value)):
                changed, folder = replaced(config, path, new), out / "~".join((name, ".".join(path), str(n)))
                try:
                    with contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
                        facts, logits = Altered(name, changed).golden(folder, changed, new is GONE or made % 2)
                    facts |= dict(moved=logits.shape != plain.shape or not torch.equal(logits, plain), value="none" if new is GONE else new)
                    (folder / "golden.json").write_text(json.dumps(facts) + "\n")
                    made += 1
                except Exception:  # what transformers cannot build is no case
                    left += 1
    print(f"{made} configurations; {left} that transformers {transformers.__version__} cannot run are left out")


if __name__ == "__main__":
    main()
