"""Tokenizers of text encoders: dataset/token/testdata/encoders/, folders as diffusers keeps them, and the ids of text.

  clip      vocab.json, merges.txt and tokenizer_config.json as Stable Diffusion's, read by transformers' CLIPTokenizer
  clip-pad  the same vocabulary with the configuration of SDXL's second encoder, which fills with "!"
  clip-hf   tokenizer.json as openai/clip-vit-large-patch14 has it
  t5        spiece.model, cut by SentencePiece itself, with </s> behind
  t5-hf     tokenizer.json as transformers' T5Tokenizer saves it
  umt5-hf   tokenizer.json with bytes for unknown characters

Run: python bench/golden/token_clip.py; with a folder and a number of lines it writes as many other lines there, and the ids
of the committed tokenizers (TestEncodersOfManyTexts). Made with sentencepiece 0.2.3, tokenizers 0.23.3, transformers 5.24.0.
Vocabularies are trained on the fixture's own kind of text. Files are gzipped; ids.json has lists of ids with special tokens, null where there is no reference.
"""

import collections
import gzip
import io
import json
import pathlib
import shutil
import sys
import tempfile
import unicodedata

import sentencepiece as spm
import transformers
from sentencepiece import sentencepiece_model_pb2 as pb
from token_text import lines
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata/encoders"
SPLIT = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BOS, EOS = "<|startoftext|>", "<|endoftext|>"
ODD = ["", " ", "hello", "Hello, World!", "!!", "a photo of a CAT!", "it's 2024, they'd said", "<|endoftext|>", "x <|STARTOFTEXT|> y", "a<|endoftext|>b",
       "İstanbul ſtraße ẞ", "e\u0301 é \u1e9b\u0323", "tab\tand\u00a0space\u2003wide", "ﬁ ① Å ½ ﷺ ㎏", "\ufeffmark", "</s> <pad> <unk> <extra_id_0>", "▁a ▁▁b", "🤖🎨 art", "漢字 кошка"]


def texts(seed, n):
    return [s for s in lines(seed, n + n // 4) if "\0" not in s][:n]


def flags(content, normalized, **more):
    return dict(content=content, lstrip=False, normalized=normalized, rstrip=False, single_word=False, **more)


def clip_pipeline(t):
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()


def clip_vocabulary():
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    clip_pipeline(t)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=1600, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False)
    t.train_from_iterator(texts(5, 3000), trainer)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in json.loads(t.to_str())["model"]["merges"]]
    names = alphabet + [c + "</w>" for c in alphabet] + ["".join(m) for m in merges] + [BOS, EOS]
    vocab = {}
    for s in names:
        vocab.setdefault(s, len(vocab))
    return vocab, merges


def rules():
    """A part of SentencePiece's nmt_nfkc: single characters below U+FFFF of a few blocks, accents that compose, controls and spaces."""
    out = {}
    for c in [*range(0x2000, 0x2100), *range(0x2100, 0x2190), *range(0x2460, 0x2500), *range(0xFB00, 0xFB07), *range(0xFF01, 0xFF9F), *range(0xA0, 0x100)]:
        if unicodedata.normalize("NFKC", chr(c)) != chr(c):
            out[chr(c)] = unicodedata.normalize("NFKC", chr(c))
    for base in "aeiouncsAEIOUNCS":
        for mark in "\u0300\u0301\u0302\u0303\u0308\u030c\u0327":
            out[base + mark] = unicodedata.normalize("NFKC", base + mark)
    out |= {chr(c): " " for c in (9, 10, 13, 0xA0, 0x1680, 0x2028, 0x2029, 0x3000, 0xFEFF, *range(0x2000, 0x2010))} | {chr(c): "" for c in (*range(1, 9), 11, *range(14, 32), 0x7F)}
    path = pathlib.Path(tempfile.mkdtemp()) / "rules.tsv"
    code = lambda s: " ".join(f"{ord(c):X}" for c in s)
    path.write_text("".join(f"{code(a)}\t{code(b)}\n" for a, b in sorted(out.items()) if a != b))
    return str(path)


def sentencepiece(often, **options):
    """A model of texts all of whose characters are there often, so that its vocabulary may be small."""
    out, train = io.BytesIO(), texts(9, 6000)
    count = collections.Counter("".join(train))
    train = [s for s in train if all(count[c] >= often for c in s)]
    spm.SentencePieceTrainer.train(sentence_iterator=iter(train), model_writer=out, minloglevel=2, num_threads=1, hard_vocab_limit=False, vocab_size=1800,
                                   model_type="unigram", character_coverage=1.0, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, unk_surface=" ⁇ ", normalization_rule_tsv=rules(), **options)
    return out.getvalue()


