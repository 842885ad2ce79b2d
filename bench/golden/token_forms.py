"""Write dataset/token/testdata/forms.json: the four normal forms of strings of marks, as the Python library `tokenizers` writes them.

Run: python bench/golden/token_forms.py. Made with `tokenizers` 0.23.3, whose normal forms have the tables of Unicode 9 (the Rust crate
unicode-normalization-alignments). It prints the marks that reorder for Python and not for the library, which dataset/token/forms.go has as laterMarks.
"""
import json
import pathlib
import random
import unicodedata

from tokenizers import normalizers

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata/forms.json"
FORMS = {n: getattr(normalizers, n)() for n in ("NFC", "NFD", "NFKC", "NFKD")}


def moves(c):
    """Whether the library takes a character for a mark: it goes behind a mark of class 1, or in front of one of class 240."""
    return any(FORMS["NFD"].normalize_str(s) != s for s in ("a\u0345" + c, "a" + c + "\u0334"))


ALL = [chr(c) for c in range(0x300, 0x110000) if not 0xD800 <= c <= 0xDFFF and unicodedata.normalize("NFD", chr(c)) == chr(c)]
theirs = {c for c in ALL if moves(c)}
marks = [c for c in ALL if unicodedata.combining(c)]
later = [c for c in marks if c not in theirs and unicodedata.combining(c) > 1]
print(len(later), " ".join(f"{ord(c):x}" for c in later))
rng = random.Random(25)
base = list("aeK\u0915\u0d15\u0d4d\u3053\uac00\u1100\u1161\u00e9\u1e69\u11935\u11930\ufb01\u32ff")
strings = ["\u08fe\u0d3c", "\u0d3c\u08fe", "a\u0d3c\u0301", "\U00011935\U00011930", "e\u0898\u0301"]
for _ in range(400):
    strings.append("".join(rng.choice(rng.choice([base, marks, marks, later])) for _ in range(rng.randint(1, 7))))
OUT.write_text(json.dumps([[s] + [FORMS[f].normalize_str(s) for f in ("NFC", "NFD", "NFKC", "NFKD")] for s in strings], indent=0) + "\n")
