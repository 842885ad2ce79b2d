"""Golden values of Megatron-LM's global_aux_loss, for kernels/grad/tally_test.go.

Losses of one layer and the gradient of its router's weight, of three microbatches on three replicas with
different numbers of tokens: experts are counted over all replicas and over the microbatches so far, shares
of scores are those of a replica's own microbatch, and a loss is E*coef/(k*T*T) * sum(shares * counts) with
the T tokens of the microbatch on all replicas.

    python bench/golden/global_aux.py > kernels/grad/testdata/global_aux.json
"""
import json

import torch

ROWS, WIDTH, EXPERTS, EACH, REPLICAS, MICRO, COEF = 6, 4, 5, 2, 3, 3, 0.7


def scores(logits, kind):
    if kind == "sigmoid":
        s = torch.sigmoid(logits)
        return s / s.sum(dim=-1, keepdim=True)
    return torch.softmax(logits, dim=-1)


def run(kind, generator):
    weight = torch.randn(EXPERTS, WIDTH, generator=generator).float().double().requires_grad_()
    x = torch.randn(MICRO, REPLICAS, ROWS, WIDTH, generator=generator).float().double()
    tokens = torch.randint(2, ROWS + 1, (MICRO, REPLICAS), generator=generator)
    counted, losses = torch.zeros(EXPERTS).double(), []
    for m in range(MICRO):
        p = [scores(x[m, r, : tokens[m, r]] @ weight.T, kind) for r in range(REPLICAS)]
        for q in p:
            counted += torch.bincount(q.topk(EACH).indices.flatten(), minlength=EXPERTS)
        total = tokens[m].sum().item()
        mean = counted / (m + 1)
        losses.append([(q.sum(0) * mean).sum() * EXPERTS * COEF / (EACH * total * total) for q in p])
    sum(sum(row) for row in losses).backward()
    return {"score": kind, "x": x.flatten().tolist(), "tokens": tokens.tolist(), "weight": weight.flatten().tolist(),
            "losses": [[v.item() for v in row] for row in losses], "gradient": weight.grad.flatten().tolist()}


g = torch.Generator().manual_seed(1)
print(json.dumps({"rows": ROWS, "width": WIDTH, "experts": EXPERTS, "each": EACH, "replicas": REPLICAS,
                  "micro": MICRO, "coef": COEF, "cases": [run(k, g) for k in ("softmax", "sigmoid")]}))
