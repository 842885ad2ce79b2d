"""Runs `lfactor config import` over a tree of another tool's examples and holds every key to what was made of it.

    python bench/golden/imports.py TREE [--lfactor ./lfactor] [--show]

TREE is a checkout of Axolotl, LLaMA-Factory or TRL, or its folder of examples, or a folder of what the script of
`lfactor config import --dumper` wrote of torchtitan's registry; files of none of these are passed over
(PyYAML is wanted). For each file:

* each key of it that is set is in the run file (taken), listed with a reason (differs), or needs no setting (same);
* each setting below is worked out here, from the file and the tool's own defaults by its sources, apart from lfactor's
  tables, and is equal in the run file, or its key is listed as differing;
* the run file loads: `lfactor config check` finds no fault but paths that are not here.

It prints counts by tool, and what failed; it ends with 1 if anything did."""

import argparse, collections, glob, json, math, os, re, subprocess, sys, tempfile
import yaml

class Loader(yaml.SafeLoader): pass
Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)$"), list("-+0123456789"))

def flat(tree, prefix=""):
    out = {}
    for k, v in tree.items():
        if isinstance(v, dict) and v: out.update(flat(v, f"{prefix}{k}."))
        else: out[f"{prefix}{k}"] = v
    return out

def entries(key, v):
    """Keys of entries of a list of data sets, and the list's own."""
    if not isinstance(v, list) or not key.split(".")[-1].startswith(("dataset", "test_dataset", "pretraining")): return [key]
    return [key] + [f"{key}.{k}" for e in v if isinstance(e, dict) for k, x in e.items() if x is not None]

on = lambda v: str(v).lower() in ("true", "auto", "full", "1", "yes")
num = float

def common(d, get):
    """What Trainer's arguments of transformers mean: our key -> (their keys, value)."""
    w = {"optimizer.lr": ("learning_rate", num(get("learning_rate"))), "optimizer.weight_decay": ("weight_decay", num(get("weight_decay"))),
         "optimizer.clip_grad": ("max_grad_norm", num(get("max_grad_norm"))), "train.seed": ("seed", int(get("seed")))}
    name = str(get("optim")).replace("OptimizerNames.", "")
    plain = not any(x in name for x in ("sgd", "adafactor"))
    if plain:
        w["optimizer.beta1"] = ("adam_beta1", num(get("adam_beta1")))
        w["optimizer.beta2"] = ("adam_beta2", num(get("adam_beta2")))
    if plain and "lion" not in name: w["optimizer.eps"] = ("adam_epsilon", num(get("adam_epsilon")))
    kind = "lion" if "lion" in name else "muon" if name == "muon" else "sgd" if name == "sgd" else "adafactor" if name == "adafactor" else "adamw"
    w["optimizer.kind"] = ("optim", kind)
    w["optimizer.moments"] = ("optim", "8bit" if "8bit" in name and "adam" in name else "fp32")
    sched = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine", "inverse_sqrt": "inverse-square-root"}
    w["schedule.kind"] = ("lr_scheduler_type", sched.get(get("lr_scheduler_type"), get("lr_scheduler_type")))
    w["train.loss_average"] = ("", "token")
    return w

def warm(w, d, get, rounded):
    steps, ratio = get("warmup_steps"), get("warmup_ratio")
    if steps is not None and 0 < steps < 1: steps, ratio = None, steps
    n = get("max_steps")
    if w["schedule.kind"][1] == "constant" and get("lr_scheduler_type") == "constant": steps, ratio = 0, None
    if steps is not None: w["schedule.warmup_steps"] = ("warmup_steps", steps)
    elif ratio and n and n > 0: w["schedule.warmup_steps"] = ("warmup_ratio", rounded(ratio * n))
    elif ratio: w["schedule.warmup_fraction"] = ("warmup_ratio", ratio)

def length(w, get, epochs):
    n = get("max_steps")
    if n and n > 0: w["train.steps"] = ("max_steps", n)
    else: w["train.epochs"] = (epochs, num(get(epochs)))

