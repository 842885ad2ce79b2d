"""Draws adapters of tiny models and saves them as PEFT does: a folder for each draw with the adapter, and want.json with the logits of
the base with the adapter as PEFT loads it again. A draw that PEFT itself refuses is drawn anew. The tokens are those of lfactor's probe.

Run from the repository's root: python bench/golden/peft_drawn.py DIR [COUNT [SEED]]
  python bench/golden/peft_drawn.py --golden writes stages/trained/testdata/adapters, a few adapters of the tied model.
"""

import json
import os
import pathlib
import random
import shutil
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers as tf  # noqa: E402
from peft import LoraConfig, PeftModel, get_peft_model  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

VOCAB = 40
SIZE = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
            max_position_embeddings=64, pad_token_id=None, bos_token_id=1, eos_token_id=2)
FAMILIES = {
    "llama": lambda: tf.LlamaConfig(**SIZE, attention_bias=True, mlp_bias=True),
    "llama-tied": lambda: tf.LlamaConfig(**SIZE, tie_word_embeddings=True),
    "qwen2": lambda: tf.Qwen2Config(**{k: v for k, v in SIZE.items() if k != "head_dim"}, tie_word_embeddings=True),
    "qwen3": lambda: tf.Qwen3Config(**SIZE),
    "gemma2": lambda: tf.Gemma2Config(**SIZE, query_pre_attn_scalar=8, sliding_window=8),
    "gpt2": lambda: tf.GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2),
    "phi3": lambda: tf.Phi3Config(**{k: v for k, v in SIZE.items() if k != "head_dim"}),
    "olmo2": lambda: tf.Olmo2Config(**{k: v for k, v in SIZE.items() if k != "head_dim"}),
}
INITS = [True, True, True, False, "gaussian", "orthogonal", "eva", "mica", "olora", "pissa", "pissa_niter_4"]


def tokens(vocab):
    return torch.tensor([[(i * 7919 + 11) % vocab for i in range(16)]])


def logits(model, vocab):
    with torch.no_grad():
        return model.eval()(tokens(vocab)).logits[0].float().flatten().tolist()


def save(model, path):
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * (0.3 if p.dim() > 1 else 0.1) + (1 if "norm" in n or "ln_" in n else 0) * (p.dim() == 1))
    model.save_pretrained(path)


def draw(rng, model):
    """The keys of a LoraConfig, and how many tokens are added before."""
    names = {n for n, m in model.named_modules() if type(m).__name__ in ("Linear", "Conv1D")}
    layers = sorted(n for n in names if "layers." in n or ".h." in n)
    ends = sorted({n.rsplit(".", 1)[1] for n in layers})
    table = next(n.rsplit(".", 1)[1] for n, m in model.named_modules() if m is model.get_input_embeddings())
    keys = dict(r=rng.choice([1, 2, 3, 4]), lora_alpha=rng.choice([1, 2, 5, 16]), init_lora_weights=rng.choice(INITS))
    targets = rng.sample(ends, rng.randint(1, len(ends))) + [t for t in (table, "lm_head") if rng.random() < 0.15]
    keys["target_modules"] = targets
    if rng.random() < 0.1:
        keys["target_modules"] = rng.choice(["all-linear", r".*\.(0|1)\..*(" + "|".join(ends) + ")$", rng.sample(layers, 2)])
    if rng.random() < 0.3:
        keys["rank_pattern"] = {p: rng.randint(1, 5) for p in pattern(rng, layers, ends)}
    if rng.random() < 0.3:
        keys["alpha_pattern"] = {p: rng.choice([1, 7, 64]) for p in pattern(rng, layers, ends)}
    for key, share in dict(use_rslora=0.25, use_dora=0.15, fan_in_fan_out=0.1, lora_bias=0.1, ensure_weight_tying=0.3).items():
        if rng.random() < share:
            keys[key] = True
    if rng.random() < 0.3:
        keys["bias"] = rng.choice(["all", "lora_only"])
    if rng.random() < 0.25:
        keys["modules_to_save"] = rng.choice([[table], ["lm_head"], [table, "lm_head"], ["norm" if "ln_f" not in str(model) else "ln_f"]])
    if rng.random() < 0.2:
        ids = sorted(rng.sample(range(VOCAB), 3))
        keys["trainable_token_indices"] = rng.choice([ids, {table: ids}, {"lm_head": ids}, {table: ids, "lm_head": ids[::-1]}])
    if rng.random() < 0.1:
        keys["layers_to_transform"] = [0]
    if rng.random() < 0.1:
        keys["exclude_modules"] = [ends[0]]
    if rng.random() < 0.2:
        keys["lora_dropout"] = 0.1
    return keys, rng.choice([0] * 6 + [3])


def pattern(rng, layers, ends):
    whole, end = rng.choice(layers), rng.choice(ends)
    return rng.sample([end, whole, "^" + whole, "^" + whole.rsplit(".", 2)[0], whole.rsplit(".", 2)[0], rf".*\.{end}", rf".*\.0\..*{end}",
                       f"{ends[0]}|{end}", whole.split(".", 1)[1]], rng.randint(1, 3))


