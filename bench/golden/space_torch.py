"""Results of PyTorch for operations on [n, s…, c]: convolutions and transposed ones on random shapes, norms, pools and resizes,
computed in float64 and rounded to float32. Without arguments it writes kernels/kernelstest/testdata/space.json, a sample;
with a number it prints as many cases of each kind to stdout, for go test -run TestTorch -long of kernels/cpu, ref and cuda.
Run: python bench/golden/space_torch.py [COUNT]"""

import base64
import json
import pathlib
import random
import sys

import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).parents[2] / "kernels/kernelstest/testdata/space.json"
CONV = [F.conv1d, F.conv2d, F.conv3d]
TRANSPOSED = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]
WHY = "float32 sums of at most some thousand products"


def raw(t):
    if t is None:
        return None
    t = t.detach().float().contiguous()
    return {"dtype": "f32", "shape": list(t.shape), "data": base64.b64encode(t.numpy().tobytes()).decode()}


def last(t):
    """Channels last."""
    return None if t is None else t.permute(0, *range(2, t.dim()), 1)


def case(op, ins, outs, tol, i=(), f=()):
    return {"op": op, "in": [raw(t) for t in ins], "out": [raw(t) for t in outs], "tol": tol, "why": WHY, "i": list(i), "f": list(f)}


def window(stride, dilation=1, before=0, after=0, size=0):
    return size << 48 | stride << 36 | dilation << 24 | before + 2047 << 12 | after + 2047


def leaf(t):
    return t.double().requires_grad_()


def geometry(r, rank, small):
    most = 6 if small else [60, 14, 8][rank - 1]
    size = [r.randint(1, most) for _ in range(rank)]
    kernel = [r.randint(1, 4 if rank < 3 else 3) for _ in range(rank)]
    stride, dilation = [r.randint(1, 3) for _ in range(rank)], [r.choice([1, 1, 2]) for _ in range(rank)]
    pads = [(r.randint(0, 3), r.randint(0, 3)) for _ in range(rank)]
    plain = not small and r.random() < 0.25  # what a backend may do by other sums
    if plain:
        kernel, stride, dilation = [r.randint(1, 3)] * (rank - 2) + [3] * min(rank, 2), [1] * rank, [1] * rank
    for a in range(rank):  # at least one output
        reach = (kernel[a] - 1) * dilation[a] + 1
        size[a] = max(size[a], reach - sum(pads[a]))
    groups = r.choice([1, 1, 2, 3])
    each, outs = r.randint(1, 3 if small else 20), r.randint(1, 3 if small else 20)
    if plain:
        groups, each, outs = 1, r.randint(16, 40), r.randint(16, 40)
    elif r.random() < 0.2:  # depthwise
        groups, each, outs = r.randint(1, 6 if small else 40), 1, r.choice([1, 1, 2])
    return size, kernel, stride, dilation, pads, groups, each, outs


def conv(r, rank, small):
    size, kernel, stride, dilation, pads, groups, each, outs = geometry(r, rank, small)
    n = 0 if r.random() < 0.05 else r.randint(1, 2)
    x, w, b = torch.randn(n, groups * each, *size), torch.randn(groups * outs, each, *kernel) * 0.3, torch.randn(groups * outs)
    X, W, B = leaf(x), leaf(w), leaf(b)
    flat = [p for pair in reversed(pads) for p in pair]
    y = CONV[rank - 1](F.pad(X, flat), W, B, stride=stride, dilation=dilation, groups=groups)
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    wins = [window(stride[a], dilation[a], *pads[a]) for a in range(rank)]
    dw = W.grad if W.grad is not None else torch.zeros_like(w)
    return [case("conv", [last(x), w, b], [last(y)], 1e-5, [0] + wins), case("conv_dx", [last(dy), w], [last(X.grad)], 1e-5, [0] + wins),
            case("conv_dw", [last(dy), last(x)], [dw], 1e-5, [0] + wins),
            case("col_sum", [last(dy).reshape(-1, dy.shape[1])], [dy.double().transpose(0, 1).reshape(dy.shape[1], -1).sum(1)], 1e-5)]


