"""Golden data of the losses that indexers of sparse attention learn by, which transformers does not have:
actors/host/testdata/indexer/<case>.safetensors and .json, for the models of stages/family/testdata/<case>.

The loss is that of DeepSeek-V3.2-Exp's report, equations 3 and 4: at each layer with an indexer, the Kullback-Leibler
divergence from the mean over heads of attention's softmax, which gets no gradient, to the softmax of the indexer's
scores, on the mean over queries; in the stage "warmup" attention is dense and everything but indexers is frozen, in
the stage "sparse" both distributions are over the chosen keys. What an indexer reads gets no gradient either.

Run from the repository's root.
"""

import importlib
import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import family_golden as base
import family_layers

OUT = pathlib.Path("actors/host/testdata/indexer")
CASES = {"deepseek-v3.2": "deepseek_v32", "glm5": "glm_moe_dsa"}
COEF, STEPS = 0.5, 8


class Trained(family_layers.Case):
    """A case whose model has the weights that are committed, and whose indexers record what the loss needs."""

    def __init__(self, name, dense):
        super().__init__(name)
        self.dense, self.losses = dense, []
        weights = load_file(base.OUT / name / "model.safetensors")
        assert all(torch.equal(weights[k], p) for k, p in self.model.named_parameters())
        self.code = importlib.import_module(f"transformers.models.{CASES[name]}.modeling_{CASES[name]}")
        for layer in self.model.model.layers:
            if layer.self_attn.indexer is not None:
                layer.self_attn.indexer.forward = self.indexer(layer.self_attn.indexer)
        self.code.eager_attention_forward = self.attention
        for name, p in self.model.named_parameters():
            p.requires_grad_(not dense or ".indexer." in name)

    def indexer(self, x):
        def forward(hidden, latent, angles, mask, *_, **__):
            hidden, latent = hidden.detach(), latent.detach()
            split = [x.qk_rope_head_dim, x.head_dim - x.qk_rope_head_dim]
            q = x.wq_b(latent).view(*latent.shape[:2], x.n_heads, x.head_dim).split(split, -1)
            k = x.k_norm(x.wk(hidden)).unsqueeze(2).split(split, -1)
            turn = getattr(self.code, "apply_rotary_pos_emb", None) or self.code.apply_rotary_pos_emb_interleave
            a, b = turn(q[0], k[0], *angles, unsqueeze_dim=2)
            q, k = torch.cat([a, q[1]], -1), torch.cat([b, k[1]], -1).squeeze(2)
            scores = F.relu(torch.einsum("bshd,btd->bsht", q, k) * x.softmax_scale)
            scores = torch.einsum("bsh,bsht->bst", x.weights_proj(hidden) * x.n_heads**-0.5, scores)
            self.scores, self.visible = scores, mask == 0
            n = scores.shape[-1] if self.dense else min(x.index_topk, scores.shape[-1])
            return scores.masked_fill(~self.visible, float("-inf")).topk(n, -1).indices.int()
        return forward

    def attention(self, module, query, key, value, mask, scaling, **_):
        weights = (query @ key.transpose(2, 3) * scaling + mask).softmax(-1)
        if module.indexer is not None:
            support = self.visible & (mask[:, 0] == 0)
            log = self.scores.masked_fill(~support, float("-inf")).log_softmax(-1).masked_fill(~support, 0)
            p = weights.detach().mean(1)
            self.losses.append((torch.special.xlogy(p, p) - p * log).sum(-1).mean())
        return (weights @ value).transpose(1, 2).contiguous(), weights

    def loss(self):
        self.losses = []
        loss, logits = super().loss()
        return loss + COEF * sum(self.losses), logits


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        facts, tensors = dict(coef=COEF, versions=dict(torch=torch.__version__)), {}
        for stage in ("warmup", "sparse"):
            case = Trained(name, stage == "warmup")
            loss, _ = case.loss()
            facts[stage] = dict(loss=loss.item(), indexers=[x.item() for x in case.losses])
            loss.backward()
            tensors |= {f"{stage}.{k}": p.grad.clone() for k, p in case.model.named_parameters() if ".indexer." in k}
            facts[stage]["curve"] = curve(case)
        save_file(tensors, OUT / f"{name}.safetensors")
        (OUT / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
        print(name, facts["warmup"]["indexers"], facts["sparse"]["indexers"])


def curve(case):
    """Losses before each step of AdamW, with the settings of family_golden.py."""
    params = {k: p for k, p in case.model.named_parameters() if p.requires_grad}
    groups = [dict(params=[p for k, p in params.items() if p.dim() > 1], weight_decay=base.DECAY),
              dict(params=[p for k, p in params.items() if p.dim() <= 1], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, foreach=False, fused=False, **base.ADAMW)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = case.loss()[0]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params.values(), base.CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    main()
