"""Write dataset/token/unicode.txt: the characters of each class, as the Python library `tokenizers` sees them.

Run: python bench/golden/token_unicode.py. Made with `tokenizers` 0.23.3, whose regular expressions (Oniguruma 6.9.10) know Unicode 16,
whose pre-tokenizers follow Rust's tables (Unicode 17), and whose Punctuation follows an older table of its own.
A line is a name and ranges in hexadecimal, each as its distance from the end of the one before and its length less one. The last line
has the lower cases that Unicode 14 does not know.
"""
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/unicode.txt"
ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn".split()
SCRIPTS = "Han Hiragana Katakana Hangul Bopomofo Thai Lao Khmer Myanmar Tibetan Arabic Hebrew Cyrillic Greek Latin Armenian Georgian Devanagari Bengali Tamil Telugu Kannada Malayalam Gujarati Gurmukhi Sinhala Ethiopic Mongolian".split()


def members(expr):
    p = pre_tokenizers.Split(Regex(expr), "removed", invert=True)
    out = set()
    for at in range(0, len(ALL), 4096):
        for piece, _ in p.pre_tokenize_str("".join(map(chr, ALL[at:at + 4096]))):
            out.update(map(ord, piece))
    return sorted(out)


def cut_by(p):
    """Characters in front of and behind which the pre-tokenizer cuts."""
    return [c for c in ALL if len(p.pre_tokenize_str("a" + chr(c) + "a")) > 1]


def words():
    """Characters that make an added token beside them no single word."""
    t = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    t.add_tokens([AddedToken("Q", single_word=True, normalized=False)])
    return [c for c in ALL if 1 not in t.encode("Q" + chr(c)).ids]


def bert():
    """Characters that BertNormalizer drops, makes spaces of, and puts spaces around, and marks that strip_accents drops."""
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    clean, cjk = normalizers.BertNormalizer(**{**off, "clean_text": True}), normalizers.BertNormalizer(**{**off, "handle_chinese_chars": True})
    accents = normalizers.BertNormalizer(**{**off, "strip_accents": True})
    return {"bert_drop": [c for c in ALL if clean.normalize_str("a" + chr(c)) == "a"], "bert_space": [c for c in ALL if clean.normalize_str("a" + chr(c)) == "a "],
            "bert_cjk": [c for c in ALL if cjk.normalize_str(chr(c)) == f" {chr(c)} "], "accents": [c for c in ALL if accents.normalize_str("a" + chr(c)) == "a"],
            "StripAccents": [c for c in ALL if normalizers.StripAccents().normalize_str("a" + chr(c)) == "a"]}


def line(name, chars):
    ranges, end = [], 0
    for c in chars:
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    out = [name]
    for a, b in ranges:
        out.append(f"{a - end:x}" if a == b else f"{a - end:x}+{b - a:x}")
        end = b
    return " ".join(out) + "\n"


def main():
    lines = [line(c, members(rf"\p{{{c}}}")) for c in CATEGORIES + SCRIPTS]
    lines += [line(n, members(e)) for n, e in {"\\w": r"\w", "\\s": r"\s", "\\d": r"\d"}.items()]
    posix = "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit".split()
    lines += [line(f"[:{n}:]", members(f"[[:{n}:]]")) for n in posix]
    lines += [line("single_word", words()), line("Punctuation", cut_by(pre_tokenizers.Punctuation())), line("Digits", cut_by(pre_tokenizers.Digits())),
              line("Bert", cut_by(pre_tokenizers.BertPreTokenizer()))]
    lines += [line(n, c) for n, c in bert().items()]
    low = normalizers.Lowercase()
    lines.append("lower " + " ".join(f"{c:x}={ord(low.normalize_str(chr(c))):x}" for c in ALL if len(low.normalize_str(chr(c))) == 1 and low.normalize_str(chr(c)) != chr(c).lower()) + "\n")
    OUT.write_text("".join(lines))
    print(len(lines), "classes", OUT.stat().st_size, "bytes")


main()
