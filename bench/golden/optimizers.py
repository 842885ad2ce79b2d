"""Writes stages/optim/testdata/optimizers.json: weights after 200 steps of PyTorch's optimizers on given gradients, with weight decay: AdamW and SGD
of torch.optim, and Lion of lion-pytorch. Run from the repository's root, with torch and lion-pytorch: python bench/golden/optimizers.py
"""

import json
import pathlib

import torch
from lion_pytorch import Lion

N, STEPS = 6, 200


def main():
    g = torch.Generator().manual_seed(5)
    start = torch.randn(N, generator=g)
    grads = [torch.randn(N, generator=g) * (0.2 + i / STEPS) + 0.3 * start.sign() for i in range(STEPS)]
    cases = {
        "adamw": (torch.optim.AdamW, dict(lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)),
        "sgd": (torch.optim.SGD, dict(lr=0.01, momentum=0.8, weight_decay=0.1)),
        "lion": (Lion, dict(lr=0.002, betas=(0.9, 0.99), weight_decay=0.1)),
    }
    out = dict(start=start.tolist(), grads=[x.tolist() for x in grads], cases={})
    for name, (kind, args) in cases.items():
        p = torch.nn.Parameter(start.clone())
        opt = kind([p], **args)
        for x in grads:
            p.grad = x.clone()
            opt.step()
        out["cases"][name] = dict(args={k: list(v) if isinstance(v, tuple) else v for k, v in args.items()}, weights=p.detach().tolist())
    path = pathlib.Path("stages/optim/testdata/optimizers.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out) + "\n")


main()
