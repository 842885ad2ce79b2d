"""Decoders that transformers does not have, in plain PyTorch, written from published configurations, weight names and
papers: Qwen 1 (arXiv:2309.16609), InternLM2 (arXiv:2403.17297), MiMo (arXiv:2505.07608) and Baichuan 2 (arXiv:2309.10305).

They share one decoder; a family is its names and layouts. A forward takes token ids, positions and an additive
attention mask, all with a batch axis.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, positions, theta):
    """x [B, heads, T, D]: pairs (i, i + D/2) turned by position * theta^(-2i/D)."""
    half = x.shape[-1] // 2
    freq = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = positions[:, None, :, None].float() * freq
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attend(q, k, v, mask):
    """q [B, H, T, D], k and v [B, KV, T, D]; returns [B, T, H * D]."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def split_heads(x, dim):
    return x.unflatten(-1, (-1, dim)).transpose(1, 2)


class QwenAttention(nn.Module):
    """One matrix for query, key and value, in this order."""

    def __init__(self, c):
        super().__init__()
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        size = c["num_attention_heads"] * self.dim
        self.c_attn = nn.Linear(c["hidden_size"], 3 * size)
        self.c_proj = nn.Linear(size, c["hidden_size"], bias=False)

    def forward(self, x, positions, mask):
        q, k, v = (split_heads(t, self.dim) for t in self.c_attn(x).chunk(3, -1))
        return self.c_proj(attend(rotate(q, positions, self.theta), rotate(k, positions, self.theta), v, mask))


class QwenMLP(nn.Module):
    """w2 is the gate, w1 what it lets through."""

    def __init__(self, c):
        super().__init__()
        self.w1 = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.w2 = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.c_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.c_proj(self.w1(x) * F.silu(self.w2(x)))


class InternAttention(nn.Module):
    """One matrix: for each key head its query heads, then the key, then the value."""

    def __init__(self, c):
        super().__init__()
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.wqkv = nn.Linear(c["hidden_size"], (self.heads + 2 * self.kv) * self.dim, bias=False)
        self.wo = nn.Linear(self.heads * self.dim, c["hidden_size"], bias=False)

    def forward(self, x, positions, mask):
        groups = self.heads // self.kv
        x = self.wqkv(x).unflatten(-1, (self.kv, groups + 2, self.dim))
        q = x[..., :groups, :].flatten(2, 3).transpose(1, 2)
        k, v = x[..., groups, :].transpose(1, 2), x[..., groups + 1, :].transpose(1, 2)
        return self.wo(attend(rotate(q, positions, self.theta), rotate(k, positions, self.theta), v, mask))


class InternMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1 = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.w3 = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.w2 = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MimoAttention(nn.Module):
    """Separate matrices; query, key and value have biases."""

    def __init__(self, c):
        super().__init__()
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        h, kv = c["num_attention_heads"] * self.dim, c["num_key_value_heads"] * self.dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(c["hidden_size"], n) for n in (h, kv, kv))
        self.o_proj = nn.Linear(h, c["hidden_size"], bias=False)

    def forward(self, x, positions, mask):
        q, k, v = (split_heads(p(x), self.dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attend(rotate(q, positions, self.theta), rotate(k, positions, self.theta), v, mask))


class MimoMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False) for _ in range(2))
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class BaichuanAttention(nn.Module):
    """One matrix for query, key and value, in this order; rotary embedding, or ALiBi (arXiv:2108.12409) with Bloom's slopes."""

    def __init__(self, c):
        super().__init__()
        self.dim, self.theta, heads = c["head_dim"], c["rope_theta"], c["num_attention_heads"]
        self.W_pack = nn.Linear(c["hidden_size"], 3 * heads * self.dim, bias=False)
        self.o_proj = nn.Linear(heads * self.dim, c["hidden_size"], bias=False)
        self.slopes = None
        if c.get("position_embeddings") == "alibi":  # Bloom's biases at place 1 are its slopes
            with torch.device("cpu"):
                self.slopes = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]

    def forward(self, x, positions, mask):
        q, k, v = (split_heads(t, self.dim) for t in self.W_pack(x).chunk(3, -1))
        if self.slopes is not None:
            return self.o_proj(attend(q, k, v, mask + self.slopes[None, :, None, None] * positions[:, None, None, :]))
        return self.o_proj(attend(rotate(q, positions, self.theta), rotate(k, positions, self.theta), v, mask))