def lora(w, used, get, rank, dropout=True):
    if not used:
        w["lora.rank"] = ("adapter", 0)
        return
    for ours, theirs in (("lora.rank", rank), ("lora.alpha", "lora_alpha"), ("lora.dropout", "lora_dropout")):
        if get(theirs) is not None: w[ours] = (theirs, num(get(theirs)))

def axolotl(d):
    f = flat(d)
    default = dict(learning_rate=None, weight_decay=0.0, max_grad_norm=1.0, seed=42, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        lr_scheduler="cosine", optimizer="adamw_torch_fused", micro_batch_size=1, num_epochs=1, sequence_len=512, sample_packing=False,
        bf16="auto", lora_dropout=0.0, output_dir="./model-out", save_total_limit=4, excess_length_strategy="drop", train_on_inputs=False)
    alias = dict(optim="optimizer", lr_scheduler_type="lr_scheduler")
    def get(k):
        v = f.get(alias.get(k, k))
        return default.get(alias.get(k, k)) if v is None else v
    w = common(d, get)
    w = {k: (alias.get(t, t), v) for k, (t, v) in w.items()}
    if get("warmup_steps") is None and get("warmup_ratio") is None: pass  # 3 %, at most 100: listed
    else: warm(w, d, get, int)
    if w.get("schedule.warmup_steps", ("", 0))[1] == 1: w["schedule.warmup_steps"] = (w["schedule.warmup_steps"][0], 2)
    length(w, get, "num_epochs")
    m = int(get("micro_batch_size")); a = f.get("gradient_accumulation_steps") or max(1, int(f.get("batch_size") or m) // m)
    dp = max((f.get("dp_shard_size") or 1) * (f.get("dp_replicate_size") or 1), f.get("expert_parallel_size") or 1)
    w["train.micro_batch"], w["train.global_batch"] = ("micro_batch_size", m), ("gradient_accumulation_steps", m * int(a) * dp)
    w["data.seq_len"] = ("sequence_len", get("sequence_len"))
    w["data.packing"] = ("sample_packing", bool(get("sample_packing")))
    w["data.train_on_prompt"] = ("train_on_inputs", bool(get("train_on_inputs")))
    w["data.drop_long"] = ("excess_length_strategy", get("excess_length_strategy") != "truncate")
    w["train.precision"] = ("bf16", "bf16" if on(get("bf16")) or on(f.get("bfloat16")) else "fp16" if on(f.get("fp16")) or on(f.get("float16")) else "fp32")
    w["checkpoint.dir"] = ("output_dir", get("output_dir"))
    w["checkpoint.keep"] = ("save_total_limit", get("save_total_limit"))
    if f.get("save_steps") and f["save_steps"] >= 1: w["checkpoint.interval"] = ("save_steps", f["save_steps"])
    lora(w, f.get("adapter") in ("lora", "qlora"), get, "lora_r")
    if f.get("adapter") in ("lora", "qlora"):
        w["lora.base"] = ("load_in_4bit", "nf4" if f.get("adapter") == "qlora" or on(f.get("load_in_4bit")) else "int8" if on(f.get("load_in_8bit")) else "kept" if on(f.get("gptq")) else "model")
        if on(f.get("lora_target_linear")): w["lora.targets"] = ("lora_target_linear", ["*"])
        elif isinstance(f.get("lora_target_modules"), list):
            w["lora.targets"] = ("lora_target_modules", [("*." + t if "." in t else t) for t in f["lora_target_modules"]])
    if f.get("cosine_min_lr_ratio"): w["optimizer.min_lr"] = ("cosine_min_lr_ratio", f["cosine_min_lr_ratio"] * get("learning_rate"))
    gc = f.get("gradient_checkpointing") or f.get("fsdp_config.activation_checkpointing") or f.get("fsdp_config.fsdp_activation_checkpointing")
    if gc: w["plan.recompute"] = ("gradient_checkpointing", "full")
    if f.get("fsdp_config.reshard_after_forward") is False: w["plan.zero"] = ("fsdp", 2)
    elif f.get("fsdp") or any(k.startswith("fsdp_config.") for k in f) and f.get("fsdp_config") is None and f.get("fsdp_version"): w["plan.zero"] = ("fsdp", 3)
    z = re.search(r"zero(\d)", str(f.get("deepspeed") or ""))
    if z: w["plan.zero"] = ("deepspeed", int(z[1]))
    for ours, theirs in (("plan.tp", "tensor_parallel_size"), ("plan.cp", "context_parallel_size"), ("plan.ep", "expert_parallel_size")):
        if f.get(theirs): w[ours] = (theirs, f[theirs])
    v = num(f.get("val_set_size") or 0)
    if 0 < v < 1: w["data.split"] = ("val_set_size", [100 - round(1000 * v) / 10, round(1000 * v) / 10, 0])
    if f.get("rl") in ("dpo", "ipo", "kto", "orpo", "simpo", "grpo"): w["objective.kind"] = ("rl", f.get("trl.loss_type", f["rl"]))
    if f.get("rl") in ("dpo", "ipo", "kto"): w["objective.beta"] = ("rl_beta", f.get("rl_beta", 0.1))
    if on(f.get("reward_model")): w["objective.kind"] = ("reward_model", "reward")
    return w

def llamafactory(d):
    f = flat(d)
    default = dict(learning_rate=5e-5, weight_decay=0.0, max_grad_norm=1.0, seed=42, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        lr_scheduler_type="linear", optim="adamw_torch_fused", per_device_train_batch_size=8, gradient_accumulation_steps=1, num_train_epochs=3.0,
        cutoff_len=2048, output_dir="trainer_output", save_steps=500, lora_rank=8, lora_dropout=0.0, pref_beta=0.1, finetuning_type="lora")
    def get(k):
        v = f.get(k)
        return default.get(k) if v is None else v
    w = common(d, get)
    if on(f.get("use_muon")): w["optimizer.kind"] = ("use_muon", "muon")
    warm(w, d, get, math.ceil)
    length(w, get, "num_train_epochs")
    m = int(get("per_device_train_batch_size"))
    w["train.micro_batch"] = ("per_device_train_batch_size", m)
    world = f.get("expert_model_parallel_size") or 1
    w["train.global_batch"] = ("gradient_accumulation_steps", m * int(get("gradient_accumulation_steps")) * world)
    w["data.seq_len"] = ("cutoff_len", get("cutoff_len"))
    w["data.packing"] = ("packing", f.get("packing") if f.get("packing") is not None else f.get("stage") == "pt")
    w["train.precision"] = ("bf16", "bf16" if on(f.get("bf16")) or on(f.get("pure_bf16")) else "fp16" if on(f.get("fp16")) else "fp32")
    w["checkpoint.dir"], w["checkpoint.interval"] = ("output_dir", get("output_dir")), ("save_steps", get("save_steps"))
    used = get("finetuning_type") in ("lora", "oft")
    lora(w, used, lambda k: 2 * get("lora_rank") if k == "lora_alpha" and f.get(k) is None else get(k), "lora_rank")
    if used and f.get("quantization_bit"): w["lora.base"] = ("quantization_bit", {4: "nf4", 8: "int8"}[f["quantization_bit"]])
    if used: w["lora.targets"] = ("lora_target", ["*"] if f.get("lora_target", "all") == "all" else None)
    if not on(f.get("disable_gradient_checkpointing")): w["plan.recompute"] = ("gradient_checkpointing", "full")
    stage = f.get("stage", "sft")
    kind = {"rm": "reward", "dpo": {"sigmoid": "dpo", "hinge": "dpo_hinge"}.get(f.get("pref_loss", "sigmoid"), f.get("pref_loss")), "kto": "kto"}.get(stage)
    if kind: w["objective.kind"] = ("stage", kind)
    if stage in ("dpo", "kto"): w["objective.beta"] = ("pref_beta", get("pref_beta"))
    if stage == "sft": w["train.phase"] = ("stage", "sft")
    z = re.search(r"z(\d)", str(f.get("deepspeed") or ""))
    if z: w["plan.zero"] = ("deepspeed", int(z[1]))
    for ours, theirs in (("plan.tp", "tensor_model_parallel_size"), ("plan.pp", "pipeline_model_parallel_size"), ("plan.ep", "expert_model_parallel_size")):
        if f.get(theirs): w[ours] = (theirs, f[theirs])
    return w

def trl(d):
    f = flat(d)
    default = dict(learning_rate=2e-5, weight_decay=0.0, max_grad_norm=1.0, seed=42, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8,
        lr_scheduler_type="linear", optim="adamw_torch_fused", per_device_train_batch_size=8, gradient_accumulation_steps=1, num_train_epochs=3.0, max_length=1024)
    get = lambda k: default.get(k) if f.get(k) is None else f[k]
    w = common(d, get)
    warm(w, d, get, math.ceil); length(w, get, "num_train_epochs")
    w["train.micro_batch"] = ("per_device_train_batch_size", get("per_device_train_batch_size"))
    w["data.seq_len"] = ("max_length", get("max_length"))
    w["train.precision"] = ("bf16", "fp16" if on(f.get("fp16")) else "bf16" if on(f.get("bf16", True)) else "fp32")
    lora(w, on(f.get("use_peft")), get, "lora_r")
    return w

def torchtitan(d):
    """Of a dump of a function of its registry."""
    f = flat(d)
    t = d["training"]
    g = d["optimizer"]["param_groups"][-1]["optimizer_kwargs"]
    w = {"optimizer.lr": ("optimizer.param_groups", g["lr"]), "optimizer.weight_decay": ("optimizer.param_groups", g.get("weight_decay")), "optimizer.eps": ("optimizer.param_groups", g.get("eps")),
         "train.steps": ("training.steps", t["steps"]), "data.seq_len": ("training.max_context_length", t["max_context_length"]),
         "train.micro_batch": ("training.num_tokens_per_microbatch_per_dp_rank", max(1, t["num_tokens_per_microbatch_per_dp_rank"] // t["max_context_length"])),
         "optimizer.clip_grad": ("training.max_norm", t["max_norm"]), "schedule.warmup_steps": ("lr_scheduler.warmup_steps", d["lr_scheduler"]["warmup_steps"]),
         "train.precision": ("training.mixed_precision_param", {"bfloat16": "bf16", "float32": "fp32"}[t["mixed_precision_param"]]),
         "plan.tp": ("parallelism.tensor_parallel_degree", d["parallelism"]["tensor_parallel_degree"]), "plan.pp": ("parallelism.pipeline_parallel_degree", d["parallelism"]["pipeline_parallel_degree"]),
         "plan.cp": ("parallelism.context_parallel_degree", d["parallelism"]["context_parallel_degree"]), "plan.ep": ("parallelism.expert_parallel_degree", d["parallelism"]["expert_parallel_degree"])}
    if "betas" in g: w["optimizer.beta1"], w["optimizer.beta2"] = (("optimizer.param_groups", x) for x in g["betas"])
    ac = (d.get("activation_checkpoint") or {}).get("_type")
    w["plan.recompute"] = ("activation_checkpoint", {"SelectiveAC.Config": "selective", "FullAC.Config": "full", None: "none"}.get(ac))
    r = d["lr_scheduler"]
    w["schedule.kind"] = ("lr_scheduler.decay_ratio", "wsd" if r["decay_ratio"] is not None else r["decay_type"])
    if r["decay_ratio"] is not None: w["schedule.wsd_decay_steps"] = ("lr_scheduler.decay_ratio", int(r["decay_ratio"] * t["steps"]))
    if r["min_lr_factor"]: w["optimizer.min_lr"] = ("lr_scheduler.min_lr_factor", r["min_lr_factor"] * g["lr"])
    if (d.get("validator") or {}).get("enable"): w["train.eval_interval"] = ("validator.freq", d["validator"]["freq"])
    if d["checkpoint"]["enable"]: w["checkpoint.interval"] = ("checkpoint.interval", d["checkpoint"]["interval"])
    return w

EXPECT = {"torchtitan": torchtitan, "axolotl": axolotl, "llamafactory": llamafactory, "trl": trl}
DEFAULTS = {"schedule.warmup_steps": 0, "optimizer.kind": "adamw", "optimizer.moments": "fp32", "lora.rank": 0, "lora.base": "model", "data.train_on_prompt": False, "train.precision": "fp32"}

PATHS = re.compile(r"data\.|reward\.kind|model\.|checkpoint\.load|objective\.reference|lora\.targets|.*(no such file|tokenizer|has no experts|rows of 64 numbers)")  # what is not here
TINY = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=64, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8,
    head_dim=8, intermediate_size=128, vocab_size=512, max_position_embeddings=1 << 20, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
    attention_bias=False, mlp_bias=False, tie_word_embeddings=False, torch_dtype="bfloat16")

def equal(a, b):
    if isinstance(a, bool) or isinstance(b, bool): return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)): return abs(a - b) <= 1e-9 * max(1, abs(a)) if abs(a) > 1e-6 else a == b or abs(a - b) < 1e-6 * abs(a)
    if isinstance(a, list) and isinstance(b, list): return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    return a == b

