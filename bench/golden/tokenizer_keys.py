"""Write tokenizer folders in whose tokenizer_config.json one key is altered, and what transformers' AutoTokenizer makes of texts with each, for
`go test ./dataset/token -run TestTokenizerKeys -long`.

Run: python bench/golden/tokenizer_keys.py OUT. Needs transformers (made with 5.24).
"""
import json
import pathlib
import sys

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, logging

TEXTS = ["a cat sat", " the cat", "cat<x> sat <s> a</s>", "A Cat  sat .", "hello<mask> , cat's it 's", "<|tool|>a<|tool|> b ", "café Ünï 猫cat", ""]
CHAT = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}{{ pad_token }}{{ unk_token }}{{ sep_token }}"
DECODER = {"320": {"content": "<x>", "special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False},
           "321": {"content": "<|tool|>", "special": False, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}}
BASE = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>", sep_token="<x>", mask_token="<mask>", chat_template=CHAT, added_tokens_decoder=DECODER,
            model_max_length=512, clean_up_tokenization_spaces=False)
VALUES = dict(bos_token=["</s>", None, {"content": "<s>", "lstrip": True, "rstrip": True, "__type": "AddedToken"}], eos_token=["<x>", None], unk_token=["<x>", None],
              pad_token=["<x>", None], sep_token=["</s>", None], cls_token=["<s>", "<new>"], mask_token=["<x>", {"content": "<mask>", "lstrip": True, "__type": "AddedToken"}],
              image_token=["<image>"], add_bos_token=[True, False], add_eos_token=[True, False], add_prefix_space=[True, False, None], legacy=[True, False],
              model_max_length=[4, 1e30], clean_up_tokenization_spaces=[True], spaces_between_special_tokens=[False], split_special_tokens=[False, True], padding_side=["left"],
              truncation_side=["left"], model_input_names=[["input_ids"]], additional_special_tokens=[["<|y|>", "cat"]], extra_special_tokens=[["<|y|>"], {"z_token": "sat"}],
              chat_template=["{{ messages[0].content }}", [{"name": "default", "template": "x{{ messages[0].content }}"}]], errors=["ignore"], do_lower_case=[True, False],
              strip_accents=[True], tokenize_chinese_chars=[False], sp_model_kwargs=[{"enable_sampling": True}], use_default_system_prompt=[True], from_slow=[True],
              max_length=[3], stride=[1], truncation_strategy=["longest_first"], processor_class=["XProcessor"], name_or_path=["x"], use_fast=[False], fix_mistral_regex=[True],
              special_tokens_map_file=["x"], tokenizer_file=["x"], backend=["tokenizers"], is_local=[True], response_schema=[{"type": "object"}], trim_offsets=[False], unknown_key=[3],
              added_tokens_decoder=[0, 1, 2])
CLASSES = ["PreTrainedTokenizerFast", "LlamaTokenizer", "GPT2Tokenizer", "Qwen2Tokenizer", "GemmaTokenizer", None]


def base(kind, folder):
    """A folder as the class itself saves it."""
    alphabet, specials = sorted(pre_tokenizers.ByteLevel.alphabet()), ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
    pieces = specials + [f"<0x{i:02X}>" for i in range(256)] + ["▁", "a", "c", "t", "s", "▁a", "at", "cat", "▁cat", "sat", "▁sat", "h", "e"]
    sp = [("▁", "a"), ("a", "t"), ("c", "at"), ("▁", "cat"), ("s", "at"), ("▁", "sat")]
    words = specials + alphabet + ["at", "cat", "Ġcat", "sat", "Ġsat", "Ġa"]
    merges = [("a", "t"), ("c", "at"), ("Ġ", "cat"), ("s", "at"), ("Ġ", "sat"), ("Ġ", "a")]
    names = {k: v for k, v in BASE.items() if k.endswith("_token") and isinstance(v, str)}
    if kind in ("LlamaTokenizer", "GemmaTokenizer"):
        t = getattr(transformers, kind)(vocab={w: i for i, w in enumerate(pieces)}, merges=sp, **names)
    elif kind in ("GPT2Tokenizer", "Qwen2Tokenizer"):
        t = getattr(transformers, kind)(vocab={w: i for i, w in enumerate(words)}, merges=merges, **names)
    else:
        raw = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
        raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        raw.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
        t = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **names)
    t.add_tokens([AddedToken(v["content"], special=v["special"], normalized=False) for v in DECODER.values()], special_tokens=False)
    t.chat_template = CHAT
    t.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    at = {a["content"]: a for a in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]}
    decoder = {str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in at.values()}
    return config | {"chat_template": CHAT, "added_tokens_decoder": decoder, "model_max_length": 512, "tokenizer_class": kind}


def said(folder):
    t = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "a cat"}, {"role": "assistant", "content": " sat"}]
    plain = [t.encode(x, add_special_tokens=False) for x in TEXTS]
    return {"texts": TEXTS, "plain": plain, "around": [t.encode(x) for x in TEXTS], "chat": t.apply_chat_template(messages, tokenize=False),
            "back": [t.decode(x) for x in plain], "named": {k: getattr(t, k) or "" for k in ["bos_token", "eos_token", "pad_token"]}, "length": min(t.model_max_length, 1e30)}


def main():
    logging.set_verbosity(50)
    out, n, left = pathlib.Path(sys.argv[1]), 0, 0
    for kind in CLASSES:
        was = None
        for key, values in {"": [None], **VALUES}.items():
            for i, value in enumerate(values):
                folder = out / f"{kind}~{key}~{i}"
                folder.mkdir(parents=True)
                config = base(kind, folder)
                if key == "added_tokens_decoder":
                    value = {**config[key], **{str(max(map(int, config[key])) + 1): {"content": "sat", "special": i > 0, "lstrip": i > 1}}}
                config = config | ({key: value} if key else {})
                if config["tokenizer_class"] is None:
                    del config["tokenizer_class"]
                (folder / "tokenizer_config.json").write_text(json.dumps(config))
                try:
                    is_ = said(folder)
                    was = was or is_
                    doc = is_ | {"key": key, "value": json.dumps(value), "moved": [k for k in is_ if is_[k] != was[k]]}
                except Exception as e:  # whatever the library raises
                    doc = {"key": key, "value": json.dumps(value), "error": f"{type(e).__name__}: {e}"[:200]}
                    left += 1
                (folder / "want.json").write_text(json.dumps(doc))
                n += 1
    print(f"{n} folders; {left} that transformers cannot read")


main()
