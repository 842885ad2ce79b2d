"""Write dataset/token/testdata/models/: tokenizers of other kinds than byte-level BPE, and what the libraries make of text with them.

Run: python bench/golden/token_models.py. Made with sentencepiece 0.2.3, tiktoken 0.14.0 and tokenizers 0.23.3. Files are gzipped; NAME.ids.json.gz has
a list of ids for each line of text, without special tokens.
"""
import base64
import gzip
import io
import json
import pathlib

import sentencepiece as spm
import tiktoken
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from token_text import lines

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata/models"
TRAIN = [s for s in lines(9, 4000) if "\0" not in s]
MARKS = "".join(chr(0x301 + i % 7) for i in range(40))
# SentencePiece itself finds no control pieces in text; transformers and we do.
LINES = [s for s in lines(11, 250) if "\0" not in s and "<unk>" not in s and "s>" not in s and "<|" not in s] + ["  two  spaces ", "", " ", "ﬁ ① Å ½ ﷺ ㎏ é\u0301", "a" + MARKS + "b", "\u0958 가각 ᄀ\u1161", "word" * 40, "naïve café ÅNGSTRÖM 漢字 кошка's don't!"]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def write(name, data):
    (OUT / name).write_bytes(gzip.compress(data, 9, mtime=0))


def ids(name, encode):
    write(name + ".ids.json.gz", json.dumps([encode(s) for s in LINES], separators=(",", ":")).encode())


def sentencepiece(name, **options):
    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(TRAIN), model_writer=out, minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
    write(name + ".model.gz", out.getvalue())
    p = spm.SentencePieceProcessor(model_proto=out.getvalue())
    ids(name, lambda s: p.encode(s))
    return p, out.getvalue()


def tokenizer(name, t):
    write(name + ".tokenizer.json.gz", t.to_str().encode())
    ids(name, lambda s: t.encode(s, add_special_tokens=False).ids)
    write(name + ".text.json.gz", json.dumps([t.decode(t.encode(s, add_special_tokens=False).ids) for s in LINES]).encode())


def unigram(p, proto):
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto.FromString(proto)
    t = Tokenizer(models.Unigram([(x.piece, x.score) for x in m.pieces], 0, byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap), normalizers.Replace(__import__("tokenizers").Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace()
    return t


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=60))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    t.train_from_iterator(TRAIN, trainers.WordPieceTrainer(vocab_size=1200, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False, limit_alphabet=400))
    t.add_special_tokens([AddedToken("[MASK]")])
    return t


def qwen():
    ranks = {bytes([i]): i for i in range(256)}
    t = json.loads(gzip.decompress((OUT.parent / "qwen.tokenizer.json.gz").read_bytes()))
    alphabet = {c: b for b, c in zip(range(256), byte_alphabet())}
    for a, b in [m.split(" ") if isinstance(m, str) else m for m in t["model"]["merges"]]:
        ranks.setdefault(bytes(alphabet[c] for c in a + b), len(ranks))
    write("qwen.tiktoken.gz", b"".join(base64.b64encode(k) + b" " + str(v).encode() + b"\n" for k, v in ranks.items()))
    import unicodedata
    e = tiktoken.Encoding("qwen", pat_str=QWEN, mergeable_ranks=ranks, special_tokens={})
    ids("qwen.tiktoken", lambda s: e.encode(unicodedata.normalize("NFC", s), disallowed_special=()))


def byte_alphabet():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(rest)) for b in range(256)]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write("text.json.gz", json.dumps(LINES).encode())
    p, proto = sentencepiece("unigram", model_type="unigram", vocab_size=2600, character_coverage=0.98)
    tokenizer("unigram_hf", unigram(p, proto))
    sentencepiece("bpe", model_type="bpe", vocab_size=2600, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, character_coverage=0.98,
                  split_digits=True, user_defined_symbols=["<user>"], control_symbols=["<tool>"], max_sentencepiece_length=12)
    sentencepiece("unigram_bytes", model_type="unigram", vocab_size=2600, byte_fallback=True, add_dummy_prefix=False, normalization_rule_name="nfkc_cf", character_coverage=0.98)
    tokenizer("wordpiece", wordpiece())
    qwen()
    print(sum(f.stat().st_size for f in OUT.iterdir()), "bytes")


if __name__ == "__main__":
    main()
