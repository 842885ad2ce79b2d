"""Writes dataset/words/english.json, the rules by which spaCy's blank English pipeline cuts words and sentences,
and dataset/words/testdata/words.json, what it makes of texts that its rules meet in every place.

    python bench/golden/words_spacy.py     (spacy 3.8, MIT licence; datatrove 0.10 for the form of MinHash's texts)
"""

import json
import random
import re
import unicodedata

import spacy
from datatrove.utils.text import PUNCTUATION, TERMINAL_PUNCTUATION, simplify_text, split_into_sentences, split_into_words
from spacy.lang import char_classes as c
from spacy.lang.tokenizer_exceptions import BASE_EXCEPTIONS  # noqa: F401: the table holds them
from spacy.pipeline import Sentencizer

SPACE = [chr(x) for x in range(0x110000) if chr(x).isspace()]


def ranges(test):
    """The code points for which test holds, as [first, last] pairs."""
    out = []
    for x in range(0x110000):
        if 0xD800 <= x < 0xE000 or not test(chr(x)):
            continue
        if out and out[-1][1] == x - 1:
            out[-1][1] = x
        else:
            out.append([x, x])
    return out


def of(pattern):
    r = re.compile(pattern)
    return ranges(lambda ch: r.fullmatch(ch) is not None)


def singles(pieces):
    """What of an affix table stands for one character, whatever is around it."""
    r = re.compile("|".join(p for p in pieces if p.strip() and "(?" not in p and ".." not in p))
    return ranges(lambda ch: ch != "+" and r.fullmatch(ch) is not None)


def table():
    nlp = spacy.blank("en")
    t, d = nlp.tokenizer, nlp.Defaults
    unit = [u for u in c.split_chars(c._units) if u]
    money = [m.replace("\\", "") for m in c.LIST_CURRENCY]
    rules = {k: [p[65] if 65 in p else p[spacy.symbols.ORTH] for p in v] for k, v in t.rules.items()}
    affixed = [k for k in sorted(rules) if t.find_prefix(k) or t.find_infix(k) or t.find_suffix(k) or " " in k]
    bare = spacy.tokenizer.Tokenizer(nlp.vocab, rules=None, prefix_search=t.prefix_search,
                                     suffix_search=t.suffix_search, infix_finditer=t.infix_finditer,
                                     url_match=t.url_match)
    dot = c.ALPHA_LOWER + r"%²\-\+" + c.PUNCT + "(?:" + c.CONCAT_QUOTES + ")0-9"
    return {
        "source": "spaCy %s, spacy/lang/en and spacy/lang/punctuation.py, MIT licence" % spacy.__version__,
        "classes": {
            "prefix": singles(d.prefixes), "suffix": singles(d.suffixes),
            "infix": singles([p for p in d.infixes if "(?" not in p]),
            "beforeDot": of("[" + dot + "]"), "upper": of("[" + c.ALPHA_UPPER + "]"),
            "lowerQuote": of("[" + c.ALPHA_LOWER + c.CONCAT_QUOTES + "]"),
            "upperQuote": of("[" + c.ALPHA_UPPER + c.CONCAT_QUOTES + "]"), "alpha": of("[" + c.ALPHA + "]"),
            "lower": of("[" + c.ALPHA_LOWER + "]"),
            "space": ranges(str.isspace), "letter": ranges(str.isalpha),
            "punct": ranges(lambda ch: unicodedata.category(ch).startswith("P")),
            "mark": ranges(lambda ch: unicodedata.category(ch) == "Mn"),
            "digit": ranges(lambda ch: unicodedata.category(ch) == "Nd"),
            "word": ranges(lambda ch: ch.isalnum() or ch == "_"),
            "sentence": ranges(lambda ch: ch in Sentencizer.default_punct_chars),
            "blank": ranges(lambda ch: ch in PUNCTUATION),
            "terminal": ranges(lambda ch: ch in TERMINAL_PUNCTUATION),
        },
        "units": unit, "currency": money,
        "rules": [[k] + rules[k] for k in sorted(rules)],
        "affixed": [[k] + [w.text for w in bare(k)] for k in affixed],
    }


def texts():
    """Texts of words, of pieces of the rules, and of both with each other."""
    rnd = random.Random(7)
    nlp = spacy.blank("en")
    rules = sorted(nlp.tokenizer.rules)
    plain = ("the quick brown fox don't can't it's I'm U.S. e.g. i.e. Dr. Mr. Smith's well-known 3.5km 10% $5 US$20 5€ "
             "http://example.com/a?b=c www.foo.org user@mail.example.com 192.168.1.1 8.8.8.8 10:30 a/b x=y <b> C++ "
             "naïve café ÉCOLE straße Ünïcode Москва 你好世界 日本語。 العربية हिन्दी 1,000.50 2-3 (see) [1] {x} ... … …… "
             "end. End? Yes! \"quoted\" 'single' “smart” ‘s’ co-op state-of-the-art -- — – a.b A.B ab.Cd foo,bar Foo:bar "
             "20°C. 5°F. #tag @user 50+ +1 *bold* _it_ & § © ® ° :) :-( ;) <3 xD (: 8) o_O ^_^ ¯\\(ツ)/¯ can.t wo n't "
             "10km/h 5kg. 3mm² 7\" 6' o'clock rock'n'roll y'all could've shouldn't've Σίσυφος ὈΔΥΣΣΕΎΣ İstanbul ǅ ㎏ ½ ²").split()
    chars = "abcXYZ019.,:;!?'\"()[]{}<>-–—…$€%+*/=_#&@ \u00a0\n\t\u2028\u3000\x1c·“”‘’éßİΣςДя中あक°²©😀️♥|\\^~`"
    out = []
    for _ in range(900):
        n = rnd.randrange(1, 30)
        parts = []
        for _ in range(n):
            k = rnd.random()
            if k < 0.5:
                parts.append(rnd.choice(plain))
            elif k < 0.65:
                parts.append(rnd.choice(rules))
            elif k < 0.8:
                parts.append("".join(rnd.choice(chars) for _ in range(rnd.randrange(1, 8))))
            else:
                parts.append(rnd.choice("()[]\"'.,:;!?…-—") + rnd.choice(plain + rules) + rnd.choice("()[]\"'.,:;!?…-—+%"))
        glue = ["", " ", " ", " ", " ", "\n", "  ", "\n\n", ". "]
        out.append("".join(p + rnd.choice(glue) for p in parts))
    out += ["", " ", "\n", "a", ".", "..", "IS_ALPHA"]
    return [t for t in out if "\ud800" not in t]


def main():
    with open("dataset/words/english.json", "w") as f:
        t = table()
        f.write("{\n" + ",\n".join("%s: %s" % (json.dumps(k), json.dumps(v, ensure_ascii=True, separators=(",", ":")))
                                   for k, v in t.items()) + "\n}\n")
    with open("dataset/words/testdata/words.json", "w") as f:
        for x in texts():
            json.dump({"text": x, "words": split_into_words(x), "sentences": split_into_sentences(x),
                       "simple": simplify_text(x), "lines": x.splitlines(), "fields": x.split()}, f, ensure_ascii=True,
                      separators=(",", ":"))
            f.write("\n")


if __name__ == "__main__":
    main()
