"""Random valid configurations of the families in family_layers.py, and every key of each altered alone: what transformers computes with
them, for TestFamilyFuzz of actors/host.

For each case DIR/<case>/ gets config.json, model.safetensors, golden.json and golden.safetensors as family_golden.py writes them, without
gradients, of one sequence whose masks transformers makes itself. Half of the config.json have all keys, the others those that were chosen. A configuration that transformers cannot build or run, or whose logits are not
finite, is left out. A case has the name family-N, or family-KEY where KEY alone is not as in the golden model.

Run from the repository's root: python bench/golden/family_fuzz.py DIR COUNT [case ...]
"""

import contextlib
import copy
import io
import json
import pathlib
import random
import sys
import warnings
import zlib

import torch
import transformers
from safetensors.torch import load_file, save_file

import family_golden as base
import family_layers as layers

CASES = layers.CASES | {name: (c.__name__, m.__name__, dict(facts)) for name, (family, facts, _) in base.CASES.items() if family in base.TRANSFORMERS
                        for c, m in [base.TRANSFORMERS[family]]}

# values that a random configuration takes of keys that its class has
POOL = dict(
    hidden_size=[32, 48, 64], num_hidden_layers=[1, 2, 3, 4, 5], num_attention_heads=[2, 4, 8], num_key_value_heads=[1, 2, 4], head_dim=[8, 12, 16, 32],
    intermediate_size=[24, 80], rms_norm_eps=[1e-6, 1e-3], layer_norm_eps=[1e-6, 1e-3], norm_epsilon=[1e-6, 1e-3], layer_norm_epsilon=[1e-6, 1e-3],
    tie_word_embeddings=[False, True], attention_bias=[False, True], mlp_bias=[False, True], use_bias=[False, True], use_qk_norm=[False, True],
    hidden_act=["silu", "gelu", "gelu_pytorch_tanh", "relu"], hidden_activation=["gelu_pytorch_tanh", "gelu", "silu"],
    activation_function=["gelu_new", "gelu", "relu", "silu"], sliding_window=[1, 3, 5, 9, 100, None], use_sliding_window=[False, True],
    max_window_layers=[0, 1, 2, 28], no_rope_layer_interval=[1, 2, 3, 4], full_attention_interval=[1, 2, 3, 4], decoder_sparse_step=[1, 2, 3],
    mlp_only_layers=[[], [0], [1]], num_experts_per_tok=[1, 2, 3], norm_topk_prob=[False, True], routed_scaling_factor=[1.0, 2.5],
    first_k_dense_replace=[0, 1, 2], n_shared_experts=[1, 2], moe_intermediate_size=[8, 20], shared_expert_intermediate_size=[8, 20],
    attn_logit_softcapping=[None, 2.0, 50.0], final_logit_softcapping=[None, 3.0, 30.0], query_pre_attn_scalar=[8, 64], logit_scale=[0.1, 1.0],
    embedding_multiplier=[1.0, 6.0], residual_multiplier=[0.4, 1.0], attention_multiplier=[0.2, 1.0], logits_scaling=[1.0, 3.0],
    n_embd=[32, 48], n_layer=[1, 3], n_head=[2, 4], n_inner=[None, 24], scale_attn_weights=[True, False], swiglu_limit=[0.3, 7.0],
    q_lora_rank=[None, 20], kv_lora_rank=[8, 18], v_head_dim=[8, 14], qk_nope_head_dim=[6, 10],
    linear_num_key_heads=[1, 2], linear_num_value_heads=[2, 4], linear_conv_kernel_dim=[2, 4], moe_layer_start_index=[0, 1, 2],
)
DROPPED = {"layer_types", "no_rope_layers", "indexer_types", "mlp_layer_types"}  # lists a layer, which change with the number of layers
ALONE = {"architectures", "dtype", "torch_dtype", "model_type", "transformers_version", "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", "_name_or_path",
         "id2label", "label2id", "problem_type", "return_dict", "output_hidden_states", "output_attentions", "is_encoder_decoder", "chunk_size_feed_forward", "use_cache",
         "task_specific_params", "initializer_range", "auto_map"}


def facts_of(name):
    config, model, changes = CASES[name]
    shape = layers.SHAPE if name in layers.CASES else base.SHAPE
    facts = shape | dict(bos_token_id=1, eos_token_id=2, pad_token_id=None) | copy.deepcopy(changes)
    drop = facts.pop("drop", ())
    return config, model, {k: v for k, v in facts.items() if k not in drop}


