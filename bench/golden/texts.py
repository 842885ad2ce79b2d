"""Golden data of stages/texts: tiny text encoders of transformers, what they make of captions, and every gradient.

Writes stages/texts/testdata/<case>/: config.json and model.safetensors as save_pretrained does, and golden.safetensors with
the captions (ids one behind the other, lens), hidden.K behind all layers but the last, K, last, pooled, the cotangents that the loss weighs
states and pooled rows with, and the gradient of each parameter: grad.NAME of last and pooled, tap.NAME of hidden.K and pooled. Captions run one by one, without padding; that masked padding changes nothing is asserted here. buckets.json has
T5's buckets of distances. Needs torch and transformers 5.24.0. Run from the repository's root.
"""

import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.t5.modeling_t5 import T5Attention

OUT = pathlib.Path("stages/texts/testdata")
CLIP = dict(vocab_size=42, hidden_size=12, intermediate_size=22, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=12,
            projection_dim=10, pad_token_id=1, bos_token_id=39, eos_token_id=40)
T5 = dict(vocab_size=44, d_model=14, d_kv=6, d_ff=26, num_layers=2, num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=12)
# name: class, configuration, lengths of the captions
CASES = {
    "clip": ("CLIPTextModel", dict(CLIP, num_hidden_layers=3), (5, 2, 12)),
    "clip-old": ("CLIPTextModelWithProjection", dict(CLIP, eos_token_id=2, hidden_act="gelu", layer_norm_eps=1e-3), (7, 4)),
    "clip-projected": ("CLIPTextModelWithProjection", dict(CLIP, hidden_act="gelu", num_attention_heads=4), (6, 3)),
    "t5": ("T5EncoderModel", dict(T5), (9, 1, 20)),
    "t5-gated": ("T5EncoderModel", dict(T5, feed_forward_proj="gated-gelu", relative_attention_num_buckets=32, relative_attention_max_distance=128,
                                        tie_word_embeddings=False), (140, 4)),
    "umt5": ("UMT5EncoderModel", dict(T5, num_layers=3, relative_attention_num_buckets=7, relative_attention_max_distance=9, layer_norm_epsilon=1e-2), (11, 1, 5)),
}


def captions(name, lens, g):
    out = []
    for n in lens:
        ids = torch.randint(3, 39, (n,), generator=g)
        if name.startswith("clip"):
            ids[-1] = 40
            ids[n // 2] = 40  # the first of two ends is the one to pool at
        out.append(ids)
    return out


def forward(model, ids, mask=None):
    o = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    pooled = getattr(o, "text_embeds", None)
    return o.last_hidden_state, o.hidden_states, pooled if pooled is not None else getattr(o, "pooler_output", None)


def case(name, cls, config, lens):
    torch.manual_seed(len(name) + sum(lens))
    g = torch.Generator().manual_seed(sum(lens))
    model = getattr(transformers, cls)(getattr(transformers, "CLIPTextConfig" if "CLIP" in cls else cls.replace("EncoderModel", "Config"))(**config)).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(0, 0.3)
            if "norm" in key and key.endswith("weight"):
                p.add_(1)
    ids = captions(name, lens, g)
    runs = [forward(model, c[None]) for c in ids]
    last = torch.cat([r[0][0] for r in runs])
    hidden = [torch.cat([r[1][k][0] for r in runs]) for k in range(len(runs[0][1]))]
    longest = max(lens)
    batch = torch.stack([torch.cat([c, c.new_zeros(longest - len(c))]) for c in ids])
    padded = forward(model, batch, torch.stack([(torch.arange(longest) < n).long() for n in lens]))[0]
    for i, n in enumerate(lens):
        assert torch.allclose(padded[i, :n], runs[i][0][0], atol=2e-6), (name, i)
    out = dict(ids=torch.cat(ids).int(), lens=torch.tensor(lens).int(), last=last)
    k = config.get("num_hidden_layers", config.get("num_layers")) - 1
    out[f"hidden.{k}"] = hidden[k]
    out["cotangent"] = torch.randn(last.shape, generator=g)
    losses = {"grad": (last * out["cotangent"]).sum()}
    if runs[0][2] is not None:
        out["pooled"] = torch.cat([r[2] for r in runs])
        out["cotangent.pooled"] = torch.randn(out["pooled"].shape, generator=g)
        pooled = (out["pooled"] * out["cotangent.pooled"]).sum()
        losses = {"grad": losses["grad"] + pooled, "tap": (hidden[-2] * out["cotangent"]).sum() + pooled}
    for kind, loss in losses.items():
        if kind == "tap" and name != "clip-projected":
            continue  # one shows it
        model.zero_grad()
        loss.backward(retain_graph=True)
        for key, p in model.named_parameters():
            out[f"{kind}.{key}"] = p.grad
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    save_file({k: v.detach().clone().contiguous() for k, v in out.items()}, folder / "golden.safetensors")


def buckets():
    table = []
    for n, most in ((32, 128), (8, 12), (7, 9), (10, 20), (32, 64), (64, 140), (4, 2)):
        rel = torch.arange(-most - 3, most + 4)
        table.append(dict(Buckets=n, Distance=most, Of=T5Attention._relative_position_bucket(rel, True, n, most).tolist()))
    (OUT / "buckets.json").write_text(json.dumps(table, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name, (cls, config, lens) in CASES.items():
        case(name, cls, config, lens)
    buckets()