def write(name, file, data):
    (OUT / name).mkdir(parents=True, exist_ok=True)
    (OUT / name / (file + ".gz")).write_bytes(gzip.compress(data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(), 9, mtime=0))


def make():
    shutil.rmtree(OUT, ignore_errors=True)
    vocab, merges = clip_vocabulary()
    old = dict(add_prefix_space=False, bos_token=flags(BOS, True, __type="AddedToken"), eos_token=flags(EOS, True, __type="AddedToken"), do_lower_case=True, errors="replace",
               model_max_length=77, pad_token=EOS, tokenizer_class="CLIPTokenizer", unk_token=flags(EOS, True, __type="AddedToken"))
    second = dict(add_prefix_space=False, added_tokens_decoder={str(vocab["!"]): flags("!", False, special=True), str(vocab[BOS]): flags(BOS, True, special=True),
                  str(vocab[EOS]): flags(EOS, True, special=True)}, bos_token=BOS, eos_token=EOS, pad_token="!", unk_token=EOS, model_max_length=77, tokenizer_class="CLIPTokenizer")
    for name, config in (("clip", old), ("clip-pad", second)):
        write(name, "vocab.json", vocab)
        write(name, "merges.txt", ("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges)).encode())
        write(name, "tokenizer_config.json", config)
    hf = Tokenizer(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix="</w>", unk_token=EOS, fuse_unk=False))
    clip_pipeline(hf)
    hf.add_special_tokens([BOS, EOS])
    hf.post_processor = processors.RobertaProcessing((EOS, vocab[EOS]), (BOS, vocab[BOS]), False, False)
    write("clip-hf", "tokenizer.json", hf.to_str().encode())
    proto = sentencepiece(60)
    write("t5", "spiece.model", proto)
    m = pb.ModelProto.FromString(proto)
    charsmap = m.normalizer_spec.precompiled_charsmap
    pieces = [(p.piece, p.score) for p in m.pieces] + [(f"<extra_id_{i}>", 0.0) for i in reversed(range(10))]
    t5 = transformers.T5Tokenizer(vocab=pieces, _spm_precompiled_charsmap=charsmap, extra_ids=10)
    write("t5-hf", "tokenizer.json", t5.backend_tokenizer.to_str().encode())
    m = pb.ModelProto.FromString(sentencepiece(400, byte_fallback=True))
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], 2, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(["<pad>", "</s>", "<unk>"])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    write("umt5-hf", "tokenizer.json", t.to_str().encode())


def encoders():
    """The function of each folder that gives the ids of a text."""
    out = {}
    for folder in sorted(OUT.iterdir()):
        with tempfile.TemporaryDirectory() as d:
            for f in folder.glob("*.gz"):
                (pathlib.Path(d) / f.stem).write_bytes(gzip.decompress(f.read_bytes()))
            have = {f.name for f in pathlib.Path(d).iterdir()}
            if "tokenizer.json" in have:
                t = Tokenizer.from_file(d + "/tokenizer.json")
                out[folder.name] = lambda s, t=t: t.encode(s).ids
            elif "spiece.model" in have:
                p = spm.SentencePieceProcessor(model_file=d + "/spiece.model")
                out[folder.name] = lambda s, p=p: None if any(c in s for c in ("<pad>", "</s>", "<unk>")) else p.encode(s) + [1]  # it finds no control pieces in text; transformers does
            else:
                t = transformers.CLIPTokenizer.from_pretrained(d)
                out[folder.name] = lambda s, t=t: t(s).input_ids
    return out


def ids(text):
    return {name: [encode(s) for s in text] for name, encode in encoders().items()}


def decoded():
    """What tokenizers makes of the ids of ODD again."""
    t = Tokenizer.from_str(gzip.decompress((OUT / "clip-hf/tokenizer.json.gz").read_bytes()).decode())
    return [t.decode(t.encode(s).ids) for s in ODD]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        text = texts(77, int(sys.argv[2]))
        (pathlib.Path(sys.argv[1]) / "ids.json").write_text(json.dumps(dict(text=text, ids=ids(text))))
    else:
        make()
        text = ODD + texts(12, 150)
        (OUT.parent / "encoders.json.gz").write_bytes(gzip.compress(json.dumps(dict(text=text, ids=ids(text), decoded=decoded()), separators=(",", ":")).encode(), 9, mtime=0))
