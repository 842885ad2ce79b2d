"""Golden data of stages/features: what pytorch-fid's Inception v3 and LPIPS with VGG 16 make of images.

    pip install torch torchvision pytorch-fid lpips
    python bench/golden/features.py stages/features/testdata

Weights are not kept, but made of their names by both sides (splitmix64): see weights below and made in the test.
"""
import json
import sys

import lpips
import numpy as np
import torch
from pytorch_fid import inception


def numbers(name, n):
    """n numbers from -1 to 1 that follow from a name."""
    h = np.uint64(0xCBF29CE484222325)
    with np.errstate(over="ignore"):
        for b in name.encode():
            h = (h ^ np.uint64(b)) * np.uint64(0x100000001B3)
        z = h + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32)


def weights(name, shape):
    u = numbers(name, int(np.prod(shape))).reshape(shape)
    if name.startswith("lin"):
        u = np.abs(u)
    elif len(shape) == 4:
        u = u * np.float32(np.sqrt(6 / np.prod(shape[1:])))
    elif name.endswith("running_var") or name.endswith("bn.weight"):
        u = 1 + np.float32(0.2) * u
    else:
        u = np.float32(0.1) * u
    return torch.from_numpy(u.astype(np.float32))


def fill(module, rename=lambda name: name):
    state = module.state_dict()
    for name, t in state.items():
        if t.dtype.is_floating_point and "scaling_layer" not in name:
            t.copy_(weights(rename(name), tuple(t.shape)))
    module.eval()


def fid():
    original = inception.load_state_dict_from_url
    inception.load_state_dict_from_url = lambda *a, **k: None
    load = torch.nn.Module.load_state_dict
    torch.nn.Module.load_state_dict = lambda self, state, *a, **k: None if state is None else load(self, state, *a, **k)
    net = inception.fid_inception_v3()
    torch.nn.Module.load_state_dict, inception.load_state_dict_from_url = load, original
    fill(net)
    blocks = [net.Conv2d_1a_3x3, net.Conv2d_2a_3x3, net.Conv2d_2b_3x3, torch.nn.MaxPool2d(3, 2), net.Conv2d_3b_1x1,
              net.Conv2d_4a_3x3, torch.nn.MaxPool2d(3, 2), net.Mixed_5b, net.Mixed_5c, net.Mixed_5d, net.Mixed_6a,
              net.Mixed_6b, net.Mixed_6c, net.Mixed_6d, net.Mixed_6e, net.Mixed_7a, net.Mixed_7b, net.Mixed_7c,
              torch.nn.AdaptiveAvgPool2d(1)]
    x = torch.from_numpy(numbers("image", 3 * 40 * 52).reshape(1, 40, 52, 3)).permute(0, 3, 1, 2).double()
    net.double()
    with torch.no_grad():
        x = torch.nn.functional.interpolate(x, size=(299, 299), mode="bilinear", align_corners=False)
        for b in blocks:
            x = b(x)
    return x.flatten().tolist()


def distance():
    net = lpips.LPIPS(pretrained=False, net="vgg", pnet_rand=True, verbose=False)

    def rename(name):
        if name.startswith("net.slice"):
            return "features." + name.split(".", 2)[2]
        if name.startswith("lins."):  # another name of the same weights
            return "lin" + name.removeprefix("lins.")
        return name

    fill(net, rename)
    net.double()
    n = 2 * 32 * 32 * 3
    ours = torch.from_numpy(numbers("ours", n).reshape(2, 32, 32, 3)).permute(0, 3, 1, 2).double().requires_grad_()
    theirs = torch.from_numpy(numbers("theirs", n).reshape(2, 32, 32, 3)).permute(0, 3, 1, 2).double()
    d = net(ours, theirs).flatten()
    (d * torch.tensor([1.0, 0.5])).sum().backward()
    bare = lpips.LPIPS(pretrained=False, net="vgg", pnet_rand=True, verbose=False, lpips=False)
    fill(bare, rename)
    with torch.no_grad():
        plain = bare.double()(ours.detach(), theirs).flatten()
    return {"each": d.tolist(), "plain": plain.tolist(),
            "gradient": ours.grad.permute(0, 2, 3, 1)[:, ::4, ::4].flatten().tolist()}


def statistics():
    """The distance of pytorch-fid, and torchmetrics' kernel distance by its formula, of two sets of vectors."""
    from pytorch_fid.fid_score import calculate_frechet_distance
    a = numbers("set a", 60 * 12).reshape(60, 12).astype(np.float64)
    b = (numbers("set b", 50 * 12).reshape(50, 12) * 0.8 + 0.1).astype(np.float64)
    frechet = calculate_frechet_distance(a.mean(0), np.cov(a, rowvar=False), b.mean(0), np.cov(b, rowvar=False))
    few = a[:8]
    low = calculate_frechet_distance(few.mean(0), np.cov(few, rowvar=False), b.mean(0), np.cov(b, rowvar=False))

    def kernel(x, y):
        return (x @ y.T / x.shape[1] + 1) ** 3
    m, n = len(a), len(b)
    xx, yy, xy = kernel(a, a), kernel(b, b), kernel(a, b)
    mmd = (xx.sum() - np.trace(xx)) / (m * (m - 1)) + (yy.sum() - np.trace(yy)) / (n * (n - 1)) - 2 * xy.mean()

    def radii(x, k):
        d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
        return np.sort(d, axis=1)[:, k]
    between = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
    precision = float((between <= radii(b, 3)[None]).any(1).mean())
    recall = float((between <= radii(a, 3)[:, None]).any(0).mean())
    return {"frechet": float(frechet), "few": float(low), "kernel": float(mmd), "precision": precision,
            "recall": recall}


def main():
    torch.set_num_threads(2)
    out = {"inception": [round(v, 8) for v in fid()], "lpips": distance(), "statistics": statistics()}
    with open(sys.argv[1] + "/features.json", "w") as f:
        json.dump(out, f)


main()
