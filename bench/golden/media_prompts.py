"""The token ids that the processors of transformers make of conversations with videos, for the tests of dataset/format:
dataset/format/testdata/videotext, with a small tokenizer trained here.

A case is [model, the videos as frames, width, height and rate, messages, input_ids]. Qwen3-VL's processor of 5.23 takes the
place of <|video_pad|> alone, and would leave the template's own <|vision_start|> and <|vision_end|> around all frames; the
model's processor of 4.57, with which it was published, takes the place of all three. So the two are taken away here first.
Run: python bench/golden/media_prompts.py. Needs transformers 5.23.0, tokenizers, torch, torchvision.
"""
import copy
import json
import pathlib

import numpy as np
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor
from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor
from transformers.models.llava_onevision.image_processing_llava_onevision import LlavaOnevisionImageProcessor
from transformers.models.llava_onevision.processing_llava_onevision import LlavaOnevisionProcessor
from transformers.models.llava_onevision.video_processing_llava_onevision import LlavaOnevisionVideoProcessor
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.processing_qwen2_vl import Qwen2VLProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.video_utils import VideoMetadata

OUT = pathlib.Path(__file__).parents[2] / "dataset/format/testdata/videotext"
assert transformers.__version__ == "5.23.0"
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXT = ["What happens in the video?\nFrame1: a red ball rolls:<0.5 seconds> then it stops for 12.3 seconds.\nFrame2: :<nothing>"] * 20
QWEN = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
MARKS = {"qwen": ("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"), "internvl": ("<IMG_CONTEXT>\n", "<video>\n"), "llava": ("<image>\n", "<video>\n")}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}{% if c.type == 'video' %}VIDEO{% elif c.type == 'image' %}IMAGE{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BOX = {"do_sample_frames": True, "num_frames": 3, "size": {"height": 56, "width": 56}}
MODELS = {
    "qwen2vl": ("qwen", Qwen2VLProcessor, Qwen2VLImageProcessor, {}, Qwen2VLVideoProcessor, {"do_sample_frames": True, "fps": 2, "min_pixels": 784, "max_pixels": 3136}, {}),
    "qwen2_5vl": ("qwen", Qwen2_5_VLProcessor, Qwen2VLImageProcessor, {}, Qwen2VLVideoProcessor, {"do_sample_frames": True, "num_frames": 6, "min_pixels": 784, "max_pixels": 3136}, {}),
    "qwen3vl": ("qwen", Qwen3VLProcessor, Qwen2VLImageProcessor, {"patch_size": 16}, Qwen3VLVideoProcessor, {"size": {"shortest_edge": 1024, "longest_edge": 24576}}, {}),
    "internvl": ("internvl", InternVLProcessor, GotOcr2ImageProcessor, {"size": {"height": 56, "width": 56}}, InternVLVideoProcessor, BOX, {"image_seq_length": 4}),
    "llava-onevision": ("llava", LlavaOnevisionProcessor, LlavaOnevisionImageProcessor, {}, LlavaOnevisionVideoProcessor, BOX, {"num_image_tokens": 16, "vision_feature_select_strategy": "full"}),
}
VIDEOS = [(37, 64, 48, 12.5), (60, 90, 120, 29.97), (9, 33, 57, 3.0), (50, 40, 40, 23.976)]


def train(names):
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(SPECIALS + names)
    return t


FAMILIES = {
    "qwen": (train(QWEN), {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}),
    "internvl": (train(QWEN + ["<img>", "</img>", "<IMG_CONTEXT>", "<video>"]), {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"}),
    "llava": (train(["<image>", "<video>"]), {"image_token": "<image>", "video_token": "<video>"}),
}


def conversations(template):
    say = lambda s: {"type": "text", "text": s}
    turn = lambda role, *c: {"role": role, "content": list(c)}
    film = {"type": "video"}
    yield [0], [turn("user", film, say("What happens?")), turn("assistant", say("A red ball rolls."))]
    yield [1], [turn("user", say("Look:"), film, say(" and say")), turn("assistant", say("12.3 seconds."))]
    yield [2, 3], [turn("user", say("a "), film, say("\n:<b"), film), turn("assistant", say("nothing")), turn("user", say("then?")), turn("assistant", say("stops"))]


def main():
    rows, files = [], {}
    for model, (family, processor, image, image_set, video, video_set, more) in MODELS.items():
        raw, extra = FAMILIES[family]
        template = TEMPLATE.replace("IMAGE", MARKS[family][0]).replace("VIDEO", MARKS[family][1])
        tok = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, extra_special_tokens=extra)
        p = processor(image_processor=image(**copy.deepcopy(image_set)), tokenizer=tok, video_processor=video(**copy.deepcopy(video_set)), chat_template=template, **more)
        files[model] = {"tokenizer": family, "template": template, "image": image_set | {"image_processor_type": image.__name__},
                        "video": video_set | {"video_processor_type": video.__name__}, "processor": more}
        for films, messages in conversations(template):
            text = p.apply_chat_template(messages, tokenize=False)
            if model == "qwen3vl":
                text = text.replace(MARKS["qwen"][1], "<|video_pad|>")
            frames = [np.full((n, h, w, 3), 7, np.uint8) for n, w, h, _ in [VIDEOS[i] for i in films]]
            meta = [VideoMetadata(total_num_frames=VIDEOS[i][0], fps=VIDEOS[i][3], width=VIDEOS[i][1], height=VIDEOS[i][2]) for i in films]
            one = lambda f, m: p(text=[text], videos=f, video_metadata=m, return_metadata=True)
            out = one(frames, meta)
            ids = [int(i) for i in np.asarray(out["input_ids"][0])]
            every = [float(s) for s in out["second_per_grid_ts"]] if "second_per_grid_ts" in out else None
            rows.append([model, [VIDEOS[i] for i in films], messages, ids, every])
    for family, (raw, _) in FAMILIES.items():
        (OUT / f"{family}.tokenizer.json").write_text(raw.to_str())
    text = '{"models": ' + json.dumps(files) + ',\n"cases": [\n' + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]}\n"
    (OUT / "cases.json").write_text(text)


main()
