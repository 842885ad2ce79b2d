"""Trains small models with TRL and, by the run file that `lfactor config import` makes of the same YAML, with lfactor, and
compares the first 20 losses.

    python bench/golden/imports_losses.py [--lfactor ./lfactor] [--only NAME]

Model (a Llama of four layers, drawn), tokenizer (bytes), chat template, conversations and pairs are made here; both read
samples in the order of the file, in float32 on the processor. Wants torch, transformers, trl, peft, datasets."""

import argparse, json, os, random, subprocess, sys, tempfile
os.environ.update(CUDA_VISIBLE_DEVICES="", WANDB_MODE="disabled", TOKENIZERS_PARALLELISM="false")
import torch, transformers, yaml
import trl, peft, datasets

TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
            "{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
BASE = dict(learning_rate=1e-3, per_device_train_batch_size=4, max_steps=20, bf16=False, max_length=96, seed=7, report_to="none",
            train_sampling_strategy="sequential", gradient_checkpointing=False, logging_steps=1)
LORA = dict(use_peft=True, lora_r=4, lora_alpha=8, lora_dropout=0.0, lora_target_modules=["q_proj", "v_proj", "up_proj"])
CASES = {
    "sft": ("trl", dict()),
    "sft-cosine": ("trl", dict(lr_scheduler_type="cosine", warmup_steps=5, gradient_accumulation_steps=2, weight_decay=0.1)),
    "sft-constant": ("trl", dict(lr_scheduler_type="constant", max_grad_norm=0.1, adam_beta2=0.95)),
    "sft-lora": ("trl", dict(LORA, lr_scheduler_type="constant_with_warmup", warmup_steps=3)),
    "sft-sgd": ("trl", dict(optim="sgd", learning_rate=0.1)),
    "sft-adafactor": ("trl", dict(optim="adafactor")),
    "dpo": ("trl-dpo", dict(beta=0.2)),
    "dpo-ipo": ("trl-dpo", dict(loss_type="ipo", gradient_accumulation_steps=2)),
    "dpo-smoothed": ("trl-dpo", dict(label_smoothing=0.1, lr_scheduler_type="cosine")),
    "dpo-hinge": ("trl-dpo", dict(loss_type="hinge")),
    "reward": ("trl-reward", dict(center_rewards_coefficient=0.01)),
}

def make(d):
    r = random.Random(3)
    from tokenizers import Tokenizer, models, pre_tokenizers, decoders
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|pad|>"])
    tok = transformers.PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|pad|>")
    tok.chat_template = TEMPLATE
    tok.save_pretrained(d)
    torch.manual_seed(5)
    c = transformers.LlamaConfig(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=128,
        vocab_size=264, max_position_embeddings=256, eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id, bos_token_id=None, tie_word_embeddings=False, initializer_range=0.1)
    m = transformers.LlamaForCausalLM(c).float()
    m.generation_config.eos_token_id = tok.eos_token_id
    m.save_pretrained(d)
    s = transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**{**c.to_dict(), "num_labels": 1})).float()
    s.model.load_state_dict(m.model.state_dict())
    s.save_pretrained(d + "-reward"); tok.save_pretrained(d + "-reward")
    words = "red blue green one two three what is the of a sum and then".split()
    say = lambda n: " ".join(r.choice(words) for _ in range(n))
    chats, pairs = [], []
    for _ in range(160):
        chats.append({"messages": [{"role": "user", "content": say(r.randint(2, 5))}, {"role": "assistant", "content": say(r.randint(2, 6))}]})
        p = [{"role": "user", "content": say(3)}]
        pairs.append({"prompt": p, "chosen": [{"role": "assistant", "content": say(r.randint(2, 5))}], "rejected": [{"role": "assistant", "content": say(r.randint(2, 5))}]})
    for name, rows in (("chats", chats), ("pairs", pairs)):
        with open(f"{d}/{name}.jsonl", "w") as f: f.writelines(json.dumps(x) + "\n" for x in rows)
    return chats, pairs, tok

