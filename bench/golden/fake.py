"""Writes kernels/ref/testdata/fake.json: what torchao's fake quantizers make of weights, and the gradients that pass them.

Weights are in parts of 256, gradients too; rows have groups of 16 or one scale. Run from the repository's root.
"""

import json
import pathlib

import torch
from torchao.quantization.qat import IntxFakeQuantizeConfig
from torchao.quantization.qat.fake_quantizer import IntxFakeQuantizer


def main():
    torch.manual_seed(1)
    out = []
    for bits, group in ((4, 16), (8, 16), (8, 0), (4, 0)):
        w = (torch.randn(6, 48) * 64).round() / 256
        w[2], w[3, :16] = 0, 0
        dy = (torch.randn(6, 48) * 64).round() / 256
        config = IntxFakeQuantizeConfig(getattr(torch, f"int{bits}"), granularity=None if group else "per_channel", group_size=group or None)
        v = w.clone().requires_grad_()
        y = IntxFakeQuantizer(config)(v)
        y.backward(dy)
        out.append(dict(bits=bits, group=group, w=(w * 256).int().tolist(), dy=(dy * 256).int().tolist(), y=y.detach().tolist(),
                        dw=(v.grad * 256).round().int().tolist()))
    path = pathlib.Path("kernels/ref/testdata/fake.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