def one(lfactor, file, tree, count, show):
    r = subprocess.run([lfactor, "config", "import", file, "-o", "json"], capture_output=True, text=True)
    if r.returncode:
        why = (r.stderr + r.stdout).strip().split("\n")[0]
        return ("untrained" if "no file of training" in why + r.stderr + r.stdout else "refused", [f"import ended with {r.returncode}: {why}"])
    got = json.loads(r.stdout)
    listed = {d["key"] for d in got["differences"]}
    run = flat(yaml.load(got["run"], Loader))
    faults = []
    for key, v in flat(tree).items():
        if v is None: continue
        for k in entries(key, v):
            where = "taken" if got["taken"].get(k) else "listed" if k in listed else "same" if k in got["same"] else None
            count[where or "silent"] += 1
            if not where: faults.append(f"{k}={v} falls silently")
    expect = EXPECT[got["tool"].split("-")[0]](tree)
    if expect.get("objective.kind", ("", ""))[1] in ("dpo", "ipo", "orpo", "simpo", "reward", "dpo_hinge"):  # a pair is one sample
        expect["data.seq_len"] = (expect["data.seq_len"][0], 2 * expect["data.seq_len"][1])
    for ours, (theirs, want) in expect.items():
        if want is None: continue
        have = run.get(ours, DEFAULTS.get(ours))
        if equal(want, have): count["equal"] += 1
        elif theirs in listed or any(k.startswith(theirs) for k in listed if theirs): count["equal or listed"] += 1
        else: faults.append(f"{ours}: {theirs} asks for {want}, the run file has {have}")
    with tempfile.TemporaryDirectory() as d:
        json.dump(TINY, open(os.path.join(d, "config.json"), "w"))
        open(os.path.join(d, "run.yaml"), "w").write(got["run"])
        c = subprocess.run([lfactor, "config", "check", os.path.join(d, "run.yaml"), "model.path=" + d, "model.init=random", "-o", "json"],
                           capture_output=True, text=True, timeout=60)
        for fault in json.loads(c.stdout or c.stderr or "{}").get("faults") or []:
            if not PATHS.match(fault.get("key", "") + " " + fault["why"]): faults.append(f"config check: {fault}")
    return got["tool"], faults

def main():
    p = argparse.ArgumentParser(); p.add_argument("tree"); p.add_argument("--lfactor", default="lfactor"); p.add_argument("--show", action="store_true")
    a = p.parse_args()
    counts, bad = collections.defaultdict(collections.Counter), 0
    for file in sorted(f for end in ("y*ml", "json") for f in glob.glob(os.path.join(a.tree, "**", "*." + end), recursive=True)):
        try: tree = yaml.load(open(file), Loader)
        except yaml.YAMLError: continue
        if not isinstance(tree, dict) or not (tree.get("base_model") or tree.get("model_name_or_path") or "model_spec" in tree): continue
        count = collections.Counter()
        tool, faults = one(a.lfactor, file, tree, count, a.show)
        counts[tool].update(count); counts[tool]["files"] += 1
        if tool != "untrained" and faults:
            bad += 1; counts[tool]["files with faults"] += 1
            print(file); [print("   ", f) for f in faults]
    for tool, c in counts.items(): print(tool, json.dumps(dict(c)))
    sys.exit(bad > 0)

main()
