"""Write drawn tokenizer folders and what transformers' AutoTokenizer makes of texts with each, for
`go test ./dataset/token -run TestFoldersDrawn -long`.

Run: python bench/golden/token_folders.py OUT N SEED. Needs transformers (made with 5.24).
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "image_token", "stop_token"]
POOL = ["<|speak|>", "<|end|>", "<x>", "<Xx>", "[TOOL]", "wörd", "cat", "<s>", "</s>", "<pad>", "<|a b|>", "##"]


def flags(r):
    out = {k: r.random() < 0.3 for k in ["lstrip", "rstrip", "single_word", "normalized", "special"]}
    return {k: v for k, v in out.items() if r.random() < 0.8}


def base(r):
    words = ["[UNK]", "a", "cat", "sat", "the", "on", "mat", "<s>", "</s>"]
    letters = list("abcdefghijklmnopqrstuvwxyz<>|/[]#XTOL ö")
    kind = r.choice(["WordLevel", "BPE"])
    if kind == "WordLevel":
        t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
        t.pre_tokenizer = r.choice([pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit()])
    else:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet + ["ca", "cat"])}, merges=[("c", "a"), ("ca", "t")]))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if r.random() < 0.3:
        t.normalizer = normalizers.Lowercase()
    own = [AddedToken(p, **flags(r)) for p in r.sample(POOL, r.randrange(4))]
    t.add_tokens(own)
    return t


def token(r, content):
    return content if r.random() < 0.6 else {"content": content, **flags(r), **({"__type": "AddedToken"} if r.random() < 0.7 else {})}


def draw(r, folder):
    folder.mkdir(parents=True)
    t = base(r)
    (folder / "tokenizer.json").write_text(t.to_str())
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name in r.sample(NAMES, r.randrange(5)):
        config[name] = token(r, r.choice(POOL))
        if isinstance(config[name], dict) and "__type" not in config[name]:
            config[name]["__type"] = "AddedToken"
    if r.random() < 0.3:
        config["extra_special_tokens"] = r.sample(POOL, 2) if r.random() < 0.6 else {"audio_token": r.choice(POOL)}
    elif r.random() < 0.2:
        config["additional_special_tokens"] = r.sample(POOL, 2)
    n = t.get_vocab_size()
    if r.random() < 0.4:
        config["added_tokens_decoder"] = {str(n + i): {"content": p, **flags(r)} for i, p in enumerate(r.sample(POOL, r.randrange(4)))}
    if r.random() < 0.4:
        (folder / "added_tokens.json").write_text(json.dumps({p: n + i for i, p in enumerate(r.sample(POOL, r.randrange(4)))}))
    if r.random() < 0.4:
        special = {}
        for name in r.sample(NAMES[:7], r.randrange(4)):
            v = token(r, r.choice(POOL))
            if isinstance(v, dict):
                v.pop("__type", None)
            special[name] = v
        (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def texts(r):
    for _ in range(100):
        parts = [r.choice(POOL + ["a", "the", "cat", "mat", "Cat", " ", "  ", "\n", "sat", ".", "ö", "CAT", "catx"]) for _ in range(r.randrange(1, 9))]
        yield r.choice(["", " "]).join(parts)


def main():
    out, n, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    said = 0
    for i in range(n):
        r = random.Random(f"{seed} {i}")
        folder = out / f"{i:04d}"
        draw(r, folder)
        doc = {"texts": list(texts(r))}
        try:
            t = AutoTokenizer.from_pretrained(folder)
            doc["ids"] = [t.encode(x, add_special_tokens=False) for x in doc["texts"]]
            doc["named"] = {k: getattr(t, k) or "" for k in ["bos_token", "eos_token", "pad_token"]}
            said += 1
        except Exception as e:  # whatever the library raises
            doc["error"] = f"{type(e).__name__}: {e}"
        (folder / "want.json").write_text(json.dumps(doc, ensure_ascii=False))
    print(f"{n} folders, of which transformers reads {said}")


main()
