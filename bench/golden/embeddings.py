"""Losses of embeddings as sentence-transformers computes them: actors/run/testdata/embeddings.

The policy of actors/run/testdata/preference embeds three queries, their positives and a negative each;
MultipleNegativesRankingLoss (scale 20, cosine) gives its value and the gradients of two parameters with either pooling, and the
texts their vectors. sentence-transformers 6.2, transformers 5, torch on a processor.

    python bench/golden/embeddings.py actors/run/testdata/preference/policy actors/run/testdata/embeddings/golden.json
    python bench/golden/embeddings.py --check DIR     # an export loads here, and AutoModel gives the same vectors

Of the export the second form prints {"text": vector, ...} for the texts.
"""
import json
import sys

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer

WATCHED = ["norm.weight", "layers.0.self_attn.q_proj.weight"]
QUERIES = ["w3 w4 w5", "w12 w13", "w20 w21 w22 w23"]
POSITIVES = ["w6 w7", "w14 w15 w16 w17 w18", "w24"]
NEGATIVES = ["w8 w9 w10 w11", "w19", "w25 w26"]


def case(path, pooling):
    t = Transformer(path)
    m = SentenceTransformer(modules=[t, Pooling(t.get_word_embedding_dimension(), pooling_mode=pooling), Normalize()], device="cpu").float()
    loss = MultipleNegativesRankingLoss(m, scale=20.0)
    value = loss([m.tokenize(x) for x in (QUERIES, POSITIVES, NEGATIVES)], None)
    value.backward()
    named = dict(t.named_parameters())
    full = {w: next(n for n in named if n.endswith("." + w) and (w != "norm.weight" or "layers" not in n)) for w in WATCHED}
    return {"loss": value.item(), "gradients": {"model." + w: named[n].grad.flatten().tolist() for w, n in full.items()},
            "vectors": {x: m.encode([x])[0].tolist() for x in QUERIES + POSITIVES + NEGATIVES}}


def check(path):
    m, a, tok = SentenceTransformer(path, device="cpu"), AutoModel.from_pretrained(path).float().eval(), AutoTokenizer.from_pretrained(path)
    out = {}
    for x in QUERIES + POSITIVES + NEGATIVES:
        v = torch.tensor(m.encode([x])[0])
        h = a(**tok([x], return_tensors="pt")).last_hidden_state[0].detach()
        own = min((torch.nn.functional.normalize(p, dim=0) - v).abs().max().item() for p in (h.mean(0), h[-1]))
        assert own < 1e-6, own
        out[x] = v.tolist()
    print(json.dumps(out))


if sys.argv[1] == "--check":
    check(sys.argv[2])
else:
    json.dump({"queries": QUERIES, "positives": POSITIVES, "negatives": NEGATIVES,
               "cases": {"mean": case(sys.argv[1], "mean"), "last": case(sys.argv[1], "lasttoken")}}, open(sys.argv[2], "w"))
