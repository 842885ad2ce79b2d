"""Losses of answers, and what is logged beside them, as TRL computes them: actors/run/testdata/preference.

A small llama and a reference policy with other weights see three pairs of answers; every loss gives its value, the
log-probabilities of tokens, and gradients of two parameters. TRL 1.16.0, transformers 5, torch on a processor.

    /work/venv/bin/python bench/golden/preference.py actors/run/testdata/preference
"""
import json
import os
import sys
import tempfile

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, RewardConfig, RewardTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

OUT = sys.argv[1]
WATCHED = ["model.norm.weight", "model.layers.0.self_attn.q_proj.weight"]
PAIRS = [("w3 w4 w5", " w6 w7", " w8 w9 w10 w11"), ("w12 w13", " w14 w15 w16 w17 w18", " w19"),
         ("w20 w21 w22 w23", " w24", " w25 w26")]


def tokenizer():
    vocab = {"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, 40)}
    t = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def config(**more):
    return LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
                       num_key_value_heads=1, head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-6,
                       initializer_range=0.3, tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
                       bos_token_id=None, **more)


def model(seed, cls=LlamaForCausalLM, **more):
    torch.manual_seed(seed)
    return cls(config(**more)).float().eval()


def args(cls, **more):
    return cls(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=5 if cls is KTOConfig else 3, report_to=[], use_cpu=True, bf16=False,
               gradient_checkpointing=False, max_length=64, **more)


def measure(trainer, m):
    trainer.model.train()
    batch = next(iter(trainer.get_train_dataloader()))
    m.zero_grad()
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    named = dict(m.named_parameters())
    seen = {k: sum(v) / len(v) for k, v in trainer._metrics["train"].items() if v} if hasattr(trainer, "_metrics") else {}
    if not seen:
        seen = {k: sum(v) / len(v) for k, v in trainer._stored_metrics["train"].items()}
    return {"loss": loss.item(), "gradients": {n: named[n].grad.flatten().tolist() for n in WATCHED}, "seen": seen}, batch


def ordered(trainer):
    """Pairs in the order of the file."""
    trainer._get_train_sampler = lambda *a: torch.utils.data.SequentialSampler(trainer.train_dataset)
    return trainer


def main():
    os.makedirs(OUT, exist_ok=True)
    data = Dataset.from_list([{"prompt": p, "chosen": c, "rejected": r} for p, c, r in PAIRS])
    cases = {}
    dpo = {"dpo": ({"loss_type": ["sigmoid"]}, {}), "dpo_hinge": ({"loss_type": ["hinge"]}, {}),
           "ipo": ({"loss_type": ["ipo"]}, {}),
           "dpo_robust": ({"loss_type": ["robust"], "label_smoothing": 0.1}, {"smoothing": 0.1}),
           "dpo_norm": ({"loss_type": ["sigmoid_norm"]}, {}),
           "dpo+sft": ({"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.3]}, {"text": 0.3})}
    for name, (own, params) in dpo.items():
        m = model(1)
        t = ordered(DPOTrainer(model=m, ref_model=model(2), args=args(DPOConfig, beta=0.5, **own), train_dataset=data,
                               processing_class=tokenizer()))
        cases[name], batch = measure(t, m)
        cases[name]["params"] = {"beta": 0.5} | params
    rows = {k: v.tolist() for k, v in batch.items() if k in ("input_ids", "completion_mask", "attention_mask")}
    for name, own, params in [
            ("simpo", {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": 0.4, "beta": 2.0}, {"beta": 2.0, "gamma": 0.4}),
            ("cpo", {"loss_type": "sigmoid", "cpo_alpha": 0.7, "beta": 0.5}, {"beta": 0.5, "text": 0.7})]:
        m = model(1)
        t = ordered(CPOTrainer(model=m, args=args(CPOConfig, **own), train_dataset=data, processing_class=tokenizer()))
        cases[name], batch = measure(t, m)
        cases[name]["params"] = params
    m = model(1)
    t = ordered(ORPOTrainer(model=m, args=args(ORPOConfig, beta=0.5), train_dataset=data, processing_class=tokenizer()))
    cases["orpo"], _ = measure(t, m)
    cases["orpo"]["params"] = {"beta": 0.5}
    judged = Dataset.from_list([{"prompt": p, "completion": a, "label": good} for p, c, r in PAIRS
                                for a, good in ((c, True), (r, False))][:5])
    m = model(1)
    t = ordered(KTOTrainer(model=m, ref_model=model(2), args=args(KTOConfig, beta=0.5, desirable_weight=1.2, undesirable_weight=0.7),
                           train_dataset=judged, processing_class=tokenizer()))
    cases["kto"], _ = measure(t, m)
    cases["kto"]["params"] = {"beta": 0.5, "desirable": 1.2, "undesirable": 0.7}
    m = model(1, LlamaForSequenceClassification, num_labels=1)
    whole = Dataset.from_list([{"chosen": p + c, "rejected": p + r, "margin": 0.1 * i} for i, (p, c, r) in enumerate(PAIRS)])
    t = ordered(RewardTrainer(model=m, args=args(RewardConfig, center_rewards_coefficient=0.05), train_dataset=whole,
                              processing_class=tokenizer()))
    cases["reward"], batch = measure(t, m)
    cases["reward"]["params"] = {"center": 0.05}
    cases["reward"]["input_ids"] = batch["input_ids"].tolist()

    policy, reference = model(1), model(2)
    assert all(torch.equal(v, policy.state_dict()[k]) for k, v in m.state_dict().items() if k in policy.state_dict())
    logps = {}
    for who, net in (("policy", policy), ("reference", reference)):
        ids = torch.tensor(rows["input_ids"])
        out = net(input_ids=ids, attention_mask=torch.tensor(rows["attention_mask"])).logits[:, :-1].double()
        got = torch.gather(out.log_softmax(-1), 2, ids[:, 1:, None])[:, :, 0]
        logps[who] = got.tolist()
    for who, net in (("policy", policy), ("reference", reference), ("reward", model(1, LlamaForSequenceClassification,
                                                                                    num_labels=1))):
        net.save_pretrained(os.path.join(OUT, who))
        tokenizer().save_pretrained(os.path.join(OUT, who))
    with open(os.path.join(OUT, "golden.json"), "w") as f:
        json.dump({"pairs": PAIRS, "rows": rows, "logps": logps, "cases": cases}, f, indent=None, separators=(",", ":"))
    print({k: v["loss"] for k, v in cases.items()})


main()
