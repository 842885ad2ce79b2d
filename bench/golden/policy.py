"""Losses of policies as TRL computes them from log-probabilities: kernels/objective/testdata/policy.json.

    /work/venv/bin/python bench/golden/policy.py kernels/objective/testdata/policy.json
"""
import json
import sys
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

torch.manual_seed(1)
t = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3}, unk_token="<unk>"))
t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tok = PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
N, G, T, MOST = 8, 4, 6, 9
lengths = [6, 2, 4, 1, 5, 3, 6, 2]
mask = torch.tensor([[1 if i < n else 0 for i in range(T)] for n in lengths])
logps = -torch.rand(N, T) * 2
old = logps + (torch.rand(N, T) - 0.5) * 0.8
ref = logps + (torch.rand(N, T) - 0.5) * 0.8
rewards = torch.tensor([1.0, 0.0, 0.5, 1.0, 0.25, 0.25, 1.0, 0.0])
groups = rewards.view(-1, G)
group = (rewards - groups.mean(1).repeat_interleave(G)) / (groups.std(1).repeat_interleave(G) + 1e-4)
mean = rewards - groups.mean(1).repeat_interleave(G)
others = mean * G / (G - 1)


def model():
    d = tempfile.mkdtemp()  # the trainer reads its reference from where the model came from
    LlamaForCausalLM(LlamaConfig(vocab_size=4, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                 num_attention_heads=1, num_key_value_heads=1)).save_pretrained(d)
    return LlamaForCausalLM.from_pretrained(d)


def run(cls, conf, advantages, **own):
    args = conf(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=N, num_generations=G, report_to=[], use_cpu=True,
                bf16=False, gradient_checkpointing=False, max_completion_length=MOST, **own)
    tr = cls(model=model(), reward_funcs=lambda completions, **k: [0.0] * len(completions), args=args,
             train_dataset=Dataset.from_list([{"prompt": "a"}] * 8), processing_class=tok)
    leaf = logps.clone().requires_grad_()
    tr._get_per_token_logps_and_entropies = lambda *a, **k: (leaf, torch.zeros_like(leaf), None)
    tr.model.train()
    tr.current_gradient_accumulation_steps = 1
    inputs = {"prompt_ids": torch.full((N, 2), 3), "prompt_mask": torch.ones(N, 2, dtype=torch.long),
              "completion_ids": torch.full((N, T), 3), "completion_mask": mask, "advantages": advantages,
              "old_per_token_logps": old, "ref_per_token_logps": ref, "old_logps": (old * mask).sum(1),
              "num_items_in_batch": mask.sum()}
    loss = tr._compute_loss(tr.model, inputs)
    loss.backward()
    return {"loss": loss.item(), "gradient": leaf.grad.tolist()}


cases = []
for kind, adv, own, params in [
        ("grpo", group, {"loss_type": "grpo"}, {}), ("dr_grpo", mean, {"loss_type": "dr_grpo"}, {}),
        ("dapo", group, {"loss_type": "dapo", "epsilon_high": 0.28}, {"clip_high": 0.28}),
        ("gspo", group, {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.05, "epsilon_high": 0.07},
         {"clip_low": 0.05, "clip_high": 0.07}),
        ("cispo", group, {"loss_type": "cispo", "epsilon_high": 1.2}, {"clip_high": 1.2})]:
    for kl in (0.0, 0.1):
        cases.append({"kind": kind, "params": {"clip_low": 0.2, "clip_high": 0.2} | params | {"kl": kl},
                      "advantages": adv.tolist()} | run(GRPOTrainer, GRPOConfig, adv, beta=kl, **own))
cases.append({"kind": "rloo", "params": {"clip_low": 0.2, "clip_high": 0.2, "kl": 0.0}, "advantages": others.tolist()} |
             run(RLOOTrainer, RLOOConfig, others, beta=0.0))
with open(sys.argv[1], "w") as f:
    json.dump({"most": MOST, "group": G, "rewards": rewards.tolist(), "lengths": lengths, "logps": logps.tolist(),
               "old": old.tolist(), "ref": ref.tolist(), "cases": cases}, f, separators=(",", ":"))
print([(c["kind"], c["params"]["kl"], c["loss"]) for c in cases])