def other(value):
    """Another value of the same kind, None for none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1 if value % 2 or value < 4 else value * 2
    if isinstance(value, float):
        return value * 2 + 0.5
    return {"silu": "gelu", "gelu_pytorch_tanh": "relu", "gelu_new": "relu"}.get(value) if isinstance(value, str) else None


def variants(name, count):
    config, model, facts = facts_of(name)
    has = getattr(transformers, config)().to_dict()
    for i in range(count):
        r = random.Random(f"{name}-{i}")
        keys = [k for k in POOL if k in has or k in facts or k == "full_attention_interval" and "linear_num_key_heads" in facts]
        changed = {k: r.choice(POOL[k]) for k in r.sample(keys, r.randint(1, min(6, len(keys))))}
        new = facts | changed
        if r.random() < 0.7:
            new = {k: v for k, v in new.items() if k not in DROPPED}
        yield f"{name}-{i}", config, model, new
    if count and "mlp_layer_types" in has:
        for i, kinds in enumerate(["dd", "ss", "ds", "sd", "dss"]):
            words = [{"d": "dense", "s": "sparse"}[kinds[n % len(kinds)]] for n in range(facts["num_hidden_layers"])]
            yield f"{name}-mlp_layer_types{i}", config, model, facts | {"mlp_layer_types": words}
    if count:
        for key in sorted(set(has) | set(facts)):
            value = other(facts.get(key, has.get(key)))
            if key not in ALONE | DROPPED and not key.startswith("_") and value is not None:
                yield f"{name}-{key}", config, model, facts | {key: value}


def write(path, name, config, model, facts):
    config = getattr(transformers, config)(**copy.deepcopy(facts), attn_implementation="eager")
    gen = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    torch.manual_seed(0)
    net = getattr(transformers, model)(config).eval()
    base.randomize(net, gen)
    for key, t in net.state_dict().items():
        if "correction_bias" in key:
            t.copy_(torch.randn(t.shape, generator=gen) * 0.05)
    if "linear_num_key_heads" in facts:
        layers.tame(net, config)
    ids = torch.randint(0, base.VOCAB, (1, base.T), generator=gen) % config.vocab_size
    with torch.no_grad():
        logits = net(input_ids=ids, use_cache=False).logits
    targets = torch.full_like(ids, -100)
    targets[:, :-1] = ids[:, 1:]
    loss = base.cross_entropy(logits, targets).item()
    if not torch.isfinite(logits).all():
        raise ValueError("not finite")
    path.mkdir(parents=True)
    config.save_pretrained(path)
    if zlib.crc32(name.encode()) % 2:  # half of them say no more than was asked for, as published files do: the rest are defaults
        (path / "config.json").write_text(json.dumps(dict(model_type=config.model_type) | facts, indent=1) + "\n")
    kept = {k: v for k, v in net.state_dict().items() if "correction_bias" in k}
    tensors = {k: v.detach().clone().contiguous() for k, v in (dict(net.named_parameters()) | kept).items()}
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    save_file(dict(ids=ids.int(), positions=torch.arange(base.T)[None].int(), targets=targets.int(), logits=logits.contiguous()), path / "golden.safetensors")
    (path / "golden.json").write_text(json.dumps(dict(documents=[[base.T]], loss=loss)) + "\n")


def read(root):
    """Holds the config.json of exports, in written/ of each case, to what transformers computed by its own."""
    wrong, cases = [], sorted(root.glob("*/written"))
    for path in cases:
        golden, weights = load_file(path.parent / "golden.safetensors"), load_file(path.parent / "model.safetensors")
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                config = transformers.AutoConfig.from_pretrained(path, attn_implementation="eager")
                net = transformers.AutoModelForCausalLM.from_config(config).eval()
            net.load_state_dict(weights, strict=False)
            with torch.no_grad():
                logits = net(input_ids=golden["ids"].long(), use_cache=False).logits
            error = ((logits - golden["logits"]).norm() / golden["logits"].norm()).item()
        except Exception as e:
            error = " ".join(f"{type(e).__name__}: {e}".split())[:400]
        if error != error or isinstance(error, str) or error > 1e-5:
            wrong.append(f"{path.parent.name}: {error}")
    print(*wrong, f"{len(cases) - len(wrong)} of {len(cases)} configurations that are written compute the same", sep="\n")
    sys.exit(bool(wrong))


def main():
    if sys.argv[1] == "--read":
        warnings.simplefilter("ignore")
        transformers.logging.set_verbosity(50)
        torch.set_num_threads(1)
        return read(pathlib.Path(sys.argv[2]))
    out, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(50)
    torch.set_num_threads(1)
    made = left = 0
    for name in sys.argv[3:] or CASES:
        for case, config, model, facts in variants(name, count):
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    write(out / case, case, config, model, facts)
                made += 1
            except Exception:  # what transformers cannot build is no case
                left += 1
    print(f"{made} configurations; {left} that transformers {transformers.__version__} cannot run are left out")


if __name__ == "__main__":
    main()
