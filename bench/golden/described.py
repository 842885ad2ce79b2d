"""Golden data of an architecture that is in no library: stages/family/testdata/reed, as family_golden.py makes those of families.

Reed's description is stages/family/testdata/reed/description.yaml; this is the same in plain PyTorch. Attention and an MLP without a gate
read the same rows side by side; two layers with a window go before one that sees everything and has no positions; heads are normed once
they have turned, and a softmax has a further logit for each head.

Run from the repository's root: python bench/golden/described.py
"""

import json

import torch
import torch.nn.functional as F
from torch import nn

import family_golden as golden
from family_modules import rotate, split_heads

golden.VOCAB = 64
FACTS = golden.SHAPE | dict(model_type="reed", vocab_size=golden.VOCAB, hidden_size=16, intermediate_size=24, head_dim=4, num_hidden_layers=4,
                            sliding_window=6, hidden_act="relu2", tie_word_embeddings=True)


class Attention(nn.Module):
    def __init__(self, c, window):
        super().__init__()
        self.dim, self.theta, self.window = c["head_dim"], c["rope_theta"], window
        wide, kv = c["num_attention_heads"] * self.dim, c["num_key_value_heads"] * self.dim
        self.q_proj, self.o_proj = nn.Linear(c["hidden_size"], wide, bias=False), nn.Linear(wide, c["hidden_size"], bias=False)
        self.k_proj, self.v_proj = nn.Linear(c["hidden_size"], kv, bias=False), nn.Linear(c["hidden_size"], kv, bias=False)
        self.q_norm, self.k_norm = (nn.LayerNorm(self.dim, c["rms_norm_eps"], bias=False) for _ in range(2))
        self.sinks = nn.Parameter(torch.zeros(c["num_attention_heads"]))

    def forward(self, x, positions, mask):
        q, k, v = (split_heads(p(x), self.dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.window:
            q, k = rotate(q, positions, self.theta), rotate(k, positions, self.theta)
            far = torch.ones(x.shape[1], x.shape[1]).tril(-self.window).bool()
            mask = mask.masked_fill(far, torch.finfo(x.dtype).min)
        q, k = self.q_norm(q), self.k_norm(k)
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / self.dim ** 0.5 + mask
        sinks = self.sinks[None, :, None, None].expand(*scores.shape[:3], 1)
        share = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        return self.o_proj((share @ v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wide = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.narrow = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.narrow(F.relu(self.wide(x)).square())


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        self.norm = nn.LayerNorm(c["hidden_size"], c["rms_norm_eps"], bias=False)
        self.self_attn, self.mlp = Attention(c, 0 if i % 3 == 2 else c["sliding_window"]), MLP(c)

    def forward(self, x, positions, mask):
        n = self.norm(x)
        return x + self.self_attn(n, positions, mask) + self.mlp(n)


class Inner(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c["num_hidden_layers"]))
        self.norm = nn.LayerNorm(c["hidden_size"], c["rms_norm_eps"], bias=False)


class Reed(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Inner(c)

    def forward(self, ids, positions, mask):
        m = self.model
        width = m.embed_tokens.embedding_dim
        x = m.embed_tokens(ids) * width ** 0.5
        for layer in m.layers:
            x = layer(x, positions, mask)
        return m.norm(x) * width ** -0.5 @ m.embed_tokens.weight.T


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    text = (golden.OUT / "reed/description.yaml").read_text()
    golden.make = lambda *_: (Reed(FACTS), lambda path: (path / "config.json").write_text(json.dumps(FACTS | dict(
        architectures=["ReedForCausalLM"], torch_dtype="float32"), indent=2) + "\n"))
    case = golden.Case("reed", "reed", {})
    case.check_packing()
    case.write(True)
    (golden.OUT / "reed/description.yaml").write_text(text)


main()