def write(base, path, keys, more):
    """Saves an adapter of these keys, and what PEFT makes of it; None where PEFT refuses."""
    vocab = VOCAB + more

    def model():
        m = tf.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        if more:
            torch.manual_seed(7)
            m.resize_token_embeddings(vocab, mean_resizing=False)
        return m
    wrapped = get_peft_model(model(), LoraConfig(task_type="CAUSAL_LM", **keys))
    with torch.no_grad():
        for n, p in wrapped.named_parameters():
            if p.requires_grad or "lora_" in n:
                p.copy_(torch.rand(p.shape) + 0.5 if "magnitude" in n else p + 0.2 * torch.randn(p.shape))
    if more:
        wrapped.get_base_model().config.vocab_size = vocab
    trained = logits(wrapped, vocab)
    wrapped.save_pretrained(path)
    (path / "README.md").unlink(missing_ok=True)
    loaded = PeftModel.from_pretrained(model(), path)
    want = logits(loaded, vocab)
    if not all(x == x and abs(x) < 1e4 for x in want):
        raise ValueError("logits out of range")
    merged = logits(loaded.merge_and_unload(), vocab)
    apart = lambda a, b: max(abs(x - y) for x, y in zip(a, b))
    note = ["lost in saving"] * (apart(trained, want) > 1e-3) + ["PEFT's own merge differs"] * (apart(merged, want) > 1e-3)
    (path / "want.json").write_text(json.dumps(dict(base=base.name, logits=[round(x, 6) for x in want], note=note)))
    return note


def main(out, count, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    for name, config in FAMILIES.items():
        save(tf.AutoModelForCausalLM.from_config(config()), out / name)
    done = refused = 0
    while done < count:
        name = list(FAMILIES)[done % len(FAMILIES)]
        keys, more = draw(rng, tf.AutoModelForCausalLM.from_pretrained(out / name))
        path = out / f"{done:04d}-{name}"
        try:
            write(out / name, path, keys, more)
            done += 1
        except Exception as e:
            refused += 1
            if os.environ.get("VERBOSE"):
                print(name, keys, type(e).__name__, str(e)[:150])
            shutil.rmtree(path, ignore_errors=True)
    print(f"{done} adapters of {len(FAMILIES)} models; PEFT refused {refused} more")


GOLDEN = dict(
    pissa=dict(init_lora_weights="pissa"), olora=dict(init_lora_weights="olora"), gaussian=dict(init_lora_weights="gaussian"),
    whole=dict(alpha_pattern={"^model.layers.0": 64, "^model.layers.0.self_attn.q_proj": 3}),
    saved=dict(modules_to_save=["embed_tokens"]), saved_head=dict(modules_to_save=["lm_head"]),
    saved_tied=dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True),
    table=dict(target_modules=["q_proj", "embed_tokens"]), head=dict(target_modules=["q_proj", "lm_head"]),
    table_tied=dict(target_modules=["q_proj", "embed_tokens"], ensure_weight_tying=True),
    tokens=dict(trainable_token_indices=[3, 1, 6]), tokens_head=dict(trainable_token_indices={"embed_tokens": [3, 1], "lm_head": [2]}),
    bias=dict(bias="all"), bias_only=dict(bias="lora_only"), lora_bias=dict(lora_bias=True),
    grown=dict(target_modules=["q_proj", "embed_tokens"]),
)


def golden():
    out = pathlib.Path("stages/trained/testdata/adapters")
    shutil.rmtree(out, ignore_errors=True)
    torch.manual_seed(1)
    size = SIZE | dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=11)
    save(tf.LlamaForCausalLM(tf.LlamaConfig(**size, tie_word_embeddings=True, attention_bias=True)), out / "base")
    tf.LlamaForCausalLM.from_pretrained(out / "base").save_pretrained(out / "own", state_dict=load_file(out / "base/model.safetensors") | {
        "lm_head.weight": torch.randn(11, 8)})  # a head of its own, though the config says that it is tied
    (out / "own/want.json").write_text(json.dumps(dict(logits=logits(tf.AutoModelForCausalLM.from_pretrained(out / "own"), 11))))
    for name, keys in GOLDEN.items():
        global VOCAB
        VOCAB = 11
        print(name, write(out / "base", out / name, dict(r=2, lora_alpha=4, target_modules=["q_proj"]) | keys, 2 if name == "grown" else 0),
              sorted(k.removeprefix("base_model.model.") for k in load_file(out / name / "adapter_model.safetensors")))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    tf.logging.set_verbosity_error()
    tf.utils.logging.disable_progress_bar()
    if sys.argv[1] == "--golden":
        golden()
    else:
        main(pathlib.Path(sys.argv[1]), int((sys.argv + ["320"])[2]), int((sys.argv + ["", "1"])[3]))
