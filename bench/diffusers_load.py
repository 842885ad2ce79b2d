"""Pipelines of diffusers there and back: small ones that diffusers writes train here, and what is exported loads in diffusers.

    python bench/diffusers_load.py --lfactor ./lfactor [--case wan flux sd sdxl]

For each case diffusers makes a pipeline of random weights with its autoencoder, encoders of captions and scheduler and writes it with
save_pretrained. lfactor trains its denoiser from that folder on drawn pictures for three steps, with latents and states made beside the data
and then with latents live, whose losses are to be the same. Of the export, diffusers is asked which tensors are missing or unexpected, and what
the denoiser says of noise is compared with what it says with the weights read by safetensors; a run without a learning rate gives the weights
back to the bit. The last columns draw a picture by the whole pipeline with the exported denoiser in it, and by lfactor sample from the run's
checkpoint, beginning with the same noise: the largest difference of a pixel, of 255, and the deviation of the picture's own pixels. Needs torch,
diffusers 0.42.1, safetensors and transformers; lfactor needs none of them.
"""

import argparse
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, PreTrainedTokenizerFast, T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

import diffusers as D

STEPS = 6
WORDS = ["<pad>", "</s>", "<unk>", "red", "blue", "square", "disc"]


def tokenizer(length):
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=length)


def clip(projected=False):
    c = CLIPTextConfig(vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16, projection_dim=16,
                       eos_token_id=1, pad_token_id=0, bos_token_id=2)
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(c)


def t5(umt5=False):
    keys = dict(vocab_size=len(WORDS), d_model=16, d_kv=8, num_heads=2, d_ff=32, num_layers=2, feed_forward_proj="gated-gelu")
    return UMT5EncoderModel(UMT5Config(**keys)) if umt5 else T5EncoderModel(T5Config(**keys))


def kl(z, **more):
    return D.AutoencoderKL(block_out_channels=[8, 16], down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=z, layers_per_block=1,
                           norm_num_groups=4, sample_size=32, **more)


def wan():
    vae = D.AutoencoderKLWan(base_dim=4, z_dim=4, dim_mult=[1, 2, 2, 2], num_res_blocks=1, latents_mean=[0.1] * 4, latents_std=[1.5] * 4)
    m = D.WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=8, ffn_dim=32, num_layers=2)
    return D.WanPipeline(tokenizer=tokenizer(512), text_encoder=t5(True), vae=vae, scheduler=D.UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0),
                         transformer=m), "transformer", dict(num_frames=1, height=32, width=32, max_sequence_length=512, guidance_scale=3.0, negative_prompt="blue square")


def flux():
    m = D.FluxTransformer2DModel(in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16,
                                 axes_dims_rope=(4, 6, 6))
    return D.FluxPipeline(scheduler=D.FlowMatchEulerDiscreteScheduler(), vae=kl(4, scaling_factor=0.36, shift_factor=0.1), text_encoder=clip(), tokenizer=tokenizer(16), text_encoder_2=t5(),
                          tokenizer_2=tokenizer(512), transformer=m), "transformer", dict(height=32, width=32, max_sequence_length=512)


def unet(**more):
    return D.UNet2DConditionModel(block_out_channels=[8, 16], down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"], up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"], layers_per_block=1,
                                  norm_num_groups=4, attention_head_dim=[1, 2], sample_size=16, **more)


def sd():
    return D.StableDiffusionPipeline(vae=kl(4), text_encoder=clip(), tokenizer=tokenizer(16), unet=unet(cross_attention_dim=16), scheduler=D.DDIMScheduler(), safety_checker=None,
                                     feature_extractor=None, requires_safety_checker=False), "unet", dict(height=32, width=32, guidance_scale=3.0, negative_prompt="blue square")


def sdxl():
    m = unet(cross_attention_dim=32, addition_embed_type="text_time", addition_time_embed_dim=4, projection_class_embeddings_input_dim=6 * 4 + 16, transformer_layers_per_block=[1, 1],
             use_linear_projection=True)
    return D.StableDiffusionXLPipeline(vae=kl(4), text_encoder=clip(), text_encoder_2=clip(True), tokenizer=tokenizer(16), tokenizer_2=tokenizer(16), unet=m, scheduler=D.EulerDiscreteScheduler(),
                                       add_watermarker=False), "unet", dict(height=32, width=32, guidance_scale=3.0, negative_prompt="blue square")


def sd3():
    m = D.SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, out_channels=4, num_layers=3, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=40,
                                caption_projection_dim=32, pooled_projection_dim=32, pos_embed_max_size=12, dual_attention_layers=(0,), qk_norm="rms_norm")
    t = T5EncoderModel(T5Config(vocab_size=len(WORDS), d_model=40, d_kv=8, num_heads=2, d_ff=32, num_layers=2, feed_forward_proj="gated-gelu"))
    return D.StableDiffusion3Pipeline(transformer=m, scheduler=D.FlowMatchEulerDiscreteScheduler(shift=3.0), vae=kl(4, scaling_factor=1.5, shift_factor=0.06), text_encoder=clip(True),
                                      tokenizer=tokenizer(16), text_encoder_2=clip(True), tokenizer_2=tokenizer(16), text_encoder_3=t, tokenizer_3=tokenizer(256)), "transformer", \
        dict(height=32, width=32, guidance_scale=3.0, negative_prompt="blue square")


