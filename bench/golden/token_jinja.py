"""Write the chat template goldens: dataset/token/jinja/testdata/{chats.json.gz, snippets.json.gz}.

Run: python bench/golden/token_jinja.py. Needs transformers (made with 5.23) and jinja2 (3.1.6). The date of
strftime_now is fixed to 26 July 2024.
"""
import datetime
import gzip
import json
import pathlib

from transformers.utils import chat_template_utils as hf
from token_chats import CHATS, SNIPPETS, SPECIAL, TEMPLATES, VARS

OUT = pathlib.Path(__file__).parents[2] / "dataset/token/jinja/testdata"


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 9, 5, 3)


hf.datetime = FixedDate


def render(template, chat):
    """Return the text and the byte ranges of generation blocks, or the error's text."""
    chat = {**SPECIAL, **chat}
    try:
        messages = chat.pop("messages")
        marked = "{%- generation" in template
        out, spans = hf.render_jinja_template([messages], chat_template=template, return_assistant_tokens_mask=marked, **chat)
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    byte = lambda i: len(out[0][:i].encode())
    return {"text": out[0], "spans": [[byte(a), byte(b)] for a, b in spans[0]] if spans else []}


def snippet(template):
    try:
        return {"template": template, "text": hf._compile_jinja_template(template).render(**VARS)}
    except Exception as e:
        return {"template": template, "error": f"{type(e).__name__}: {e}"}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = [{"template": t, "chat": c, **render(TEMPLATES[t], CHATS[c])} for t in TEMPLATES for c in CHATS]
    doc = {"special": SPECIAL, "templates": TEMPLATES, "chats": CHATS, "cases": cases}
    write = lambda name, x: (OUT / name).write_bytes(gzip.compress(json.dumps(x, ensure_ascii=False).encode(), 9, mtime=0))
    write("chats.json.gz", doc)
    write("snippets.json.gz", {"vars": VARS, "cases": [snippet(s) for s in SNIPPETS]})
    print(len(cases), "cases,", sum("error" in c for c in cases), "of them errors;", len(SNIPPETS), "snippets")
    for c in map(snippet, SNIPPETS):
        if "error" in c:
            print(c)


main()
