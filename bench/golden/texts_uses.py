"""What pipelines of diffusers make of captions: stages/texts/testdata/uses.json and qwen.json, stages/diffusion/testdata/sd3.json.

uses.json: tiny encoders whose weights are sines of their places (weights), with the tokenizers of dataset/token/testdata/encoders;
of each use the states that the pipeline's encode_prompt gives of each text, a few rows of them, and the pooled row.
sd3.json: what StableDiffusion3Pipeline makes of a text by its three encoders, and by the first two.
qwen.json: hidden_states[-1] of stages/family/testdata/qwen2.5-vl for rows of tokens, QwenImagePipeline's template and drop.
Needs diffusers 0.42.1, transformers 5.24.0 and torch, without ftfy. Run from the repository's root.
"""

import gzip
import json
import math
import pathlib
import tempfile
import zlib

import diffusers
import torch
import transformers

OUT = pathlib.Path("stages/texts/testdata")
FOLDERS = pathlib.Path("dataset/token/testdata/encoders")
TEXTS = ["a photo of a CAT", "", "The quick brown fox jumps over the lazy dog while 3 engineers watch it's what they'd said, " * 12, "Tom &amp;amp; Jerry &lt;3  two\n spaces ", "hello!"]
ROWS = (0, 1, 5, 70, -1)
CLIP = dict(vocab_size=1700, hidden_size=8, intermediate_size=12, num_hidden_layers=3, num_attention_heads=2, bos_token_id=1698, eos_token_id=1699)
T5 = dict(vocab_size=2000, d_model=16, d_kv=4, d_ff=12, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")
ENCODERS = {
    "l": ("CLIPTextModel", transformers.CLIPTextConfig, dict(CLIP), "clip"),
    "l-projected": ("CLIPTextModelWithProjection", transformers.CLIPTextConfig, dict(CLIP, projection_dim=6), "clip"),
    "g": ("CLIPTextModelWithProjection", transformers.CLIPTextConfig, dict(CLIP, hidden_act="gelu", projection_dim=5), "clip-pad"),
    "t5": ("T5EncoderModel", transformers.T5Config, dict(T5), "t5-hf"),
    "umt5": ("UMT5EncoderModel", transformers.UMT5Config, dict(T5), "t5-hf"),
}


def weights(model):
    """0.35·sin(0.37·i + crc32(name) mod 1000), and 1 more for norms, as the test has them."""
    for name, p in model.named_parameters():
        if type(model).__name__ == "CLIPTextModel":
            name = "text_model." + name
        c = zlib.crc32(name.encode()) % 1000
        w = 0.35 * torch.sin(0.37 * torch.arange(p.numel(), dtype=torch.float64) + c)
        if "norm" in name and name.endswith("weight"):
            w += 1
        p.data.copy_(w.reshape(p.shape))


def tokenizer(folder):
    d = tempfile.mkdtemp()
    for f in (FOLDERS / folder).glob("*.gz"):
        (pathlib.Path(d) / f.stem).write_bytes(gzip.decompress(f.read_bytes()))
    if folder.startswith("clip"):
        return transformers.CLIPTokenizer.from_pretrained(d)
    return transformers.PreTrainedTokenizerFast(tokenizer_file=d + "/tokenizer.json", pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512)


def parts():
    out = {}
    for name, (cls, config, keys, folder) in ENCODERS.items():
        model = getattr(transformers, cls)(config(**keys)).eval()
        weights(model)
        out[name] = model, tokenizer(folder)
    return out


def uses(p):
    """(pipeline, component, encoder, states [texts rows W] or None, pooled or None) of each."""
    none = dict(vae=None, scheduler=None)
    (l, tl), (lp, _), (g, tg), (t5, tt), (u, _) = (p[k] for k in ENCODERS)
    args = dict(device="cpu", num_images_per_prompt=1, do_classifier_free_guidance=False)
    sd = diffusers.StableDiffusionPipeline(text_encoder=l, tokenizer=tl, unet=None, safety_checker=None, feature_extractor=None, image_encoder=None, requires_safety_checker=False, **none)
    yield "StableDiffusionPipeline", "text_encoder", "l", sd.encode_prompt(TEXTS, **args)[0], None
    xl = diffusers.StableDiffusionXLPipeline(text_encoder=l, tokenizer=tl, text_encoder_2=g, tokenizer_2=tg, unet=None, **none)
    states, _, pooled, _ = xl.encode_prompt(TEXTS, **args)
    yield "StableDiffusionXLPipeline", "text_encoder", "l", states[..., :8], None
    yield "StableDiffusionXLPipeline", "text_encoder_2", "g", states[..., 8:], pooled
    sd3 = diffusers.StableDiffusion3Pipeline(transformer=None, text_encoder=lp, tokenizer=tl, text_encoder_2=g, tokenizer_2=tg, text_encoder_3=t5, tokenizer_3=tt, **none)
    states, _, pooled, _ = sd3.encode_prompt(TEXTS, None, None, **args)
    yield "StableDiffusion3Pipeline", "text_encoder", "l-projected", states[:, :77, :8], pooled[:, :6]
    yield "StableDiffusion3Pipeline", "text_encoder_2", "g", states[:, :77, 8:16], pooled[:, 6:]
    yield "StableDiffusion3Pipeline", "text_encoder_3", "t5", states[:, 77:], None
    flux = diffusers.FluxPipeline(transformer=None, text_encoder=l, tokenizer=tl, text_encoder_2=t5, tokenizer_2=tt, **none)
    states, pooled, _ = flux.encode_prompt(TEXTS, None, device="cpu")
    yield "FluxPipeline", "text_encoder", "l", None, pooled
    yield "FluxPipeline", "text_encoder_2", "t5", states, None
    wan = diffusers.WanPipeline(text_encoder=u, tokenizer=tt, transformer=None, **none)
    states, _ = wan.encode_prompt(TEXTS, do_classifier_free_guidance=False, max_sequence_length=512, device="cpu")
    yield "WanPipeline", "text_encoder", "umt5", states, None


def sd3(p):
    (l, tl), (g, tg), (t5, tt) = (p[k] for k in ("l-projected", "g", "t5"))
    rows, out = [0, 4, 76, 77, 80, -1], dict(Text=TEXTS[0], Cases=[])
    for third in (t5, None):
        pipe = diffusers.StableDiffusion3Pipeline(transformer=None, text_encoder=l, tokenizer=tl, text_encoder_2=g, tokenizer_2=tg, text_encoder_3=third, tokenizer_3=tt if third else None, vae=None, scheduler=None)
        pipe.transformer = type("Transformer", (), {"config": type("Config", (), {"joint_attention_dim": 16})})()
        states, _, pooled, _ = pipe.encode_prompt(TEXTS[:1], None, None, device="cpu", num_images_per_prompt=1, do_classifier_free_guidance=False)
        out["Cases"].append(dict(Rows=rows, Length=states.shape[1], States=rounded(states[0][rows]), Pooled=rounded(pooled)[0]))
    return out


def rounded(t):
    return [[float(f"{v:.7g}") for v in row] for row in t.double().tolist()]


def qwen():
    model = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained("stages/family/testdata/qwen2.5-vl", dtype=torch.float32, attn_implementation="eager").eval()
    g = torch.Generator().manual_seed(3)
    ids = [torch.randint(3, 80, (n,), generator=g) for n in (7, 1, 12)]
    states = [model(input_ids=i[None], output_hidden_states=True).hidden_states[-1][0] for i in ids]
    pipe = diffusers.QwenImagePipeline(scheduler=None, vae=None, text_encoder=None, tokenizer=None, transformer=None)
    return dict(IDs=[i.tolist() for i in ids], States=[rounded(s) for s in states], Template=pipe.prompt_template_encode, Drop=pipe.prompt_template_encode_start_idx,
                Most=pipe.tokenizer_max_length)


if __name__ == "__main__":
    with torch.no_grad():
        p = parts()
        out = dict(Texts=TEXTS, Rows=ROWS, Encoders={k: dict(Class=c, Config=keys, Tokenizer=f) for k, (c, _, keys, f) in ENCODERS.items()}, Uses=[])
        for pipeline, component, encoder, states, pooled in uses(p):
            out["Uses"].append(dict(Pipeline=pipeline, Component=component, Encoder=encoder, Length=0 if states is None else states.shape[1],
                                    States=None if states is None else [rounded(s[list(ROWS)]) for s in states], Pooled=None if pooled is None else rounded(pooled)))
        (OUT / "uses.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")
        pathlib.Path("stages/diffusion/testdata/sd3.json").write_text(json.dumps(sd3(p), separators=(",", ":")) + "\n")
        (OUT / "qwen.json").write_text(json.dumps(qwen(), separators=(",", ":")) + "\n")