CASES = dict(wan=wan, flux=flux, sd=sd, sdxl=sdxl, sd3=sd3)


def shard(path):
    r = np.random.default_rng(1)
    with tarfile.open(path, "w") as t:
        for i in range(16):
            b = io.BytesIO()
            Image.fromarray(r.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(b, "PNG")
            for name, text in ((f"{i:03}.png", b.getvalue()), (f"{i:03}.txt", [b"red disc", b"blue square"][i % 2])):
                info = tarfile.TarInfo(name)
                info.size = len(text)
                t.addfile(info, io.BytesIO(text))


def train(a, folder, out, data, *more):
    keys = [f"model.path={folder}", f"data.paths=[{data}]", "data.seq_len=256", "data.split=[1,0,0]", "diffusion.sizes=[32x32]", "train.steps=3", "train.global_batch=4", "train.micro_batch=2",
            "optimizer.weight_decay=0", f"checkpoint.dir={out}/saved", "checkpoint.save_hf=true", f"log.dir={out}/log"]
    (out.parent / "run.yaml").write_text("{}\n")
    r = subprocess.run([a.lfactor, "train", str(out.parent / "run.yaml"), *keys, *more], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(r.stderr[-3000:])
    return [json.loads(line)["loss"] for line in (out / "log/metrics.jsonl").read_text().splitlines() if "loss" in json.loads(line)], out / "saved/release_hf_weights"


def ours(a, saved, noise, draw):
    from safetensors.torch import save_file

    d = saved.parent
    save_file({"latents": noise.contiguous()}, d / "noise.safetensors")
    more = ["--negative", draw["negative_prompt"], "--guidance", str(draw["guidance_scale"])] if "negative_prompt" in draw else ["--guidance", "1"]
    r = subprocess.run([a.lfactor, "sample", str(saved), "--prompt", "red disc", "--steps", str(STEPS), "--size", f"{draw['height']}x{draw['width']}", "--noise", str(d / "noise.safetensors"),
                        "--image-out", str(d / "drawn.png"), *more], capture_output=True, text=True)
    if r.returncode:
        raise SystemExit(r.stderr[-3000:])
    return np.asarray(Image.open(d / "drawn.png").convert("RGB")).astype(np.float64)


def theirs(name, pipe, noise, draw):
    if name == "flux":
        noise = pipe._pack_latents(noise, *noise.shape)
    got = pipe("red disc", latents=noise.clone(), output_type="np", num_inference_steps=STEPS, **draw)
    return np.asarray((got.frames[0] if name == "wan" else got.images)[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", default="./lfactor")
    p.add_argument("--case", nargs="+", default=list(CASES), choices=list(CASES))
    a = p.parse_args()
    print(f"{'':6}{'losses':>28}{'live':>8}{'missing':>9}{'unexpected':>12}{'unchanged':>11}{'pixels':>9}{'deviation':>11}")
    for name in a.case:
        with tempfile.TemporaryDirectory() as d:
            d = pathlib.Path(d)
            torch.manual_seed(2)
            pipe, part, draw = CASES[name]()
            pipe.set_progress_bar_config(disable=True)
            for component in pipe.components.values():
                if isinstance(component, torch.nn.Module):
                    component.eval()
            pipe.save_pretrained(d / "pipe")
            shard(d / "a.tar")
            losses, export = train(a, d / "pipe", d / "cached", d / "a.tar")
            live, _ = train(a, d / "pipe", d / "live", d / "a.tar", "diffusion.latents=live")
            _, still = train(a, d / "pipe", d / "still", d / "a.tar", "optimizer.lr=0", "optimizer.min_lr=0")
            kind = type(getattr(pipe, part))
            m, info = kind.from_pretrained(export / part, output_loading_info=True)
            before, after = getattr(pipe, part).state_dict(), kind.from_pretrained(still / part).state_dict()
            same = all(torch.equal(before[k], after[k]) for k in before)
            setattr(pipe, part, m.eval())
            side = 32 // 8 if name == "wan" else 32 // pipe.vae_scale_factor
            noise = torch.randn((1, 4, 1, side, side) if name == "wan" else (1, 4, side, side), generator=torch.Generator().manual_seed(1))
            x, y = ours(a, d / "cached/saved", noise, draw), 255 * theirs(name, pipe, noise, draw)
            print(f"{name:6}{' '.join(f'{x:.5f}' for x in losses):>28}{'same' if live == losses else 'OTHER':>8}{len(info['missing_keys']):9}{len(info['unexpected_keys']):12}"
                  f"{'same' if same else 'OTHER':>11}{np.abs(x - y).max():9.2f}{y.std():11.1f}", flush=True)


if __name__ == "__main__":
    main()
