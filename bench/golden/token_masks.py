"""Write dataset/token/testdata/masks.json.gz: ids and assistant masks of chats, by transformers' apply_chat_template.

Run after token_golden.py: python bench/golden/token_masks.py. Needs transformers (made with 5.23).
"""
import gzip
import json
import pathlib

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from token_chats import A, GENERATION, S, U

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata"
SPACED = "{% for m in messages %}{% if m.role == 'assistant' %}ANSWER:{% generation %} {{ m.content }}</s>{% endgeneration %}{% else %}[{{ m.role }}] {{ m.content }}\n{% endif %}{% endfor %}"
TIGHT = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
TEMPLATES = {"blocks": GENERATION, "spaced": SPACED, "tight": TIGHT}
# No answer ends in a character of several tokens: the library then marks only the first of them.
CHATS = [
    [U("Hello there, how are you?"), A("I'm fine, thanks.\n\nAnd you?")],
    [S("Be terse. 简短一点"), U("¿Qué tal? 🙂"), A("Größe: 42 m² — 你好 👩🏽‍💻."), U("ok"), A("de\u0301ja\u0300 vu <|im_end|> <s>")],
    [U("num"), A("bers 12345"), U("un"), A("believable"), U("  "), A("\n\n"), U("x"), A("")],
    [A("first"), U("last")],
]


def main():
    cases = []
    for name in ["qwen", "llama3", "sentencepiece", "mistral", "gpt2"]:
        doc = gzip.decompress((OUT / f"{name}.tokenizer.json.gz").read_bytes()).decode()
        tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(doc))
        for label, template in TEMPLATES.items():
            for i, chat in enumerate(CHATS):
                got = tok.apply_chat_template(chat, chat_template=template, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
                cases.append({"tokenizer": name, "template": label, "chat": i, "ids": got["input_ids"], "mask": got["assistant_masks"]})
    doc = {"templates": TEMPLATES, "chats": CHATS, "cases": cases}
    (OUT / "masks.json.gz").write_bytes(gzip.compress(json.dumps(doc, ensure_ascii=False).encode(), 9, mtime=0))
    print(len(cases), "cases")


main()
