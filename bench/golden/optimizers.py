"""Writes stages/optim/testdata/optimizers.json: weights after 200 steps of PyTorch's optimizers on given gradients, with weight decay: AdamW and SGD
of torch.optim, Lion of lion-pytorch, and torch.optim.Muon with its iteration in float32. Run from the repository's root, with torch and lion-pytorch: python bench/golden/optimizers.py
"""

import json
import pathlib

import torch
from lion_pytorch import Lion

N, STEPS = 6, 200


def muon():
    """Matrices of three shapes after 60 steps of torch.optim.Muon, whose iteration is in bfloat16: it is given float32
    here, so that what is compared is the rule."""
    from torch.optim import _muon

    def orthogonal(g, c, steps, eps):
        x = g.clone() if g.size(0) <= g.size(1) else g.T.clone()
        x /= x.norm().clamp(min=eps)
        for _ in range(steps):
            a = x @ x.T
            x = torch.addmm(x, torch.addmm(a, a, a, beta=c[1], alpha=c[2]), x, beta=c[0])
        return x if g.size(0) <= g.size(1) else x.T

    _muon._zeropower_via_newtonschulz = orthogonal
    g = torch.Generator().manual_seed(6)
    cases = []
    for shape, adjust, nesterov in (((4, 6), "match_rms_adamw", True), ((7, 3), "original", True), ((5, 5), "match_rms_adamw", False)):
        start = torch.randn(shape, generator=g)
        grads = [torch.randn(shape, generator=g) for _ in range(60)]
        p = torch.nn.Parameter(start.clone())
        opt = torch.optim.Muon([p], lr=0.02, weight_decay=0.1, momentum=0.9, nesterov=nesterov, adjust_lr_fn=adjust)
        for x in grads:
            p.grad = x.clone()
            opt.step()
        cases.append(dict(shape=list(shape), scale={"original": "spectral"}.get(adjust, "match_rms"), plain=not nesterov,
                          start=start.flatten().tolist(), grads=[[round(v, 6) for v in x.flatten().tolist()] for x in grads],
                          weights=p.detach().flatten().tolist()))
    return cases


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
    out["muon"] = muon()
    path = pathlib.Path("stages/optim/testdata/optimizers.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out) + "\n")


main()
