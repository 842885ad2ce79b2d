"""What QwenImageEditPlusPipeline of diffusers makes of a caption and the images that it speaks of, with the small Qwen2.5-VL of
stages/family/testdata/qwen2.5-vl: stages/diffusion/testdata/change/ with the tokenizer and the processor, and want.json with the
pipeline's template, the sizes of images, and states of captions.

Run from the repository's root: python bench/golden/changes.py, with torch, transformers and diffusers 0.42.1.
"""

import base64
import io
import json
import pathlib

import numpy
import torch
from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageEditPlusPipeline
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import CONDITION_IMAGE_SIZE, VAE_IMAGE_SIZE, calculate_dimensions
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, BatchFeature, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessor

OUT = pathlib.Path("stages/diffusion/testdata/change")
SPECIAL = {"<|image_pad|>": 116, "<|video_pad|>": 117, "<|vision_start|>": 118, "<|vision_end|>": 119, "<|im_start|>": 113, "<|im_end|>": 114}


def tokenizer():
    words = ["<unk>", "Des"] + "system user assistant Describe the key features of input image color shape size texture Picture 1 2 make it red like first :".split()
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)} | SPECIAL, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.add_tokens([AddedToken("Des")])  # splits a word of the template, which then has as many tokens as Qwen's own makes of it
    t.add_special_tokens([AddedToken(w, special=True) for w in SPECIAL])
    return PreTrainedTokenizerFast(tokenizer_object=t, unk_token="<unk>", pad_token="<|im_end|>", eos_token="<|im_end|>")


def picture(w, h, seed):
    rng = numpy.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (3, 4, 3), dtype=numpy.uint8))
    return coarse.resize((w, h), Image.BILINEAR)


class Processor:
    """Qwen2_5_VLProcessor without its part for videos, which wants torchvision."""

    def __init__(self, image, tok):
        self.image, self.tok = image, tok

    def __call__(self, text, images, **kwargs):
        seen = self.image(images=images, return_tensors="pt")
        for grid in seen["image_grid_thw"]:
            text = [text[0].replace("<|image_pad|>", "<|placeholder|>" * int(grid.prod() // 4), 1)]
        ids = self.tok(text[0].replace("<|placeholder|>", "<|image_pad|>"), return_tensors="pt")
        return BatchFeature(dict(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"], **seen))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    tok = tokenizer()
    image = Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=64, max_pixels=96 * 96)
    tok.save_pretrained(OUT)
    image.save_pretrained(OUT)
    m = Qwen2_5_VLForConditionalGeneration.from_pretrained("stages/family/testdata/qwen2.5-vl").eval()
    p = QwenImageEditPlusPipeline(scheduler=FlowMatchEulerDiscreteScheduler(), vae=AutoencoderKLQwenImage(base_dim=4, z_dim=4, dim_mult=[1, 2, 2, 2], num_res_blocks=1), text_encoder=m, tokenizer=tok, processor=None, transformer=None)
    p.processor = Processor(image, tok)
    drop = p.prompt_template_encode_start_idx
    head = len(tok(p.prompt_template_encode.split("{}")[0])["input_ids"])
    assert head == drop
    pictures = [picture(40, 56, 1), picture(64, 30, 2)]
    files = []
    for v in pictures:
        b = io.BytesIO()
        v.save(b, "PNG")
        files.append(base64.b64encode(b.getvalue()).decode())
    # as transformers found the places of images before version 5; now it wants to be told, and the pipeline does not
    plain = m.forward
    m.forward = lambda input_ids=None, **kw: plain(input_ids=input_ids, mm_token_type_ids=(input_ids == SPECIAL["<|image_pad|>"]).int(), **kw)
    cases = []
    for caption, of in (("make it red", [0]), ("make it like the first Picture", [0, 1]), ("", [1])):
        seen = [p.image_processor.resize(pictures[i], *reversed(calculate_dimensions(CONDITION_IMAGE_SIZE, pictures[i].width / pictures[i].height))) for i in of]
        with torch.no_grad():
            states, _ = p._get_qwen_prompt_embeds(caption, seen)
        cases.append(dict(caption=caption, images=of, states=[round(float(v), 7) for v in states[0].flatten()[:: 7]], rows=states.shape[1]))
    sizes = [[w, h, *calculate_dimensions(a, w / h)] for a in (CONDITION_IMAGE_SIZE, VAE_IMAGE_SIZE) for w, h in ((40, 56), (64, 30), (1920, 1080), (333, 333), (1000, 10))]
    (OUT / "want.json").write_text(json.dumps(dict(template=p.prompt_template_encode, drop=drop, areas=[CONDITION_IMAGE_SIZE, VAE_IMAGE_SIZE], sizes=sizes, files=files, cases=cases, every=7)) + "\n")


if __name__ == "__main__":
    main()
