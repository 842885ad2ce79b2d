"""Writes documents in which every rule of Datatrove's filters fires, and what Datatrove makes of them.

    python bench/golden/curate.py [--documents 20000 --out /tmp/curate]

Without arguments it writes the small set to dataset/curate/testdata. The Go test takes another folder from LFACTOR_CURATE, so that
20,000 documents are compared:

    LFACTOR_CURATE=/tmp/curate go test ./dataset/curate -run Datatrove -v

Made with datatrove 0.10.1, spacy 3.8 and Python 3.11. Three things are set to one rule here: the formatter of PII begins its list of
replacements anew with each document, and scores of fastText are asked of the library itself, since the wheel that runs on numpy 2 fails
in its wrapper.
"""

import argparse
import copy
import gzip
import json
import logging
import os
import random
import sys
import tempfile

import fasttext
from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import (MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature)
from datatrove.pipeline.filters.c4_filters import C4ParagraphFilter, C4QualityFilter
from datatrove.pipeline.filters.fineweb_quality_filter import FineWebQualityFilter
from datatrove.pipeline.filters.gopher_quality_filter import GopherQualityFilter
from datatrove.pipeline.filters.gopher_repetition_filter import GopherRepetitionFilter
from datatrove.pipeline.formatters.pii import PIIFormatter
from datatrove.utils.hashing import HashConfig, create_hash_func
from datatrove.utils.text import ngrams, simplify_text
from datatrove.utils.word_tokenizers import load_word_tokenizer

logging.disable(logging.CRITICAL)
from loguru import logger  # noqa: E402

logger.remove()

COMMON = ("the be to of and that have with a in it is for not on he as you do at this but his by from they we say her she or an will my "
          "one all would there their what so up out if about who get which go me when make can like time no just him know take people "
          "into year your good some could them see other than then now look only come its over think also back after use two how our "
          "work first well way even new want because any these give day most us").split()
RARE = ("analysis method water system house river mountain music history science teacher market energy garden computer language "
        "development population government temperature structure important different beautiful international café naïve résumé "
        "Zürich São don't can't it's we're U.S. Dr. Smith 1,024 3.14 50% $100 co-operate state-of-the-art e.g. i.e. #tag data "
        "experiment evidence question problem university company industry agriculture philosophy literature mathematics").split()
JUNK = ["terms of use apply", "read our privacy policy", "this site uses cookies", "enable JavaScript please.", "lorem ipsum dolor sit amet.",
        "function() { return 1; }", "home | about | contact", "click here", "•", "- item", "# heading", "...", "…", "1 2 3 4 5 6 7",
        "mail john.doe@corp.example.com or a@b.co now.", "server 8.8.8.8 and 192.168.0.1 answered.", "x@[1.2.3.4] wrote.", "é@x.org",
        "http://www.example.com/page?q=1", "a.b..c@d.ee", "999.1.2.3 or 1.2.3.4.5", "中文句子。", "Ответ: нет.", "A" * 1100, "[12] [edit]",
        "!!! ??? ***", "@@ ## $$ %%", "\t", " ", "“Quoted.”", "He said 'yes'", "ÉTÉ İstanbul ΣΊΣΥΦΟΣ"]


def sentence(rnd):
    n = rnd.choice([3, 5, 8, 8, 10, 12, 12, 15, 20, 30])
    words = [rnd.choice(COMMON) if rnd.random() < 0.7 else rnd.choice(RARE) for _ in range(n)]
    if rnd.random() < 0.1:
        words[rnd.randrange(n)] = "".join(rnd.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rnd.randrange(1, 14)))
    s = " ".join(words)
    return s[0].upper() + s[1:] + rnd.choice([".", ".", ".", ".", "!", "?", "...", "", ",", '."', "…"])


def paragraph(rnd):
    return " ".join(sentence(rnd) for _ in range(rnd.randrange(1, 8)))


def fresh(rnd):
    kind = rnd.random()
    lines = [paragraph(rnd) for _ in range(rnd.randrange(1, 12))]
    if kind < 0.08:
        return " ".join(rnd.choice(RARE + COMMON) for _ in range(rnd.randrange(0, 60)))
    if kind < 0.14:
        lines = [rnd.choice(["- ", "• ", "* ", "1. "]) + sentence(rnd) for _ in range(rnd.randrange(3, 40))]
    elif kind < 0.2:
        lines = lines + [rnd.choice(lines)] * rnd.randrange(1, 8)
        rnd.shuffle(lines)
    elif kind < 0.26:
        p = sentence(rnd)
        lines = [p + " " + sentence(rnd) + " " + p for _ in range(rnd.randrange(2, 10))]
    elif kind < 0.3:
        lines = [" ".join([rnd.choice(RARE)] * rnd.randrange(2, 6) + [sentence(rnd)]) for _ in range(rnd.randrange(3, 12))]
    elif kind < 0.34:
        lines = [" ".join("".join(rnd.choice("abcdefghijklmnop") for _ in range(rnd.choice([1, 2, 14]))) for _ in range(90))]
    elif kind < 0.38:
        lines = [" ".join(rnd.choice(["12", "3.5", "#", "7%", "--", "the", "of"]) for _ in range(rnd.randrange(60, 200)))]
    elif kind < 0.42:
        lines = [" ".join(sentence(rnd).split()[:3]) for _ in range(rnd.randrange(5, 60))]
    elif kind < 0.45:
        lines = [sentence(rnd) + rnd.choice(["...", "…"]) for _ in range(rnd.randrange(5, 30))]
    if rnd.random() < 0.45:
        for _ in range(rnd.randrange(1, 5)):
            lines.insert(rnd.randrange(len(lines) + 1), rnd.choice(JUNK))
    if rnd.random() < 0.1:
        i = rnd.randrange(len(lines))
        lines[i] = lines[i] + " " + rnd.choice(JUNK)
    return rnd.choice(["\n", "\n", "\n\n", "\n\n", "\n \n", "\r\n", "\n\n\n"]).join(lines)


