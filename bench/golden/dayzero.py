"""Every causal language model of the installed transformers against lfactor: docs/dayzero.md.

Of each model_type two tiny models are made with random weights, one as its configuration comes and one with every boolean the other way (or as many
of them as transformers can run). TestDayZero of actors/host computes logits and loss of each, or is refused with the nearest family.

Run from the repository's root: python bench/golden/dayzero.py [model_type ...]
"""

import collections
import contextlib
import datetime
import inspect
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import family_fuzz

# sizes of keys that a configuration has; others stay as they come
SIZES = dict(
    vocab_size=96, hidden_size=32, n_embd=32, d_model=32, intermediate_size=48, n_inner=48, ffn_dim=48, num_hidden_layers=4, n_layer=4, n_layers=4,
    num_attention_heads=4, n_head=4, n_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, n_positions=64, sliding_window=5,
    num_experts=8, num_local_experts=8, n_routed_experts=8, moe_num_experts=8, num_experts_per_tok=2, moe_k=2, moe_topk=2, top_k_experts=2,
    moe_intermediate_size=16, shared_expert_intermediate_size=16, n_group=2, topk_group=1, n_shared_experts=1, q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6,
    qk_rope_head_dim=8, v_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, index_topk=64,
    index_n_heads=4, index_head_dim=8, first_k_dense_replace=1, block_multiple_of=8, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48,
    decoder_ffn_dim=48, encoder_attention_heads=4, decoder_attention_heads=4, embedding_size=32, vocab_size_per_layer_input=96,
    hidden_size_per_layer_input=8, mamba_n_heads=8, mamba_d_head=8, mamba_d_ssm=64, mamba_d_state=8, state_size=8, ssm_state_size=8, mamba_num_heads=8,
    mamba_head_dim=8, num_heads=4, d_kv=8, global_head_dim=16, rotary_dim=8, expert_ffn_hidden_size=16, moe_shared_expert_intermediate_size=16)
# of booleans that are no arithmetic of a forward in evaluation, or change the kind of the model
KEPT = {"use_cache", "return_dict", "output_attentions", "output_hidden_states", "is_encoder_decoder", "is_decoder", "add_cross_attention",
        "output_router_logits", "tie_encoder_decoder", "use_mamba_kernels"}
LARGEST = 5_000_000


def configs(kind):
    """The configurations of a type that can be made, by what is told of them; lists a layer follow from the others."""
    cls = CONFIG_MAPPING[kind]
    has = set(inspect.signature(cls).parameters) | set(cls().to_dict())
    more = dict(num_key_value_heads=4, topk_method="group_limited_greedy") if "kv_lora_rank" in has else {}
    small = {k: v for k, v in (SIZES | more).items() if k in has} | dict(pad_token_id=None, bos_token_id=1, eos_token_id=2)
    yield "as it comes", cls, small
    whole = cls(**small).to_dict()
    flags = {k: not v for k, v in whole.items() if isinstance(v, bool) and k not in KEPT}
    if flags:
        yield "all booleans", cls, small | flags
        for key, value in flags.items():
            yield key, cls, small | {key: value}


def make(root, kind, number, cls, facts):
    name, model = f"{kind}~{number}", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
    model = model[0] if isinstance(model, (tuple, list)) else model
    with torch.device("meta"):
        if sum(p.numel() for p in getattr(transformers, model)(cls(**facts)).parameters()) > LARGEST:
            raise ValueError("is not small")
    family_fuzz.write(root / name, name, cls.__name__, model, facts)


def prepare(root, kind):
    """Two models of a type; its configuration alone where none can be made."""
    made, said = 0, None
    try:
        for told, cls, facts in configs(kind):
            try:
                make(root, kind, made, cls, facts)
                made += 1
            except Exception as e:  # of keys that do not go together
                said = said or f"{type(e).__name__}: {e}".splitlines()[0]
            if told == "all booleans" and made == 2:
                break
    except Exception as e:
        said = f"{type(e).__name__}: {e}".splitlines()[0]
    if not made:
        with contextlib.suppress(Exception):
            CONFIG_MAPPING[kind]().save_pretrained(root / f"{kind}~0")
    return said if not made else None


def brief(reason):
    """A reason of a refusal in few words."""
    if near := re.search(r"trained; (\S+) (?:is the nearest|takes most)|did you mean \"(\S+)\"", reason):
        return f"nearest: {near[1] or near[2]}"
    if "is no family" in reason:
        return "no family takes most of its keys"
    return re.sub(r"^/\S*config\.json:\d*:? ?", "", reason)[:160].replace("|", "/")


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(50)
    torch.set_num_threads(1)
    root, kinds = pathlib.Path(tempfile.mkdtemp()), sys.argv[1:] or list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    why = {}
    for kind in kinds:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            why[kind] = prepare(root, kind)
    run = subprocess.run(["go", "test", "./actors/host", "-run", "TestDayZero", "-count=1", "-v", "-long"], capture_output=True, text=True, env=os.environ | dict(LFACTOR_DAYZERO=str(root)))
    rows = collections.defaultdict(list)
    for line in run.stdout.splitlines():
        if m := re.search(r"dayzero (\S+)~\d+ (verified|refused|wrong|open) ?(.*)", line):
            rows[m[1]].append((m[2], m[3]))
    count, text = collections.Counter(), ""
    for kind in kinds:
        found = rows[kind] or [("open", "")]
        worst = max((w for w, _ in found), key=["verified", "refused", "open", "wrong"].index)
        if worst == "refused" and any(w == "verified" for w, _ in found):
            worst = "verified"
        count[worst] += 1
        reasons = [r for w, r in found if w != "verified"]
        same = sum(w == "verified" for w, _ in found)
        note = f"{same} configuration{'s' * (same != 1)}" * (same > 0)
        note += "; " * bool(note and reasons) + "; ".join(dict.fromkeys(map(brief, reasons)))
        text += f"| {kind} | {worst} | {note} |\n"
    head = f"""# Every causal language model of transformers {transformers.__version__}

`bench/golden/dayzero.py` makes two tiny models with random weights of each model_type, one with every boolean the other way where transformers can run
that. *verified*: logits are within 1e-4 of transformers' (relative, L2, float32, one sequence). *refused*: a configuration is refused with its reason, or the type with
the family that is nearest. *wrong*: it computes something else. *open*: the type is not refused, but no small model of it could be made. {datetime.date.today()}:

{', '.join(f'{count[w]} {w}' for w in ('verified', 'refused', 'open', 'wrong'))}, of {len(kinds)} types.

| model_type | | |
|---|---|---|
"""
    print(head + text if sys.argv[1:] else head)
    for kind in kinds:
        if any(w in ("wrong", "open") for w, _ in rows[kind] or [("open", "")]):
            print(kind, rows[kind], why[kind])
    if not sys.argv[1:]:
        pathlib.Path("docs/dayzero.md").write_text(head + text)
    sys.exit(bool(count["wrong"]))


if __name__ == "__main__":
    main()
