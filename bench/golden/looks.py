"""Golden data of changed views: stages/policies/testdata/looks.json, by torchvision. From the repository: python bench/golden/looks.py"""

import json
import pathlib

import torch
from torchvision.transforms.v2 import functional as F

g = torch.Generator().manual_seed(5)
x = torch.rand(3, 4, 5, generator=g)
flat = lambda t: [round(v, 7) for v in (t * 2 - 1).flatten().tolist()]
part = F.resize(x[:, 1:4, 1:5], [4, 5], antialias=False)
out = dict(size=[4, 5], pixels=flat(x), brightness=[dict(by=b, pixels=flat(F.adjust_brightness(x, b))) for b in (0.7, 1.4)], contrast=[dict(by=b, pixels=flat(F.adjust_contrast(x, b))) for b in (0.6, 1.3)],
           saturation=[dict(by=b, pixels=flat(F.adjust_saturation(x, b))) for b in (0.5, 1.6)], crop=dict(share=0.8, top=0.7, left=0.99, pixels=flat(part)))
pathlib.Path("stages/policies/testdata/looks.json").write_text(json.dumps(out) + "\n")
