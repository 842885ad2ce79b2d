"""Writes configs/testdata/launch.jsonl.gz: the command lines of LoongForge's launch scripts, one JSON object a line with the script's name and the
arguments that it gives to train.py. Scripts are read, never run: variables have their own defaults.

Run from the repository's root with a clone of LoongForge:  python bench/golden/loong_launch.py CLONE
"""

import gzip
import json
import pathlib
import re
import shlex
import sys

OURS = re.compile(r"--(?:hf-tokenizer-path|tokenizer-model|load|save|tensorboard-dir|data-cache-path|dataloader-save|wandb-\S+)$")


def words(text, env):
    def known(m):
        return env.get(m[1], m[2] if m.lastindex == 2 else m[0])

    for _ in range(4):
        text = re.sub(r'\$\{(\w+):-"?([^}"]*)"?\}', known, text)
        text = re.sub(r"\$\{?(\w+)\}?", lambda m: env.get(m[1], m[0]), text)
    return text


def variables(text):
    env = {}
    for m in re.finditer(r"^\s*(?:export\s+)?(\w+)=([^\s(][^\n#]*)", text, re.M):
        try:
            value = shlex.split(m[2])
        except ValueError:
            continue
        if value:
            env[m[1]] = words(value[0], env)
    return env


def arguments(script):
    text = re.sub(r"\\\n", " ", script.read_text(errors="replace"))
    env, arrays = variables(text), {}
    for m in re.finditer(r"^\s*(\w+)(\+?)=\(\s*\n?(.*?)^\s*\)", text, re.M | re.S):
        body = "\n".join("" if x.strip().startswith("#") else x.split(" #")[0] for x in m[3].split("\n"))
        try:
            new = [words(x, env) for x in shlex.split(body)]
        except ValueError:
            new = []
        arrays[m[1]] = (arrays.get(m[1], []) if m[2] else []) + new
    out = []
    for m in re.finditer(r"^.*train\.py(.*)$", text, re.M):
        for a in re.finditer(r"\$\{(\w+)\[@\]\}", m[1]):
            out += arrays.get(a[1], [])
    return out


def tidy(args):
    """Paths of the authors' machines are shortened, and flags that only name such paths left out."""
    out, skip = [], False
    for a in args:
        if a.startswith("--"):
            skip = bool(OURS.match(a))
        if skip:
            continue
        a = re.sub(r"^(\$\{?LOONGFORGE_PATH\}?|/workspace/LoongForge)/", "LOONGFORGE/", a)
        out.append("data" if a.startswith(("/mnt/", "/workspace/", "/root/", "/home/")) else a)
    return out


def main():
    clone = pathlib.Path(sys.argv[1])
    lines, seen = [], set()
    for script in sorted(x for d in ("examples", "examples_xpu") for x in (clone / d).rglob("*.sh")):
        args = tidy(arguments(script))
        if args and "--data-path" in args and tuple(args) not in seen:
            seen.add(tuple(args))
            lines.append(json.dumps(dict(script=str(script.relative_to(clone)), args=args), separators=(",", ":")))
    pathlib.Path("configs/testdata/launch.jsonl.gz").write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
