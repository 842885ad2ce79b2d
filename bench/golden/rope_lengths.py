"""Writes stages/trained/testdata/rope_lengths.json: logits of models whose positions depend on the length of a sequence, from transformers,
below that length and above it at once, and token by token with a cache that begins below it, as generate() goes on.

Run from the repository's root: python bench/golden/rope_lengths.py
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

CASES = {"llama-dynamic": 16, "phi4-long": 16}


def load(name):
    return AutoModelForCausalLM.from_pretrained(pathlib.Path("stages/family/testdata") / name, dtype=torch.float32).eval()


def at_once(name, n):
    with torch.no_grad():
        return load(name)(tokens(n)).logits[0, -1].tolist()


def by_steps(name, begin, n):
    """The last logits where the first tokens come at once, and the others one by one."""
    model, cache, out = load(name), None, None
    with torch.no_grad():
        for to in range(begin, n + 1):
            inputs = model.prepare_inputs_for_generation(tokens(to), cache=cache, next_sequence_length=None if cache is None else 1,
                                                         use_cache=True, attention_mask=torch.ones(1, to, dtype=torch.long), is_first_iteration=cache is None)
            inputs["use_cache"] = True
            step = model(**inputs)
            cache, out = step.past_key_values, step.logits[0, -1].tolist()
    return out


def tokens(n):
    return torch.tensor([[(i * 7919 + 11) % 256 for i in range(n)]])


def main():
    out = []
    for name, edge in CASES.items():
        for n in (edge - 2, edge, edge + 1, 3 * edge):
            out.append(dict(model=name, tokens=n, begin=n, logits=at_once(name, n)))
        out.append(dict(model=name, tokens=edge + 5, begin=edge - 3, logits=by_steps(name, edge - 3, edge + 5)))
    path = pathlib.Path("stages/trained/testdata/rope_lengths.json")
    path.write_text("[\n" + ",\n".join(json.dumps(c | dict(logits=[round(x, 6) for x in c["logits"]])) for c in out) + "\n]\n")


if __name__ == "__main__":
    main()
