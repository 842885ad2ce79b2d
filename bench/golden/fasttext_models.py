"""Writes small fastText classifiers and their scores to dataset/fasttext/testdata: softmax, hierarchical softmax, one-vs-all, with
word and letter n-grams, and quantized ones.

    python bench/golden/fasttext_models.py     (fasttext-wheel 0.9.2)
"""

import json
import os
import random
import tempfile

import fasttext

OUT = "dataset/fasttext/testdata"
KINDS = {
    "softmax": dict(loss="softmax", dim=8, minn=0, maxn=0, wordNgrams=1),
    "ngrams": dict(loss="softmax", dim=6, minn=2, maxn=4, wordNgrams=2, bucket=500),
    "hs": dict(loss="hs", dim=8, minn=2, maxn=3, wordNgrams=1, bucket=300),
    "ova": dict(loss="ova", dim=8, minn=0, maxn=0, wordNgrams=2, bucket=300),
    "quantized": dict(loss="softmax", dim=8, minn=0, maxn=0, wordNgrams=2, bucket=400, quantize=dict(dsub=2)),
    "pruned": dict(loss="hs", dim=8, minn=2, maxn=3, wordNgrams=2, bucket=400,
                   quantize=dict(dsub=2, qnorm=True, cutoff=300, retrain=False)),
}
WORDS = {"en": "the of and to in is that for it as was with be by on not he his but at are this have from which",
         "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden",
         "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont",
         "zh": "的 一 是 不 了 人 我 在 有 他 这 中 大 来 上 国 个 到 说 们 为 子 和 你",
         "el": "και το να του η της με που την από για τα ότι στο είναι τον θα στην οι αλλά"}


def text(rnd, lang, n):
    return " ".join(rnd.choice(WORDS[lang].split()) for _ in range(n))


def main():
    os.makedirs(OUT, exist_ok=True)
    rnd = random.Random(3)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        for _ in range(600):
            lang = rnd.choice(sorted(WORDS))
            f.write("__label__%s %s\n" % (lang, text(rnd, lang, rnd.randrange(3, 12))))
        f.flush()
        tests = ["", "the", "naïve café 你好", "a\tb\x0bc d\x00e", "</s> the </s> der", "__label__en word", "x" * 1300]
        for _ in range(25):
            a, b = rnd.choice(sorted(WORDS)), rnd.choice(sorted(WORDS))
            tests.append(text(rnd, a, rnd.randrange(0, 9)) + " unknownword " + text(rnd, b, rnd.randrange(0, 4)))
        for name, o in sorted(KINDS.items()):
            o = dict(o)
            q = o.pop("quantize", None)
            m = fasttext.train_supervised(f.name, thread=1, epoch=15, lr=0.5, verbose=0, **o)
            if q:
                m.quantize(input=f.name, thread=1, **q)
            m.save_model(os.path.join(OUT, name + ".bin"))
            with open(os.path.join(OUT, name + ".json"), "w") as g:
                json.dump([{"text": t, "scores": dict((l, p) for p, l in m.f.predict(t + "\n", -1, 0.0, "strict"))}
                           for t in tests], g, ensure_ascii=True, separators=(",", ":"))


if __name__ == "__main__":
    main()
