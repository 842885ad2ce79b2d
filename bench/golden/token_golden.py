"""Write the tokenizer goldens: dataset/token/testdata/{text.jsonl.gz, NAME.tokenizer.json.gz, NAME.ids.json.gz}.

Run: python bench/golden/token_golden.py. Needs `tokenizers` (made with 0.23.3). Vocabularies are trained here on the
fixture's own kind of text, because published ones may not be redistributed; the normalizer, pre-tokenizer,
post-processor and decoder sections are those of the published models.
"""
import gzip
import hashlib
import json
import pathlib
import zlib

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from token_text import lines

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata"
# The last line has characters of Unicode 15.1 and 16, which the three main tokenizers must class as the library does.
LINES = lines(7, 2400) + ["\u0897 \u1c89 \ua7cb \U000105c0 \U00010d4a\U00010d40 \U00011380 \U0002ebf0\U0002ee5d \U00013460 \U0001e5f1 later"]
TRAIN = lines(8, 12000) + ["Ġ"]
BYTE_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, trim=True, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def seq(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def added(id, content, **flags):
    base = dict(id=id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return {**base, **flags}


def template(bos, id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": bos, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}}


def train(pre, size, alphabet, norm=None):
    """Return (vocab, merges) trained with the given normalizer and pre-tokenizer."""
    t = Tokenizer(models.BPE())
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(TRAIN, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, limit_alphabet=2000))
    m = json.loads(t.to_str())["model"]
    return m["vocab"], m["merges"]


def model(vocab, merges, **flags):
    base = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False)
    return {**base, **flags, "vocab": vocab, "merges": merges}


def document(model, added_tokens, normalizer=None, pre=None, post=None, decoder=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def regex_split(*patterns, regex=False):
    parts = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)])


def llama3():
    vocab, merges = train(regex_split(LLAMA3), 5000, BYTE_ALPHABET)
    for w in ["Ġinternationalization", "jumps", "Ġ人人生而自由", "ĠÐ¼ÑıÐ³ÐºÐ¸Ñħ"]:  # reached only by ignore_merges
        vocab.setdefault(w, len(vocab))
    n = len(vocab)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(1, 20)]
    post = seq("processors", byte_level(True, False, True), template("<|begin_of_text|>", n))
    return document(model(vocab, [" ".join(m) for m in merges], ignore_merges=True), [added(n + i, s) for i, s in enumerate(names)],
                    pre=seq("pretokenizers", split(LLAMA3), byte_level()), post=post, decoder=byte_level(True, True, True))


def qwen():
    vocab, merges = train(regex_split(QWEN2), 6000, BYTE_ALPHABET, normalizers.NFC())
    n = len(vocab)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|vision_start|>", "<|image_pad|>"]
    tokens = [added(n + i, s) for i, s in enumerate(names)]
    tokens += [added(n + len(names) + i, s, special=False) for i, s in enumerate(["<tool_call>", "</tool_call>", "<think>"])]
    return document(model(vocab, [list(m) for m in merges], continuing_subword_prefix="", end_of_word_suffix=""), tokens, normalizer={"type": "NFC"},
                    pre=seq("pretokenizers", split(QWEN2), byte_level(False, False, False)), post=byte_level(False, False, False), decoder=byte_level(False, False, False))


