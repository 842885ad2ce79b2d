"""Makes small random models of several families, has lfactor write each in every form of few bits, and loads the folders by transformers: nothing may
be missing or left over, and logits differ by no more than the form's own rounding, which is that of a model of the same size without experts.

    python bench/golden/few_bits_load.py LFACTOR [FOLDER]     (torch, transformers, compressed-tensors)
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
FORMS = dict(int4=0.25, int8=0.03, fp8=0.15, nvfp4=0.25)  # of the greatest logit
text = dict(vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=1, eos_token_id=2)
image = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=28, patch_size=14)
rope = {"rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 1e4}}
marks = dict(image_token_id=255, video_token_id=254, vision_start_token_id=253, vision_end_token_id=252)
MODELS = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**text)),
    "llama-tied": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**text, tie_word_embeddings=True)),
    "qwen3-tied": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**text, head_dim=32, tie_word_embeddings=True)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**text, head_dim=32)),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**text, pad_token_id=0)),
    "mixtral": lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**text, num_local_experts=4)),
    "qwen3_moe": lambda: tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(**text, head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64)),
    "llava": lambda: tf.LlavaForConditionalGeneration(tf.LlavaConfig(vision_config=tf.CLIPVisionConfig(**image), text_config=tf.LlamaConfig(**text), image_token_index=255)),
    "internvl": lambda: tf.InternVLForConditionalGeneration(tf.InternVLConfig(
        vision_config=tf.InternVLVisionConfig(**image | dict(image_size=[28, 28], patch_size=[14, 14])), text_config=tf.Qwen2Config(**text), image_token_id=255)),
    "qwen2_5_vl": lambda: tf.Qwen2_5_VLForConditionalGeneration(tf.Qwen2_5_VLConfig(text_config=text | rope, vision_config=dict(
        depth=2, hidden_size=64, intermediate_size=128, num_heads=4, out_hidden_size=128, patch_size=14, fullatt_block_indexes=[1]), **marks)),
}


def load(folder, dtype):
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, info = getattr(tf, name).from_pretrained(folder, dtype=dtype, output_loading_info=True)
    return model.eval(), {k: sorted(v) for k, v in info.items() if v and k.endswith("_keys")}


bad = 0
tokens = torch.randint(3, 250, (1, 24), generator=torch.Generator().manual_seed(1))
for name, make in MODELS.items():
    torch.manual_seed(0)
    make().float().save_pretrained(OUT / name)
    with torch.no_grad():
        want = load(OUT / name, torch.float32)[0](input_ids=tokens).logits
    for form, bound in FORMS.items():
        dst = OUT / f"{name}-{form}"
        said = subprocess.run([LFACTOR, "ckpt", "convert", OUT / name, dst, "--quantize", form], capture_output=True, text=True)
        try:
            assert said.returncode == 0, said.stderr[-200:]
            model, left = load(dst, torch.bfloat16 if form == "nvfp4" else torch.float32)
            with torch.no_grad():
                have = model(input_ids=tokens).logits.float()
            share = ((have - want).abs().max() / want.abs().max()).item()
            verdict = "noted" if "is read wrongly" in said.stderr else "ok" if not left and share < bound else "WRONG"
            print(f"{name:12} {form:6} {verdict:6} {share:.3f} of the greatest logit {left or ''}", flush=True)
        except Exception as e:
            verdict = "WRONG"
            print(f"{name:12} {form:6} WRONG  {type(e).__name__}: {str(e)[:160]}", flush=True)
        bad += verdict == "WRONG"
sys.exit(bad > 0)
