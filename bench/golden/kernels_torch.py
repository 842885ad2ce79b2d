"""Writes kernels/kernelstest/testdata/torch.json: kernel results computed by PyTorch (float64 where it matters, rounded to
the operand's dtype). Run: python bench/golden/kernels_torch.py"""

import base64
import json
import math
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(20240607)
OUT = pathlib.Path(__file__).parents[2] / "kernels/kernelstest/testdata/torch.json"
NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "i32", torch.int64: "i64"}
cases = []


def raw(t):
    if t is None:
        return None
    t = t.detach().contiguous()
    bits = t.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])
    return {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data": base64.b64encode(bits.numpy().tobytes()).decode()}


def case(op, ins, outs, tol, why, i=(), f=(), before=None):
    """before: contents of the outputs before an operation that works in place."""
    cases.append({"op": op, "in": [raw(t) for t in ins], "out": [raw(t) for t in outs], "tol": tol, "why": why, "i": list(i),
                  "f": list(f), "before": [raw(t) for t in before] if before else None})


def rand(*shape, scale=1.0):
    return torch.randn(*shape) * scale


def leaf(t):
    return t.double().requires_grad_()


def f32(*ts):
    return [t.float() for t in ts]


def i32(v):
    return torch.tensor(v, dtype=torch.int32)


def linear():
    x, w, b, dy = rand(7, 33), rand(19, 33, scale=0.2), rand(19), rand(7, 19)
    X, W, B = leaf(x), leaf(w), leaf(b)
    y = F.linear(X, W, B)
    y.backward(dy.double())
    why = "float32 sums of 33 products"
    case("linear", [x, w, b], f32(y), 1e-6, why)
    case("linear_dx", [dy, w], f32(X.grad), 1e-6, why)
    case("linear_dw", [dy, x], f32(W.grad), 1e-6, why)
    case("col_sum", [dy], f32(B.grad), 1e-6, why)


def rmsnorm():
    x, w, dy, eps = rand(6, 48), rand(48), rand(6, 48), 1e-6
    X, W = leaf(x), leaf(w)
    y = F.rms_norm(X, (48,), W, eps)
    y.backward(dy.double())
    rstd = torch.rsqrt(x.double().pow(2).mean(-1) + eps).float()
    why = "one float32 sum over 48 squares"
    case("rmsnorm", [x, w], [y.float(), rstd], 1e-6, why, f=[eps])
    case("rmsnorm_dx", [dy, x, w, rstd], f32(X.grad), 2e-6, why)
    case("rmsnorm_dw", [dy, x, rstd], f32(W.grad), 2e-6, why)


def rope():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    t, h, d = 9, 2, 16
    pos, inv = torch.arange(t) * 37, 1.0 / 10000 ** (torch.arange(0, d, 2).float() / d)
    angle = pos[:, None].float() * inv[None]
    cos, sin = angle.double().cos().float(), angle.double().sin().float()
    case("rope_table", [pos.int(), inv], [cos, sin], 1e-7, "cos and sin rounded once", f=[1.0])
    x, dy = rand(t, h, d), rand(t, h, d)
    X = leaf(x)
    full = lambda v: torch.cat([v, v], -1)[None].double()
    y, _ = apply_rotary_pos_emb(X.transpose(0, 1)[None], X.transpose(0, 1)[None], full(cos), full(sin))
    y = y[0].transpose(0, 1)
    y.backward(dy.double())
    case("rope", [x, cos, sin], f32(y), 4e-7, "two products", i=[1])
    case("rope", [dy, cos, sin], f32(X.grad), 4e-7, "two products", i=[-1])
    pairs = torch.view_as_complex(x.double().reshape(t, h, d // 2, 2)) * torch.complex(cos, sin).to(torch.complex128)[:, None]
    case("rope", [x, cos, sin], f32(torch.view_as_real(pairs).reshape(t, h, d)), 4e-7, "two products", i=[1, 1])


def attention(lq, lk, h, g, d, e, causal, window):
    t, s = sum(lq), sum(lk)
    q, k, v, do = rand(t, h, d), rand(s, g, d), rand(s, g, e), rand(t, h, e)
    Q, K, V = leaf(q), leaf(k), leaf(v)
    o, lse, a, b = [], [], 0, 0
    for n, m in zip(lq, lk):
        row, col = torch.arange(n)[:, None] + m - n, torch.arange(m)[None]
        mask = torch.ones(n, m, dtype=torch.bool)
        if causal:
            mask &= col <= row
        if window:
            mask &= col > row - window
        heads = lambda x: x.transpose(0, 1).repeat_interleave(h // x.shape[1], 0)
        qs, ks, vs = heads(Q[a:a + n]), heads(K[b:b + m]), heads(V[b:b + m])
        o.append(F.scaled_dot_product_attention(qs[None], ks[None], vs[None], attn_mask=mask)[0].transpose(0, 1))
        scores = (qs @ ks.transpose(1, 2) / math.sqrt(d)).masked_fill(~mask, -math.inf)
        lse.append(torch.logsumexp(scores, -1).transpose(0, 1))
        a, b = a + n, b + m
    o, lse = torch.cat(o), torch.cat(lse)
    o.backward(do.double())
    cu = [i32([0] + torch.tensor(l).cumsum(0).tolist()) for l in (lq, lk)]
    i, f = [int(causal), window], [1 / math.sqrt(d)]
    case("attention", [q, k, v, *cu], f32(o, lse), 2e-6, "float32 exponentials and sums", i=i, f=f)
    case("attention_bwd", [do, q, k, v, o.float(), lse.float(), *cu], f32(Q.grad, K.grad, V.grad), 5e-6,
         "float32 differences of products", i=i, f=f)


def swiglu():
    g, u, dy = rand(5, 40, scale=3), rand(5, 40), rand(5, 40)
    G, U = leaf(g), leaf(u)
    y = F.silu(G) * U
    y.backward(dy.double())
    case("swiglu", [g, u], f32(y), 1e-6, "one exponential")
    case("swiglu_bwd", [dy, g, u], f32(G.grad, U.grad), 1e-6, "one exponential")


def embed():
    w, dy, ids = rand(20, 9), rand(13, 9), torch.randint(0, 20, (13,))
    W = leaf(w)
    y = F.embedding(ids, W)
    y.backward(dy.double())
    case("embed", [ids.int(), w], f32(y), 0, "a copy")
    case("embed_dw", [dy, ids.int()], f32(W.grad), 1e-6, "float32 sums of a few rows")


def loss():
    t, d, v = 11, 24, 50
    x, w = rand(t, d), rand(v, d, scale=0.3)
    target = torch.randint(0, v, (t,))
    target[3] = -100
    weight = torch.rand(t)
    seed = torch.tensor([0.37])
    X, W = leaf(x), leaf(w)
    logits = X @ W.T
    total = (F.cross_entropy(logits, target, reduction="none", ignore_index=-100) * weight.double()).sum()
    (total * seed.double()).backward()
    lse = torch.logsumexp(logits, -1)
    hit = torch.where(target >= 0, logits.gather(1, target.clamp(min=0)[:, None])[:, 0], 0.0)
    case("linear_lse", [x, w, target.int()], [lse[:, None].float(), hit.float()], 1e-6, "float32 sums of 24 products")
    case("nll", [lse.float(), hit.float(), target.int(), weight], [total.float()[None]], 1e-6, "rounded lse and hit")
    case("lse_join", [logits.float()], f32(lse), 1e-6, "one float32 sum of exponentials")
    ins, why = [x, w, target.int(), lse.float(), weight, seed], "float32 exponentials and sums"
    case("linear_ce_dx", ins, f32(X.grad), 2e-6, why)
    case("linear_ce_dw", ins, f32(W.grad), 2e-6, why)
    case("linear_ce_bwd", ins, f32(X.grad, W.grad), 2e-6, why)


def dropout(p=0.375, draw=5):
    """SplitMix64 in Python's integers, as the contract writes it."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    x, keys = rand(3, 40), [7, -1, 2**62 + 12345]
    keep = torch.zeros(3, 40)
    for i, k in enumerate(keys):
        seed = mix((k + (draw + 1) * golden) & mask)
        for e in range(40):
            keep[i, e] = (mix((seed + e * golden) & mask) >> 40) / 2**24 >= p
    case("dropout", [x, torch.tensor(keys)], [torch.where(keep > 0, x / (1 - p), 0.0)], 1e-7, "one product", i=[draw], f=[p])


def casts():
    x = torch.cat([rand(60, scale=100), torch.tensor([0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 65519.0, 65520.0, 1e-5, 6e-8, math.inf, -math.inf, math.nan])])
    for d in (torch.bfloat16, torch.float16):
        case("cast", [x], [x.to(d)], 0, "rounded to nearest even")
        case("cast", [x.to(d)], [x.to(d).float()], 0, "exact")


def optimizers():
    n, lr, decay, steps = 45, 0.02, 0.1, 3
    start, grads = rand(n), [rand(n) for _ in range(steps)]
    for name in ("adamw", "sgd"):
        p = start.double().requires_grad_()
        adam = torch.optim.AdamW([p], lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=decay)
        opt = adam if name == "adamw" else torch.optim.SGD([p], lr=lr, momentum=0.9, weight_decay=decay)
        def state():
            s = opt.state[p]
            m = [s["exp_avg"], s["exp_avg_sq"]] if name == "adamw" else [s["momentum_buffer"]]
            return f32(p, *[x.clone() for x in m])
        for g in grads:
            before = state() if opt.state[p] else None
            p.grad = g.double() * 0.5
            opt.step()
        hyper = torch.tensor([lr, 0.9, 0.95, 1e-8, decay, 1 - 0.9**steps, 1 - 0.95**steps], dtype=torch.float64)
        clip = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
        case(name, [grads[-1], hyper, clip], state(), 5e-7, "a few float32 operations", before=before)
    p = torch.zeros(n, requires_grad=True)
    p.grad = grads[0].clone()
    norm = torch.nn.utils.clip_grad_norm_([p], 1.5)
    parts = (grads[0].double() ** 2).sum()[None]
    factor = 1.5 / (grads[0].double().norm() + 1e-6)
    assert abs(factor - (p.grad / grads[0])[0]) < 1e-6 and norm > 1.5
    print("actors/core/commit_test.go:", parts.item(), parts.sqrt().item(), factor.item())
    case("sum_squares", [grads[0]], [parts], 1e-12, "float64")


def vision():
    x, w, b, dy = rand(7, 33), rand(33), rand(33), rand(7, 33)
    X, W, B = leaf(x), leaf(w), leaf(b)
    y = F.layer_norm(X, (33,), W, B, 1e-6)
    y.backward(dy.double())
    mean, var = x.double().mean(-1), x.double().var(-1, unbiased=False)
    rstd = (var + 1e-6).rsqrt()
    why = "two float32 sums over 33"
    case("layernorm", [x, w, b], f32(y, mean, rstd), 1e-6, why, f=[1e-6])
    case("layernorm_dx", [dy, x, w, mean.float(), rstd.float()], f32(X.grad), 1e-6, why)
    case("layernorm_dw", [dy, x, mean.float(), rstd.float()], f32(W.grad), 1e-6, why)
    fs = [F.gelu, lambda v: F.gelu(v, approximate="tanh"), lambda v: v * torch.sigmoid(1.702 * v), F.silu, F.relu]
    for kind, f in enumerate(fs):
        v, g = rand(130, scale=3.0), rand(130)
        V = leaf(v)
        y = f(V)
        y.backward(g.double())
        case("act", [v], f32(y), 1e-6, "an exponential and a quotient", i=[kind])
        case("act_bwd", [g, v], f32(V.grad), 3e-6, "an exponential and a quotient", i=[kind])
    idx = [3, 0, 3, 5, 1, 3]
    t, g = rand(6, 5), rand(6, 5)
    T = leaf(t)
    y = T[torch.tensor(idx)]
    y.backward(g.double())
    case("take", [t, i32(idx)], f32(y), 0, "a copy")
    case("take_bwd", [g, i32(idx)], f32(T.grad), 1e-6, "float32 sums of 3 rows")

def masked(blocks, video):
    """SDPA with a mask of tiles of 5 rows, of a window in three dimensions, or both; two packed sequences, the first query unseen."""
    lq, h, g, d, tile = [11, 13], 4, 2, 8, 5
    t = sum(lq)
    q, k, v, do = rand(t, h, d), rand(t, g, d), rand(t, g, d), rand(t, h, d)
    mask, extra = torch.ones(t, t, dtype=torch.bool), [None] * 4
    for a, b in ((0, 11), (11, 24)):
        mask[a:b, :a] = mask[a:b, b:] = False
    if blocks:
        n = -(-t // tile)
        seen = torch.rand(n, n) < 0.5
        seen[0, 0:3] = False
        extra[0] = i32([[sum(1 << j for j in range(n) if seen[i, j])] for i in range(n)])
        mask &= seen.repeat_interleave(tile, 0).repeat_interleave(tile, 1)[:t, :t]
    if video:
        near = [1, 0, 1, 1, 0, 2]
        pos = torch.stack([torch.arange(t) // 6, torch.arange(t) // 3 % 2, torch.arange(t) % 3], 1)
        x = pos[None] - pos[:, None]
        mask &= ((x >= -torch.tensor(near[::2])) & (x <= torch.tensor(near[1::2]))).all(-1)
        extra[1:] = [pos.int(), pos.int(), i32(near)]
    Q, K, V = leaf(q), leaf(k), leaf(v)
    heads = lambda z: z.transpose(0, 1).repeat_interleave(h // z.shape[1], 0)
    some = mask.any(-1)
    o = F.scaled_dot_product_attention(heads(Q)[None], heads(K)[None], heads(V)[None], attn_mask=mask)[0].transpose(0, 1)
    o = torch.where(some[:, None, None], o, 0.0)
    scores = (heads(Q) @ heads(K).transpose(1, 2) / math.sqrt(d)).masked_fill(~mask, -math.inf)
    lse = torch.logsumexp(scores, -1).transpose(0, 1)
    o.backward(do.double())
    grads = [torch.nan_to_num(z.grad) for z in (Q, K, V)]
    assert all(torch.equal(z, y.grad) for z, y in zip(grads, (Q, K, V)))
    cu, i, f = [i32([0, 11, 24])] * 2, [0, 0, tile if blocks else 0], [1 / math.sqrt(d)]
    case("attention", [q, k, v, *cu, *extra], f32(o, lse), 2e-6, "float32 exponentials and sums", i=i, f=f)
    case("attention_bwd", [do, q, k, v, o.float(), lse.float(), *cu, *extra], f32(*grads), 5e-6, "float32 differences of products", i=i, f=f)


def grouped():
    """Rows 2:16 of 18 in groups of 3, 0, 1 and 10; the others belong to none."""
    rows, n, k, before = [3, 0, 1, 10], 13, 29, 2
    t = before + sum(rows) + 2
    x, w, dy = rand(t, k), rand(len(rows), n, k, scale=0.2), rand(t, n)
    X, W = leaf(x), leaf(w)
    out, at = [torch.zeros(before, n, dtype=torch.float64)], before
    for g, m in enumerate(rows):
        out.append(F.linear(X[at:at + m], W[g]))
        at += m
    y = torch.cat(out + [torch.zeros(t - at, n, dtype=torch.float64)])
    y.backward(dy.double())
    off, why = i32([before] + (before + torch.tensor(rows).cumsum(0)).tolist()), "float32 sums of 29 products"
    case("grouped_linear", [x, w, off], f32(y), 1e-6, why)
    case("grouped_linear_dx", [dy, w, off], f32(X.grad), 1e-6, why)
    case("grouped_linear_dw", [dy, x, off], f32(W.grad), 1e-6, why)
    half = torch.rand(W.shape)
    case("grouped_linear_dw", [dy, x, off], [(W.grad + half).float()], 1e-6, why, i=[1], before=[half])


linear(), rmsnorm(), rope(), swiglu(), embed(), loss(), dropout(), casts(), optimizers()
attention([5, 9], [5, 9], 4, 2, 16, 16, True, 0)
attention([3, 4], [8, 4], 2, 1, 8, 12, True, 0)
attention([12], [12], 2, 2, 8, 8, True, 5)
attention([6], [10], 3, 3, 8, 8, False, 0)
vision()
grouped()
masked(True, False), masked(False, True), masked(True, True)


def caps():
    """Soft caps of scores and of logits (transformers' Gemma2Attention and Gemma2ForCausalLM), and Gemma2RMSNorm."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
    t, h, g, d, scale, most = 14, 4, 2, 16, 0.4, 2.0
    q, k, v, do = rand(t, h, d), rand(t, g, d), rand(t, g, d), rand(t, h, d)
    Q, K, V = leaf(q), leaf(k), leaf(v)
    heads = lambda x: x.transpose(0, 1).repeat_interleave(h // x.shape[1], 0)
    row, col = torch.arange(t)[:, None], torch.arange(t)[None]
    seen = (col <= row) & (col > row - 5)
    scores = torch.tanh(heads(Q) @ heads(K).transpose(1, 2) * scale / most) * most
    scores = scores.masked_fill(~seen, -math.inf)
    o, lse = (scores.softmax(-1) @ heads(V)).transpose(0, 1), torch.logsumexp(scores, -1).transpose(0, 1)
    o.backward(do.double())
    cu, i, f, why = [i32([0, t])] * 2, [1, 5], [scale, most], "float32 exponentials and sums; an ulp of the cap"
    case("attention", [q, k, v, *cu], f32(o, lse), 2e-6, why, i=i, f=f)
    case("attention_bwd", [do, q, k, v, o.float(), lse.float(), *cu], f32(Q.grad, K.grad, V.grad), 5e-6, why, i=i, f=f)

    t, d, v, most = 11, 24, 50, 1.5
    x, w = rand(t, d), rand(v, d, scale=0.3)
    target, weight, seed = torch.randint(0, v, (t,)), torch.rand(t), torch.tensor([0.37])
    target[3] = -100
    X, W = leaf(x), leaf(w)
    logits = torch.tanh(X @ W.T / most) * most
    total = (F.cross_entropy(logits, target, reduction="none", ignore_index=-100) * weight.double()).sum()
    (total * seed.double()).backward()
    lse = torch.logsumexp(logits, -1)
    hit = torch.where(target >= 0, logits.gather(1, target.clamp(min=0)[:, None])[:, 0], 0.0)
    case("linear_lse", [x, w, target.int()], [lse[:, None].float(), hit.float()], 1e-6, why, f=[most])
    case("linear_ce_bwd", [x, w, target.int(), lse.float(), weight, seed], f32(X.grad, W.grad), 3e-6, why, f=[most])

    norm, x, dy = Gemma2RMSNorm(48, 1e-6).double(), rand(6, 48), rand(6, 48)
    w = rand(48)
    with torch.no_grad():
        norm.weight.copy_(w)
    X = x.float().requires_grad_()  # the module computes in float32
    y = norm(X)
    y.backward(dy)
    rstd, why = torch.rsqrt(x.double().pow(2).mean(-1) + 1e-6).float(), "both sides in float32"
    case("rmsnorm", [x, w], [y.float(), rstd], 1e-6, why, f=[1e-6, 1])
    case("rmsnorm_dx", [dy, x, w, rstd], [X.grad.float()], 3e-6, why, f=[0, 1])


caps()
OUT.parent.mkdir(parents=True, exist_ok=True)
OUT.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
print(f"{len(cases)} cases, {OUT.stat().st_size} bytes")