def mutate(rnd, text):
    words = text.split(" ")
    for _ in range(rnd.choice([0, 0, 1, 1, 2, 4, 8, 20])):
        i = rnd.randrange(len(words))
        words[i] = rnd.choice([words[i].upper(), rnd.choice(COMMON), words[i] + ",", "", "5", words[i][::-1]])
    return " ".join(words)


def documents(n, seed=11):
    rnd = random.Random(seed)
    out = []
    for i in range(n):
        if out and rnd.random() < 0.3:
            out.append(mutate(rnd, out[rnd.randrange(max(0, len(out) - 300), len(out))]))
        else:
            out.append(fresh(rnd))
    return out


FILTERS = {"gopher_quality": GopherQualityFilter(), "gopher_repetition": GopherRepetitionFilter(), "c4_quality": C4QualityFilter(),
           "c4_paragraphs": C4ParagraphFilter(), "fineweb_quality": FineWebQualityFilter()}


def verdict(name, text):
    """Why the filter drops a text, "" for not, and what it makes of it if that is another one."""
    doc = Document(text=text, id="0")
    try:
        r = FILTERS[name].filter(doc)
    except ZeroDivisionError:
        return "error", None
    except StopIteration:
        return "error", None
    reason = "" if r is True else r[1]
    return reason, doc.text if doc.text != text and not reason else None


def clusters(texts, config):
    """Which documents Datatrove removes, and the cluster of each that is in one."""
    with tempfile.TemporaryDirectory() as tmp:
        sig = MinhashDedupSignature(tmp + "/sig", config=config)
        sig.run((Document(text=t, id=str(i)) for i, t in enumerate(texts)), 0, 1)
        for b in range(config.num_buckets):
            MinhashDedupBuckets(tmp + "/sig", tmp + "/dups", config=config).run(None, b, config.num_buckets)
        MinhashDedupCluster(tmp + "/dups", tmp + "/remove", config=config, save_cluster_id=True).run(None, 0, 1)
        import numpy as np
        read = lambda f: np.fromfile(tmp + "/remove/000000." + f, dtype="<u4").tolist() if os.path.exists(  # noqa: E731
            tmp + "/remove/000000." + f) else []
        flat = read("clusters")
        return {"remove": read("remove"), "clusters": list(zip(flat[::2], flat[1::2]))}


def contaminated(texts, marks, n):
    """Documents that share an n-gram with a question and its answer, as NGramsDecontIndexer makes the index (it wants lighteval)."""
    tok, h = load_word_tokenizer("en"), create_hash_func(HashConfig())
    index = set()
    for query, label in marks:
        q, lab = tok.word_tokenize(simplify_text(query)), tok.word_tokenize(simplify_text(label))
        grams = list(ngrams(lab, n)) + [q[-n + 1 + i:] + lab[:i + 1] for i in range(n - 1)
                                        if len(q) >= n - 1 - i and len(lab) >= i + 1]
        index.update(h(" ".join(g)) for g in grams)
    return [i for i, t in enumerate(texts)
            if any(h(" ".join(g)) in index for g in ngrams(tok.word_tokenize(simplify_text(t)), n))]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--documents", type=int, default=260)
    p.add_argument("--out", default="dataset/curate/testdata")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    texts = documents(a.documents)
    gz = lambda f: gzip.GzipFile(a.out + "/" + f, "wb", mtime=0)  # noqa: E731
    with gz("documents.jsonl.gz") as f:
        for t in texts:
            f.write((json.dumps({"text": t}, ensure_ascii=False) + "\n").encode())
    counts = {}
    with gz("verdicts.jsonl.gz") as f:
        for t in texts:
            row = {}
            for name in FILTERS:
                reason, text = verdict(name, t)
                counts[name, reason] = counts.get((name, reason), 0) + 1
                row[name] = [reason, text]
            pii = PIIFormatter().format(t)
            row["pii"] = ["", pii if pii != t else None]
            f.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
    rnd = random.Random(5)
    marks = []
    for _ in range(40):
        words = rnd.choice(texts).split()
        k = rnd.randrange(max(1, len(words)))
        marks.append([" ".join(words[k:k + 9]), " ".join(words[k + 9:k + 16])])
    result = {"marks": marks, "contaminated": contaminated(texts, marks, 12), "minhash": []}
    for args in (dict(), dict(n_grams=3, num_buckets=5, hashes_per_bucket=4, seed=7),
                 dict(num_buckets=9, hashes_per_bucket=13, hash_config=HashConfig(precision=32, hash_fc="sha1"))):
        c = MinhashConfig(**copy.copy(args))
        r = clusters(texts, c)
        r["config"] = {"n_grams": c.n_grams, "num_buckets": c.num_buckets, "hashes_per_bucket": c.hashes_per_bucket, "seed": c.seed,
                       "hash_fc": c.hash_config.hash_fc, "precision": c.hash_config.precision}
        s = MinhashDedupSignature("/tmp", config=c)
        r["signatures"] = [s.get_signature(s.get_shingles(t))[0] if len(s.get_shingles(t)) else None for t in texts[:20]]
        result["minhash"].append(r)
        print(args, len(r["remove"]), "of", len(texts), "go", file=sys.stderr)
    with gz("dedup.json.gz") as f:
        f.write(json.dumps(result, ensure_ascii=False).encode())
    for k in sorted(counts):
        print(*k, counts[k], file=sys.stderr)


if __name__ == "__main__":
    main()
