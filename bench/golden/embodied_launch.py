"""Writes configs/testdata/embodied.json: what LoongForge's launch scripts of policies give to their trainer, and its model files. Scripts are read,
never run; paths of the authors' machines are shortened.

Run from the repository's root with a clone of LoongForge:  python bench/golden/embodied_launch.py CLONE
"""

import json
import pathlib
import re
import shlex
import sys

from loong_launch import arguments, variables, words

clone = pathlib.Path(sys.argv[1])


def tidy(args):
    out = []
    for a in args:
        if a in (")", "fi") or a.endswith("=("):  # of a branch inside an array of arguments
            continue
        out.append("out" if a.startswith("$(cd ") else re.sub(r"/ssd2/loongforge_embodied_ci/vla_artifacts/", "", a))
    return out


def overrides(script):
    """What stands in arrays of one line that are given only where they have anything, as ${A[@]+"${A[@]}"}: arguments() reads none of these."""
    text, out = script.read_text(), []
    env = variables(text)
    for a in re.findall(r"\$\{(\w+)\[@\]\+", text):
        for name, body in re.findall(rf'if \[\[ -n "\$(\w+)" \]\]; then\s*{a}\+=\((.*)\)\n', text):
            out += [words(x, env) for x in shlex.split(body)] if env.get(name) else []
    return out


lines = [dict(script=s.name, args=tidy(arguments(s) + overrides(s))) for s in sorted((clone / "examples/embodied").rglob("run_*finetune.sh"))]
root = clone / "configs/models/embodied"
files = {str(f.relative_to(root)): "".join(x for x in f.read_text().splitlines(True) if not x.lstrip().startswith("#")) for f in sorted(root.rglob("*.yaml"))}
pathlib.Path("configs/testdata/embodied.json").write_text(json.dumps(dict(lines=lines, files=files), indent=1) + "\n")
