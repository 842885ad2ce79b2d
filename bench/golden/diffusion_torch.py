"""Writes kernels/kernelstest/testdata/diffusion.json: results of PyTorch and diffusers for modulation, gates, losses of numbers,
features of times, activations and attention with a bias, computed in float64 where it matters and rounded to float32.
Run: python bench/golden/diffusion_torch.py"""

import base64
import json
import pathlib

import torch
import torch.nn.functional as F
from diffusers.models.embeddings import get_timestep_embedding

OUT = pathlib.Path(__file__).parents[2] / "kernels/kernelstest/testdata/diffusion.json"
torch.manual_seed(11)
cases = []


def raw(t):
    if t is None:
        return None
    t = t.detach().contiguous()
    t = t if t.dtype == torch.int32 else t.float()
    return {"dtype": "i32" if t.dtype == torch.int32 else "f32", "shape": list(t.shape), "data": base64.b64encode(t.numpy().tobytes()).decode()}


def case(op, ins, outs, tol, i=(), f=()):
    cases.append({"op": op, "in": [raw(t) for t in ins], "out": [raw(t) for t in outs], "tol": tol, "why": "float32 sums of some dozen terms",
                  "i": list(i), "f": list(f)})


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float32).double().requires_grad_()


def modulate():
    """Three samples of four tokens, with modulations in another order; as a DiT's block has them."""
    at = torch.tensor([2, 0, 1], dtype=torch.int32)
    for kind in (0, 1, 2):
        x, s, b, dy = leaf(3, 4, 10), leaf(3, 10), leaf(3, 10), torch.randn(3, 4, 10)
        mean, rstd = None, None
        z = x
        if kind == 1:
            z, mean = F.layer_norm(x, (10,), eps=1e-6), x.mean(-1)
            rstd = torch.rsqrt(x.var(-1, unbiased=False) + 1e-6)
        if kind == 2:
            rstd = torch.rsqrt(x.pow(2).mean(-1) + 1e-6)
            z = x * rstd.unsqueeze(-1)
        y = z * (1 + s[at.long()].unsqueeze(1)) + b[at.long()].unsqueeze(1)
        y.backward(dy.double())
        stats = [t for t in (rstd, mean) if t is not None]
        case("modulate", [x, s, b, at], [y] + stats, 2e-6, [kind], [1e-6, 1])
        stats = [t.detach().float() for t in stats]
        case("modulate_dx", [dy, x, s, at] + stats, [x.grad], 6e-6, [kind], [1e-6, 1])
        case("modulate_dw", [dy, x, at] + stats, [s.grad, b.grad], 6e-6, [kind], [1e-6, 1])


def gate():
    x, y, g, dz = leaf(6, 5), leaf(6, 5), leaf(2, 5), torch.randn(6, 5)
    at = torch.tensor([1, 0, 0, 1, 1, 0], dtype=torch.int32)
    z = x + g[at.long()] * y
    z.backward(dz.double())
    case("gate", [y, g, at, x], [z], 1e-6)
    case("gate", [dz, g, at], [y.grad], 1e-6)
    case("modulate_dw", [dz, y, at], [g.grad], 2e-6)


def losses():
    mask, weight = (torch.rand(4, 6) > 0.3).float(), torch.tensor([0.5, 0.0, 1.5, 0.25])
    seed = torch.tensor([3.0])
    for kind, f in enumerate([lambda x, y: F.mse_loss(x, y, reduction="none"), lambda x, y: F.l1_loss(x, y, reduction="none"),
                              lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7),
                              lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
                              lambda x, y: 0.5 * ((x - y).exp() - 1 - (x - y))]):
        x, y = leaf(4, 6), torch.rand(4, 6)
        loss = (f(x, y.double()) * mask.double() * weight.double().unsqueeze(1)).sum()
        (3 * loss).backward()
        case("point_loss", [x, y, weight, mask], [loss.reshape(1)], 2e-6, [kind], [0.7])
        case("point_loss_dx", [x, y, weight, mask, seed], [x.grad], 1e-6, [kind], [0.7])


def times():
    """Frequencies are made as diffusers does, in float32."""
    t = torch.tensor([0.0, 1.0, 17.5, 999.0, 0.37])
    for flip, shift, scale, period in [(True, 0, 1, 10000), (False, 1, 1, 10000), (True, 0, 1000, 10000), (True, 0, 1, 100)]:
        half = 8
        f = torch.exp(-torch.log(torch.tensor(float(period), dtype=torch.float64)).item() * torch.arange(half, dtype=torch.float32) / (half - shift))
        y = get_timestep_embedding(t, 2 * half, flip_sin_to_cos=flip, downscale_freq_shift=shift, scale=scale, max_period=period)
        case("sinusoids", [t, f], [y], 2e-6, [int(flip)], [scale])


def activations():
    for kind, f in ((6, F.mish), (7, torch.exp)):
        x, dy = leaf(5, 7), torch.randn(5, 7)
        y = f(x)
        y.backward(dy.double())
        case("act", [x], [y], 1e-6, [kind])
        case("act_bwd", [dy, x], [x.grad], 2e-6, [kind])


def bias():
    """Two sequences of one call, of 5 and 3 tokens, with a table of distances up to 2."""
    q, k, v, table, dy = leaf(8, 2, 4), leaf(8, 2, 4), leaf(8, 2, 3), leaf(5, 2), torch.randn(8, 2, 3)
    o, lse = [], []
    for a, b in ((0, 5), (5, 8)):
        d = (torch.arange(b - a)[None, :] - torch.arange(b - a)[:, None]).clamp(-2, 2) + 2
        s = 0.5 * torch.einsum("ihd,jhd->hij", q[a:b], k[a:b]) + table[d].permute(2, 0, 1)
        o.append(torch.einsum("hij,jhe->ihe", s.softmax(-1), v[a:b]))
        lse.append(s.logsumexp(-1).t())
    o, lse = torch.cat(o), torch.cat(lse)
    o.backward(dy.double())
    cu = torch.tensor([0, 5, 8], dtype=torch.int32)
    case("attention_bias", [q, k, v, cu, cu, table], [o, lse], 3e-6, f=[0.5])
    case("attention_bias_bwd", [dy, q, k, v, o, lse, cu, cu, table], [q.grad, k.grad, v.grad, table.grad], 1e-5, f=[0.5])


for make in (modulate, gate, losses, times, activations, bias):
    make()
OUT.write_text(json.dumps(cases))
