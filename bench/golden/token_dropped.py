"""Write dataset/token/testdata/dropped.json: assistant masks of tokenizers that drop white space, by transformers.

Run: python bench/golden/token_dropped.py. Needs transformers (made with 5.24).
"""
import json
import pathlib

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata/dropped.json"
TEMPLATE = "{% for m in messages %}{% if m.role == 'assistant' %}gpt : {% generation %}{{ m.content }} end\n{% endgeneration %}{% else %}{{ m.role }} : {{ m.content }} end\n{% endif %}{% endfor %}"
WORDS = "user gpt end the a cat sat on mat why because it was warm and soft , . : ? ! system be brief".split()
CHATS = [
    [("user", "why"), ("assistant", "because it was warm")],
    [("system", "be   brief"), ("user", "a cat\n\n sat on the mat ?"), ("assistant", "it  was\tsoft,  and warm."), ("user", "why?"), ("assistant", "the cat")],
    [("user", "unknown words here"), ("assistant", "zebra was quagga , warmest zebras")],
    [("user", "Größe"), ("assistant", "gpt\ncafé was Größe\ncat"), ("user", "你好"), ("assistant", "你好 cat…s"), ("user", "why"), ("assistant", "é")],
]


def tokenizers():
    vocab = {w: i for i, w in enumerate(["[UNK]", *WORDS])}
    word = lambda pre: (models.WordLevel(vocab=vocab, unk_token="[UNK]"), pre)
    yield "WordLevel, WhitespaceSplit", *word(pre_tokenizers.WhitespaceSplit())
    yield "WordLevel, Whitespace", *word(pre_tokenizers.Whitespace())
    yield "WordLevel, BertPreTokenizer", *word(pre_tokenizers.BertPreTokenizer())
    letters = sorted(set("".join(WORDS)) | set("abcdefghijklmnopqrstuvwxyz"))
    pieces = {w: i for i, w in enumerate(dict.fromkeys(["[UNK]", *WORDS, *letters, *("##" + c for c in letters)]))}
    yield "WordPiece, BertPreTokenizer", models.WordPiece(vocab=pieces, unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer()
    bpe = {w: i for i, w in enumerate(dict.fromkeys(["[UNK]", *letters, "ca", "cat", "wa", "was", "th", "the"]))}
    merges = [("c", "a"), ("ca", "t"), ("w", "a"), ("wa", "s"), ("t", "h"), ("th", "e")]
    yield "BPE, Whitespace", models.BPE(vocab=bpe, merges=merges, unk_token="[UNK]"), pre_tokenizers.Whitespace()
    yield "BPE, WhitespaceSplit", models.BPE(vocab=bpe, merges=merges, unk_token="[UNK]"), pre_tokenizers.WhitespaceSplit()
    unigram = [("[UNK]", 0.0), *((c, -5.0) for c in letters + ["▁"]), *(("▁" + w, -3.0) for w in WORDS)]
    yield "Unigram, Metaspace", models.Unigram(unigram, 0, False), pre_tokenizers.Metaspace()
    yield "Unigram, WhitespaceSplit and Metaspace", models.Unigram(unigram, 0, False), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])


def main():
    cases = []
    for name, model, pre in tokenizers():
        tok = Tokenizer(model)
        tok.pre_tokenizer = pre
        fast = PreTrainedTokenizerFast(tokenizer_object=tok, unk_token="[UNK]")
        doc = json.loads(fast.backend_tokenizer.to_str())
        for i, chat in enumerate(CHATS):
            got = fast.apply_chat_template([{"role": r, "content": c} for r, c in chat], chat_template=TEMPLATE, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            cases.append({"name": name, "tokenizer": doc, "chat": i, "ids": got["input_ids"], "mask": got["assistant_masks"]})
    chats = [[{"role": r, "content": c} for r, c in chat] for chat in CHATS]
    OUT.write_text(json.dumps({"template": TEMPLATE, "chats": chats, "cases": cases}, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(len(cases), "cases")


main()
