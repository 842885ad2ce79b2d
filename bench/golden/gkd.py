"""Generalised divergences as TRL computes them, with their gradients: kernels/objective/testdata/gkd.json.

    /work/venv/bin/python bench/golden/gkd.py kernels/objective/testdata/gkd.json
"""
import json
import os
import sys

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import torch
from trl.experimental.gkd import GKDTrainer

torch.manual_seed(5)
N, V = 5, 11
student, teacher = torch.randn(N, V) * 2, torch.randn(N, V) * 2
labels = torch.tensor([[3, -100, 4, 1, 0]])
cases = []
for beta in (0.0, 0.3, 0.5, 1.0):
    z = student.clone().requires_grad_()
    loss = GKDTrainer.generalized_jsd_loss(z[None], teacher[None], labels=labels, beta=beta, num_items_in_batch=4)
    loss.backward()
    cases.append({"mix": beta, "loss": loss.item(), "gradient": z.grad.tolist()})
with open(sys.argv[1], "w") as f:
    json.dump({"student": student.tolist(), "teacher": teacher.tolist(), "targets": labels[0].tolist(), "cases": cases},
              f, separators=(",", ":"))
print([(c["mix"], c["loss"]) for c in cases])