class UnitHead(nn.Module):
    """Multiplies with the rows of its weight divided by their lengths."""

    def __init__(self, size, words):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, size))

    def forward(self, x):
        return F.linear(x, F.normalize(self.weight))


# The names of norm, attention, norm and MLP in a layer.
NAMES = {
    "qwen": ("ln_1", "attn", "ln_2", "mlp", QwenAttention, QwenMLP),
    "internlm2": ("attention_norm", "attention", "ffn_norm", "feed_forward", InternAttention, InternMLP),
    "mimo": ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp", MimoAttention, MimoMLP),
    "baichuan": ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp", BaichuanAttention, MimoMLP),
}


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.names = NAMES[c["model_type"]][:4]
        attention, mlp = NAMES[c["model_type"]][4:]
        parts = (RMSNorm(c["hidden_size"], c["rms_norm_eps"]), attention(c), RMSNorm(c["hidden_size"], c["rms_norm_eps"]), mlp(c))
        for name, part in zip(self.names, parts):
            self.add_module(name, part)

    def forward(self, x, positions, mask):
        norm1, attention, norm2, mlp = (getattr(self, n) for n in self.names)
        x = x + attention(norm1(x), positions, mask)
        return x + mlp(norm2(x))


class MimoMTP(Layer):
    """Joins the final hidden state of position i with the embedding of token i+1 and predicts token i+2."""

    def __init__(self, c):
        super().__init__(c)
        self.token_layernorm, self.hidden_layernorm, self.final_layernorm = (RMSNorm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(3))
        self.input_proj = nn.Linear(2 * c["hidden_size"], c["hidden_size"], bias=False)

    def forward(self, hidden, embedded, positions, mask):
        x = self.input_proj(torch.cat([self.hidden_layernorm(hidden), self.token_layernorm(embedded)], -1))
        return self.final_layernorm(super().forward(x, positions, mask))


class Decoder(nn.Module):
    """names: the embedding, the list of layers, the final norm; they lie in a module called body."""

    def __init__(self, c, body, embed, layers, norm, head):
        super().__init__()
        inner = nn.Module()
        inner.add_module(embed, nn.Embedding(c["vocab_size"], c["hidden_size"]))
        inner.add_module(layers, nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"])))
        inner.add_module(norm, RMSNorm(c["hidden_size"], c["rms_norm_eps"]))
        if c.get("num_nextn_predict_layers"):
            inner.add_module("mtp_layers", nn.ModuleList(MimoMTP(c) for _ in range(c["num_nextn_predict_layers"])))
        self.add_module(body, inner)
        self.add_module(head, UnitHead(c["hidden_size"], c["vocab_size"]) if c["model_type"] == "baichuan" else nn.Linear(c["hidden_size"], c["vocab_size"], bias=False))
        self.where = (body, embed, layers, norm, head)

    def parts(self):
        body, embed, layers, norm, head = self.where
        inner = getattr(self, body)
        return getattr(inner, embed), getattr(inner, layers), getattr(inner, norm), getattr(self, head), getattr(inner, "mtp_layers", [])

    def forward(self, ids, positions, mask, next_ids=None):
        """Returns logits, and with next_ids (the token after each position) the logits of the first MTP layer."""
        embed, layers, norm, head, mtp = self.parts()
        x = embed(ids)
        for layer in layers:
            x = layer(x, positions, mask)
        x = norm(x)
        if next_ids is None:
            return head(x)
        return head(x), head(mtp[0](x, embed(next_ids), positions, mask))


def build(c):
    """A model of family c["model_type"] with PyTorch's initial weights."""
    return Decoder(c, *{
        "qwen": ("transformer", "wte", "h", "ln_f", "lm_head"),
        "internlm2": ("model", "tok_embeddings", "layers", "norm", "output"),
        "mimo": ("model", "embed_tokens", "layers", "norm", "lm_head"),
        "baichuan": ("model", "embed_tokens", "layers", "norm", "lm_head"),
    }[c["model_type"]])
