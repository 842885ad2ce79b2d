"""Write dataset/token/testdata/cuts_all.json: where pre-tokenizers cut, and what normalizers make, beside every character of the first two planes
of Unicode and some of the others.

Run: python bench/golden/token_cuts.py. Made with `tokenizers` 0.23.3. Of each character c the text "x" c "'1 " is looked at; a number is the
CRC-32 of all pieces, each with a zero byte behind it, or of all normal forms.
"""
import json
import pathlib
import zlib

from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata/cuts_all.json"
ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF and (c < 0x20000 or c % 61 == 0)]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
REGEX = {"llama3": LLAMA3, "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "o200k": O200K, "deepseek": DEEPSEEK,
         "words": r"\w+|[^\w\s]+", "not words": r"\W+|[\W\d]x", "han": r"\p{Han}+|\P{Han}", "negated": r"[^\P{L}x]+|[^\S ]+"}


def crc(pre):
    out = 0
    for c in ALL:
        for piece, _ in pre.pre_tokenize_str("x" + chr(c) + "'1 "):
            out = zlib.crc32(piece.encode() + b"\0", out)
    return out


def main():
    cuts = {n: [{"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}, crc(pre_tokenizers.Split(Regex(r), "isolated"))] for n, r in REGEX.items()}
    for kind, pre in {"Punctuation": pre_tokenizers.Punctuation(), "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(), "Whitespace": pre_tokenizers.Whitespace(),
                      "Digits": pre_tokenizers.Digits(individual_digits=True), "BertPreTokenizer": pre_tokenizers.BertPreTokenizer()}.items():
        cuts[kind] = [{"type": kind, "individual_digits": True}, crc(pre)]
    forms = {}
    for kind, n in {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(), "Lowercase": normalizers.Lowercase(),
                    "StripAccents": normalizers.StripAccents(), "BertNormalizer": normalizers.BertNormalizer(), "Nmt": normalizers.Nmt()}.items():
        out = 0
        for c in ALL:
            out = zlib.crc32(n.normalize_str("x" + chr(c) + "'1 ").encode() + b"\0", out)
        forms[kind] = out
    OUT.write_text(json.dumps({"cuts": cuts, "forms": forms}, indent=1) + "\n")


main()
