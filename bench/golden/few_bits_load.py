"""Makes small random models of several families, has lfactor write each in every form that transformers loads (few bits, bfloat16, pytorch_model.bin,
GGUF), and loads them: nothing may be missing or left over, and logits differ by no more than the form's own rounding, which is that of a model of the
same size without experts. What lfactor refuses is counted by its reason.

    python bench/golden/few_bits_load.py LFACTOR [FOLDER]     (torch, transformers, compressed-tensors, gguf)
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers as tf

tf.logging.set_verbosity_error()
LFACTOR = sys.argv[1]
OUT = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
FORMS = dict(int4=0.35, int8=0.15, fp8=0.25, nvfp4=0.35, bf16=0.05, torch=1e-5, gguf_f32=1e-5, gguf_q8_0=0.03, gguf_q4_k=0.25)  # of the greatest logit
# Sizes of heads and experts are those that transformers takes where its GGUF loader reads none.
text = dict(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=1, eos_token_id=2)
image = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14)
rope = {"rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 1e4}}
marks = dict(image_token_id=255, video_token_id=254, vision_start_token_id=253, vision_end_token_id=252)
MODELS = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**text)),
    "llama-tied": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**text, tie_word_embeddings=True)),
    "qwen3-tied": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**text, head_dim=128, tie_word_embeddings=True)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**text, head_dim=256)),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**text, pad_token_id=0)),
    "mixtral": lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**text, num_local_experts=4)),
    "qwen3_moe": lambda: tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(
        **text, head_dim=128, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=768, norm_topk_prob=True)),
    "llava": lambda: tf.LlavaForConditionalGeneration(tf.LlavaConfig(vision_config=tf.CLIPVisionConfig(**image), text_config=tf.LlamaConfig(**text), image_token_index=255)),
    "internvl": lambda: tf.InternVLForConditionalGeneration(tf.InternVLConfig(
        vision_config=tf.InternVLVisionConfig(**image | dict(image_size=[28, 28], patch_size=[14, 14])), text_config=tf.Qwen2Config(**text), image_token_id=255)),
    "qwen2_5_vl": lambda: tf.Qwen2_5_VLForConditionalGeneration(tf.Qwen2_5_VLConfig(text_config=text | rope, vision_config=dict(
        depth=2, hidden_size=64, intermediate_size=128, num_heads=4, out_hidden_size=128, patch_size=14, fullatt_block_indexes=[1]), **marks)),
}


def tokenizer(folder):
    """A tokenizer of bytes, which GGUF keeps."""
    letters = [c for c in map(chr, range(33, 600)) if c.isprintable()][:255]
    vocab = {c: i for i, c in enumerate(letters)} | {"ab": 255}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": {"type": "ByteLevel"},
                                                       "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]}}))


def write(source, dst, form):
    """What lfactor says when it writes a form, and what transformers loads of it."""
    if form.startswith("gguf_"):
        args, dst = [dst.with_suffix(".gguf"), "--dtype", form[5:]], dst.with_suffix(".gguf")
    else:
        args = [dst] + {"bf16": ["--dtype", "bf16"], "torch": ["--to", "torch"]}.get(form, ["--quantize", form])
    return subprocess.run([LFACTOR, "ckpt", "convert", source] + args, capture_output=True, text=True), dst


def load(folder, dtype, kind=None):
    if folder.suffix == ".gguf":
        model, info = kind.from_pretrained(folder.parent, gguf_file=folder.name, dtype=dtype, output_loading_info=True)
        return model.eval(), {k: sorted(v) for k, v in info.items() if v and k.endswith("_keys")}
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, info = getattr(tf, name).from_pretrained(folder, dtype=dtype, output_loading_info=True)
    return model.eval(), {k: sorted(v) for k, v in info.items() if v and k.endswith("_keys")}


bad, counts = 0, {}
tokens = torch.randint(3, 250, (1, 24), generator=torch.Generator().manual_seed(1))
for name, make in MODELS.items():
    torch.manual_seed(0)
    make().float().save_pretrained(OUT / name)
    tokenizer(OUT / name)
    with torch.no_grad():
        source = load(OUT / name, torch.float32)[0]
        want = source(input_ids=tokens).logits
    for form, bound in FORMS.items():
        apart = 0
        said, dst = write(OUT / name, OUT / f"{name}-{form}", form)
        try:
            if said.returncode:
                assert form.startswith("gguf_") and "GGUF" in said.stderr, said.stderr[-200:]
                verdict, share, left = "refused", 0, said.stderr.strip().splitlines()[-1][-120:]
            elif name == "mixtral" and dst.suffix == ".gguf":
                verdict, share, left = "no loader", 0, "transformers reads GGUF's llama as dense"
            else:
                model, left = load(dst, torch.bfloat16 if form == "nvfp4" else torch.float32, type(source))
                with torch.no_grad():
                    have = model(input_ids=tokens).logits.float()
                share = ((have - want).abs().max() / want.abs().max()).item()
                if form in ("int4", "int8", "fp8", "nvfp4"):  # the numbers as lfactor reads them, in a plain folder
                    subprocess.run([LFACTOR, "ckpt", "convert", dst, f"{dst}-plain", "--dtype", "f32"], capture_output=True, check=True)
                    with torch.no_grad():
                        own = load(pathlib.Path(f"{dst}-plain"), torch.float32)[0](input_ids=tokens).logits
                    apart = ((have - own).abs().max() / want.abs().max()).item()
                verdict = "noted" if "is read wrongly" in said.stderr else "ok" if not left and share < bound and apart < 0.02 else "WRONG"
        except Exception as e:
            verdict, share, left = "WRONG", 0, f"{type(e).__name__}: {str(e)[:160]}"
        print(f"{name:12} {form:9} {verdict:7} {share:.3g} of the greatest logit, {apart:.2g} from the numbers as read here {left or ''}", flush=True)
        bad += verdict == "WRONG"
        counts[verdict] = counts.get(verdict, 0) + 1
print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))
sys.exit(bad > 0)