def sentencepiece_model(size, words, **flags):
    """A SentencePiece-style BPE model: <unk> <s> </s>, 256 byte tokens, pieces, then characters."""
    pre = pre_tokenizers.Metaspace("▁", "always", words) if words else pre_tokenizers.Metaspace("▁", "always", False)
    trained, merges = train(pre, size, ["▁"])
    chars = [c for c in trained if len(c) == 1 and sum(c in line for line in TRAIN) >= 4 or c == "▁"]
    ok = set(chars)
    merges = [m for m in merges if set("".join(m)) <= ok]
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["".join(m) for m in merges] + sorted(chars)
    vocab = {}
    for s in names:
        vocab.setdefault(s, len(vocab))
    return model(vocab, merges, **{"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, **flags})


SP_TOKENS = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]
SP_DECODER = seq("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                 {"type": "Strip", "content": " ", "start": 1, "stop": 0})
SP_NORMALIZER = seq("normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"})


def sentencepiece():
    return document(sentencepiece_model(6000, True), SP_TOKENS, normalizer=SP_NORMALIZER, post=template("<s>", 1), decoder=SP_DECODER)


def variants():
    """Smaller vocabularies for the parts that the three main ones leave out."""
    gpt2_vocab, gpt2_merges = train(regex_split(regex=True), 1500, BYTE_ALPHABET)
    n = len(gpt2_vocab)
    yield "gpt2", document(model(gpt2_vocab, gpt2_merges), [added(n, "<|endoftext|>", normalized=True)], pre=byte_level(True, True, True),
                           post=byte_level(True, False, True), decoder=byte_level(True, True, True))
    odd = [added(n, "<MASK>", lstrip=True), added(n + 1, "<L>", lstrip=True), added(n + 2, "<R>", rstrip=True), added(n + 3, "ONE", single_word=True, special=False),
           added(n + 4, "NORM", normalized=True, special=False), added(n + 5, "<|im_|im_end|>"), added(n + 6, "<|im_"), added(n + 7, "café", normalized=True)]
    yield "added", document(model(gpt2_vocab, gpt2_merges), odd, normalizer=seq("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}),
                            pre=seq("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level(False, True, True)), decoder=byte_level(True, True, True))
    vocab, merges = train(regex_split(*DEEPSEEK), 1500, BYTE_ALPHABET)
    yield "deepseek", document(model(vocab, merges), [added(len(vocab), "<｜begin▁of▁sentence｜>")], normalizer=seq("normalizers"),
                               pre=seq("pretokenizers", *[split(p) for p in DEEPSEEK], byte_level()), post=byte_level(True, False, True), decoder=byte_level(True, True, True))
    vocab, merges = train(regex_split(O200K), 1500, BYTE_ALPHABET)
    yield "tekken", document(model(vocab, merges, ignore_merges=True), [added(len(vocab), "<s>")], pre=seq("pretokenizers", split(O200K), byte_level()),
                             post=template("<s>", len(vocab)), decoder=byte_level(True, True, True))
    first = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    yield "mistral", document(sentencepiece_model(1500, True), SP_TOKENS, pre=first, post=template("<s>", 1), decoder=SP_DECODER)
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    yield "unknown", document(sentencepiece_model(1200, True, byte_fallback=False), SP_TOKENS, pre=meta, decoder=meta)
    yield "phrases", document(sentencepiece_model(1500, False, fuse_unk=False, byte_fallback=False), SP_TOKENS, normalizer=SP_NORMALIZER, decoder=SP_DECODER)
    digits = {"type": "Digits", "individual_digits": False}
    space = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    yield "cuts", document(model(gpt2_vocab, gpt2_merges), [], normalizer=seq("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFD"}),
                           pre=seq("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, digits, space, split(r"[aeiou]+", "MergedWithNext"), byte_level()), decoder=byte_level())
    yield "words", document(model(gpt2_vocab, gpt2_merges), [], pre=seq("pretokenizers", {"type": "WhitespaceSplit"}, split(r"\p{L}+|\p{N}+", "Removed", True), byte_level()), decoder=byte_level())


def write(name, data):
    (OUT / name).write_bytes(gzip.compress(data, 9, mtime=0))


def ids_of(doc, texts):
    """Ids with special tokens, how many of them lead, and a checksum of each decoded text."""
    t = Tokenizer.from_str(json.dumps(doc))
    rows = [t.encode(s).ids for s in texts]
    plain = [t.encode(s, add_special_tokens=False).ids for s in texts]
    lead = {len(a) - len(b) for a, b in zip(rows, plain)}
    assert len(lead) == 1 and all(a[lead_n:] == b for a, b in zip(rows, plain) for lead_n in lead), "special tokens only lead"
    decoded = [t.decode(r, skip_special_tokens=False) for r in rows]
    skipped = [t.decode(r) for r in rows]
    check = lambda texts: [zlib.crc32(s.encode()) for s in texts]
    return {"lead": lead.pop(), "ids": rows, "decoded": check(decoded), "skipped": check(skipped)}


def classes():
    """Count and hash of the characters in each class, as the library's regular expressions see them."""
    out = {}
    for name, regex in dict(letter=r"\p{L}", number=r"\p{N}", space=r"\s", mark=r"\p{M}").items():
        s = pre_tokenizers.Split(Regex(regex), "removed", invert=True)
        chars = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000 and s.pre_tokenize_str(chr(c))]
        out[name] = [len(chars), hashlib.sha256(",".join(map(str, chars)).encode()).hexdigest()]
    return out


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write("text.jsonl.gz", "".join(json.dumps(s, ensure_ascii=False) + "\n" for s in LINES).encode())
    (OUT / "classes.json").write_text(json.dumps(classes(), indent=1) + "\n")
    trained = json.loads(gzip.decompress((OUT / "trained.tokenizer.json.gz").read_bytes()))  # written by TestTrainDeterministic -rewrite
    write("trained.ids.json.gz", json.dumps(ids_of(trained, LINES[:700]), separators=(",", ":")).encode())
    for name, doc, texts in [("llama3", llama3(), LINES), ("qwen", qwen(), LINES), ("sentencepiece", sentencepiece(), LINES)] + [(n, d, LINES[:700]) for n, d in variants()]:
        write(name + ".tokenizer.json.gz", json.dumps(doc, ensure_ascii=False, separators=(",", ":")).encode())
        write(name + ".ids.json.gz", json.dumps(ids_of(doc, texts), separators=(",", ":")).encode())
        print(name, len(doc["model"]["vocab"]), sum(map(len, ids_of(doc, texts)["ids"])))


main()
