"""`lfactor data serve` beside a PyTorch DataLoader that tokenizes and packs itself, in tokens a CPU second of all processes, in one run.

    python bench/data_serve.py --lfactor ./lfactor [--documents 20000] [--rounds 3]

Wants torch, pyarrow and tokenizers. The DataLoader is the fastest that was found: batches of 256 texts through tokenizers' encode_batch in
one worker, joined to rows in numpy, without shuffling. The server shuffles. Both give rows of 1,024 ids as torch tensors. The client is the one of
docs/data.md.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SEQ, ROWS = 1024, 16

THEIRS = """
import json, sys
import numpy as np, torch
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, IterableDataset

class Packed(IterableDataset):
    def __iter__(self):
        tok = Tokenizer.from_file(sys.argv[1] + "/tok/tokenizer.json")
        eod, rest, texts = tok.token_to_id("<|endoftext|>"), [], []
        def rows(flush):
            nonlocal rest, texts
            for e in tok.encode_batch_fast(texts):
                rest.append(np.array(e.ids + [eod], dtype=np.int32))
            texts = []
            flat = np.concatenate(rest)
            n = (len(flat) - 1) // SEQ
            rest = [flat[n * SEQ:]]
            for i in range(n):
                yield flat[i * SEQ:(i + 1) * SEQ + 1]
        with open(sys.argv[1] + "/d.jsonl") as f:
            for line in f:
                texts.append(json.loads(line)["text"])
                if len(texts) == 256:
                    yield from rows(False)
        if texts:
            yield from rows(True)

SEQ, ROWS = int(sys.argv[2]), int(sys.argv[3])
n = 0
for b in DataLoader(Packed(), batch_size=ROWS, num_workers=1, drop_last=True):
    tokens, labels = b[:, :-1], b[:, 1:]
    n += tokens.numel()
print(n)
"""

OURS = """
import re, sys
text = open(sys.argv[1]).read()
exec(re.search(r"```python\\n(import json, time.*?)```", text, re.S).group(1))
n, want = 0, int(sys.argv[3])
for step in Batches(sys.argv[2]):
    n += step["tokens"].numel()
    if n >= want:
        break
print(n)
"""


def used():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def run(code, *args):
    """Tokens that a script has taken."""
    return int(subprocess.run([sys.executable, "-c", code, *map(str, args)], check=True, capture_output=True, text=True).stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--documents", type=int, default=20000)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    words = [w for f in HERE.glob("**/*.py") for w in re.findall(r"[A-Za-z]+", f.read_text())]
    rnd = random.Random(1)
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/d.jsonl", "w") as f:
            for _ in range(a.documents):
                f.write(json.dumps({"text": " ".join(rnd.choice(words) for _ in range(rnd.randrange(20, 600)))}) + "\n")
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        tok.train_from_iterator((json.loads(line)["text"] for _, line in zip(range(3000), open(f"{tmp}/d.jsonl"))),
                                trainers.BpeTrainer(vocab_size=16000, special_tokens=["<|endoftext|>"], show_progress=False,
                                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        os.mkdir(f"{tmp}/tok")
        tok.save(f"{tmp}/tok/tokenizer.json")
        with open(f"{tmp}/run.yaml", "w") as f:
            f.write(f"""model:
  name: llama/3.2-1b
  init: random
  overrides: {{hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, intermediate_size: 64,
              vocab_size: {tok.get_vocab_size()}, max_position_embeddings: {SEQ}, rope_scaling: none}}
data: {{paths: [{tmp}/d.jsonl], tokenizer: {tmp}/tok, seq_len: {SEQ}, split: [100, 0, 0]}}
train: {{steps: 1, global_batch: {ROWS}, micro_batch: {ROWS}}}
""")
        rates = []
        for _ in range(a.rounds):
            before = used()
            n = run(THEIRS, tmp, SEQ, ROWS)
            theirs = n / (used() - before)
            before = used()
            s = subprocess.Popen([a.lfactor, "data", "serve", f"{tmp}/run.yaml", "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
            url = None
            for line in s.stderr:
                if m := re.search(r"on (http://\S+)", line):
                    url = m.group(1)
                    break
            if url is None:
                sys.exit("the server did not start")
            m = run(OURS, HERE.parent / "docs" / "data.md", url, n)
            s.send_signal(signal.SIGINT)
            s.wait()
            rates.append((m / (used() - before), theirs))
        x, y = (statistics.median(r[i] for r in rates) for i in (0, 1))
        print(f"{a.documents} documents, {n} tokens; tokens a CPU second, start-up counted, median of {a.rounds} rounds")
        print(f"lfactor data serve {x:.0f}   DataLoader {y:.0f}   ratio {statistics.median(r[0] / r[1] for r in rates):.2f}")


if __name__ == "__main__":
    main()
