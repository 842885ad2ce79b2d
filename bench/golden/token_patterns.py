"""Write dataset/token/testdata/patterns.json: what the regular expressions of `tokenizers` (Oniguruma) match where other engines read a
pattern otherwise: classes within classes, intersections, POSIX brackets, anchors, flags.

Run: python bench/golden/token_patterns.py. Made with `tokenizers` 0.23.3. null stands for a pattern that it refuses.
"""
import json
import pathlib

from tokenizers import Regex, pre_tokenizers

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/testdata/patterns.json"
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = [KIMI, "[[:alpha:]]+", "[[:^alpha:]]+", "[^[:alpha:]]+", "[[:punct:]]", "[[:upper:][:digit:]]+", "[[:space:]]+", "[[:blank:]]", "[[:word:]]+",
            "[[:alnum:]_]+", "[[:xdigit:]]+", "[[:cntrl:]]", "[[:graph:]]+", "[[:print:]]+", "[[:ascii:]]+", "[[:lower:]]+", "[[:foo:]]",
            r"[\p{L}&&[^\p{Han}]]+", "[a-z&&[^aeiou]&&[a-m]]+", "[^a-z&&[aeiou]]+", "[[a-c]x-z]+", "[a[b]-c]+", "[]a]+", "[^]a]+", "[a-c-e]+", "[&&a]", "[a&&]",
            "[[a]&&[a]]", r"[a-z&&\w]+", r"[\p{L}&&\p{Lu}]+", r"[^\W\d]+", r"[\h]+", r"\h+", r"\H+", r"[[:alpha:]&&[^é]]+", r"[a\-z]+", r"[\]\[]+", r"[[]]", "[-a]+", "[a-]+",
            "^a", "a$", "^", "a^b", "(?m:a.)", "(?m)a.", "a.", "(?i:[a-c]+)", r"\bab\b", r"\Bb", r"\Aa", r"b\Z", r"b\z", r"\R", r"\N+", r"\O", "a{,2}b", "a{2,}b", r"\x41+", r"\x{41}", r"[\u0041-\u0043]+",
            r"[\x{4e00}-\x{4fff}]+", r"(?<=a)b", r"(?<!a)b", r"(?>a+)b", r"[\p{L}--[a]]", r"[a-\d]", r"[\d-z]", r"[^\p{L}\p{N}\s&&[^_]]+", r"(?i)ab(?-i:c)", r"(?i:a[b&&[a-c]])", r"\p{^L}+", r"\P{L}+", r"[\P{L}&&[^\s]]+"]
TEXTS = ["Hello world, it's 12345 o'clock!\n\n漢字かな交じり文 test漢字DONE's\r\n  x_y = [a-b] & $5+<b>^`|~",
         "ab1é漢\naab abb\na aaab]b[-c&&e\n", "ABC abc xab ab\tDeF 0fF\x01\x7f\x85\u2028Ünïcödé Ǆ ǅ ٣٤ ௧ ⅷ ² ʰ ́e \u00a0x", "", "\n", "a\n", "a\nb\n\nA b"]
found = {}
for p in PATTERNS:
    try:
        cut = pre_tokenizers.Split(Regex(p), "removed", invert=True)
        found[p] = [[piece for piece, _ in cut.pre_tokenize_str(t)] for t in TEXTS]
    except Exception:
        found[p] = None
OUT.write_text(json.dumps({"texts": TEXTS, "found": found}, ensure_ascii=True, indent=0) + "\n")
print(len(PATTERNS), "patterns,", sum(v is None for v in found.values()), "refused")