def theirs(tool, y, d, chats, pairs, tok):
    model_keys = ("use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "model_name_or_path", "dataset_name")
    args = {k: v for k, v in y.items() if k not in model_keys}
    kind = {"trl": (trl.SFTConfig, trl.SFTTrainer), "trl-dpo": (trl.DPOConfig, trl.DPOTrainer), "trl-reward": (trl.RewardConfig, trl.RewardTrainer)}[tool]
    if tool == "trl": args["assistant_only_loss"] = True
    cfg = kind[0](output_dir=d + "/out", use_cpu=True, save_strategy="no", disable_tqdm=True, **args)
    cls = transformers.AutoModelForSequenceClassification if tool == "trl-reward" else transformers.AutoModelForCausalLM
    model = cls.from_pretrained(d + "-reward" if tool == "trl-reward" else d, dtype=torch.float32)
    pc = None
    if y.get("use_peft"):
        pc = peft.LoraConfig(r=y["lora_r"], lora_alpha=y["lora_alpha"], lora_dropout=0.0, target_modules=y["lora_target_modules"], init_lora_weights="olora", task_type="CAUSAL_LM")
    rows = chats if tool == "trl" else pairs
    t = kind[1](model=model, args=cfg, train_dataset=datasets.Dataset.from_list(rows), processing_class=tok, peft_config=pc)
    t.train()
    return [h["loss"] for h in t.state.log_history if "loss" in h]

def ours(lfactor, tool, y, d):
    y = {k: v for k, v in y.items() if k != "report_to"}
    open(d + "/theirs.yaml", "w").write(yaml.safe_dump({**y, "output_dir": d + "/ckpt"}))
    run = d + "/run.yaml"
    if os.path.exists(run): os.remove(run)
    subprocess.run([lfactor, "config", "import", d + "/theirs.yaml", "--from", tool, "--out", run], check=True, capture_output=True)
    subprocess.run(["rm", "-rf", d + "/ckpt", d + "/log"])
    model = d + "-reward" if tool == "trl-reward" else d
    set_ = [f"model.path={model}", f"data.paths=[{d}/{'chats' if tool == 'trl' else 'pairs'}.jsonl]", "data.packing=false", f"log.dir={d}/log", "checkpoint.save_hf=false",
            "checkpoint.interval=0", "device=cpu", "train.steps=20", "data.shuffle=false"] + (["lora.init=olora"] if y.get("use_peft") else [])
    r = subprocess.run([lfactor, "train", run, *set_], capture_output=True, text=True, timeout=300)
    if r.returncode: print(r.stdout[-1500:], r.stderr[-1500:]); return []
    return [json.loads(x)["loss"] for x in open(d + "/log/metrics.jsonl") if '"loss"' in x]

def main():
    p = argparse.ArgumentParser(); p.add_argument("--lfactor", default="lfactor"); p.add_argument("--only", default="")
    a = p.parse_args()
    bad = 0
    with tempfile.TemporaryDirectory() as top:
        d = top + "/model"; os.mkdir(d)
        chats, pairs, tok = make(d)
        for name, (tool, extra) in CASES.items():
            if a.only and name != a.only: continue
            y = {**BASE, **extra, "model_name_or_path": d, "dataset_name": "x"}
            t, o = theirs(tool, y, d, chats, pairs, tok), ours(a.lfactor, tool, y, d)
            worst = max((abs(x - z) / max(1e-6, abs(x)) for x, z in zip(t, o)), default=9)
            good = len(t) == len(o) == 20 and worst < 1e-3
            bad += not good
            print(f"{name}: {len(o)} losses, greatest relative difference {worst:.1e}{'' if good else '  FAILED'}", flush=True)
            if not good: print("  theirs", [round(x, 4) for x in t]); print("  ours  ", [round(x, 4) for x in o], flush=True)
    sys.exit(bad > 0)

main()