def transposed(r, rank, small):
    _, kernel, stride, dilation, _, groups, each, outs = geometry(r, rank, small)
    size = [r.randint(1, 5 if small else [30, 8, 5][rank - 1]) for _ in range(rank)]
    pad = [r.randint(0, (kernel[a] - 1) * dilation[a]) for a in range(rank)]
    rest = [r.randint(0, stride[a] - 1) for a in range(rank)]
    for a in range(rank):  # at least one output
        while (size[a] - 1) * stride[a] + (kernel[a] - 1) * dilation[a] + 1 - 2 * pad[a] + rest[a] < 1:
            size[a] += 1
    n = r.randint(1, 2)
    x, w, b = torch.randn(n, groups * each, *size), torch.randn(groups * each, outs, *kernel) * 0.3, torch.randn(groups * outs)
    X, W, B = leaf(x), leaf(w), leaf(b)
    y = TRANSPOSED[rank - 1](X, W, B, stride=stride, dilation=dilation, groups=groups, padding=pad, output_padding=rest)
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    wins = [0] + [window(stride[a], dilation[a], pad[a], pad[a]) for a in range(rank)]
    return [case("conv_dx", [last(x), w, b], [last(y)], 1e-5, wins), case("conv", [last(dy), w], [last(X.grad)], 1e-5, wins),
            case("conv_dw", [last(x), last(dy)], [W.grad], 1e-5, wins)]


def norm(r, small):
    groups, each, n = r.randint(1, 4), r.randint(1, 3 if small else 10), r.randint(1, 3)
    x = torch.randn(n, groups * each, r.randint(3, 6), r.randint(3, 5)) + 0.5
    w, b = torch.randn(groups * each), torch.randn(groups * each)
    X, W, B = leaf(x), leaf(w), leaf(b)
    dy = torch.randn(x.shape)
    whole = r.random() < 0.5  # batch norm: of one sample, with a group for each channel
    y = F.batch_norm(X, None, None, W, B, training=True, eps=1e-3) if whole else F.group_norm(X, groups, W, B, eps=1e-3)
    y.backward(dy.double())

    def seen(t):
        t = last(t)
        return t.reshape(1, -1, t.shape[-1]) if whole else t

    v = x.double().transpose(0, 1).reshape(1, groups * each, -1) if whole else x.double().reshape(n, groups, -1)
    mean, rstd = v.mean(2).float(), torch.rsqrt(v.var(2, unbiased=False) + 1e-3).float()
    return [case("group_norm", [seen(x), w, b], [seen(y), rstd, mean], 3e-6, f=[1e-3]),
            case("group_norm_dx", [seen(dy), seen(x), w, rstd, mean], [seen(X.grad)], 3e-5, f=[1e-3]),
            case("group_norm_dw", [seen(dy), seen(x), rstd, mean], [W.grad], 1e-5)]


def pool(r, small):
    kernel, stride = [r.randint(1, 3) for _ in range(2)], [r.randint(1, 3) for _ in range(2)]
    pad = [r.randint(0, k // 2) for k in kernel]
    x = torch.randn(r.randint(1, 2), r.randint(1, 4 if small else 30), r.randint(3, 7), r.randint(3, 7))
    kind = r.randint(0, 2)
    X = leaf(x)
    y = F.max_pool2d(X, kernel, stride, pad) if kind == 0 else F.avg_pool2d(X, kernel, stride, pad, count_include_pad=kind == 1)
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    i = [kind] + [window(stride[a], 1, pad[a], pad[a], kernel[a]) for a in range(2)]
    return [case("pool", [last(x)], [last(y)], 1e-6, i), case("pool_bwd", [last(dy)] + ([last(x)] if kind == 0 else []), [last(X.grad)], 2e-6, i)]


def resize(r, small):
    x = torch.randn(r.randint(1, 2), r.randint(1, 4), r.randint(1, 6), r.randint(1, 6))
    kind, size = r.randint(0, 1), [r.randint(1, 12), r.randint(1, 12)]
    X = leaf(x)
    y = F.interpolate(X, size=size, mode="nearest") if kind == 0 else F.interpolate(X, size=size, mode="bilinear", align_corners=False)
    dy = torch.randn(y.shape)
    y.backward(dy.double())
    return [case("resize", [last(x)], [last(y)], 2e-6, [kind]), case("resize_bwd", [last(dy)], [last(X.grad)], 2e-6, [kind])]


def make(count, small, seed):
    r = random.Random(seed)
    torch.manual_seed(seed)
    cases = []
    for k in range(count):
        for rank in (1, 2, 3):
            cases += conv(r, rank, small)
        cases += transposed(r, 1 if k % 2 == 0 else r.randint(2, 3), small)
        cases += norm(r, small) + pool(r, small) + resize(r, small)
    return cases


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        for c in make(int(sys.argv[1]), False, 33):
            print(json.dumps(c))
    else:
        OUT.write_text(json.dumps(make(6, True, 7)))
