"""What LoongForge's chat templates make of conversations, for dataset/token's templates that go by a name.

    python bench/golden/chat_names.py --loongforge DIR dataset/token/testdata/chat_names.json

Runs the classes of DIR/loongforge/data/chat_template.py with a tokenizer whose tokens are pieces of text, so that what comes out is the
text itself: prompts and answers in turn. Needs a checkout of LoongForge, nothing else.
"""

import argparse
import json
import re
import sys
import types
from pathlib import Path

NAMES = ["empty", "no-template", "default", "alpaca", "baichuan", "baichuan2", "qwen", "qwen2-vl", "qwen3-vl", "mimo", "llama2", "llama2_zh", "llama3", "llama3.1",
         "mistral", "deepseek", "deepseek3", "deepseek3.1-nothink"]
CHATS = [
    [("user", "Hi"), ("assistant", "Hello!")],
    [("system", "Be brief."), ("user", "Where?"), ("assistant", "There\nand here."), ("user", "It's when?"), ("assistant", "Now.")],
    [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "{{ e }}"), ("assistant", "f's \\n")],
]


class Text:
    """A tokenizer whose ids are texts."""

    bos, eos = "<BOS>", "<EOS>"

    def tokenize(self, text, add_special_tokens=False):
        return [text]

    def convert_tokens_to_ids(self, token):
        return token


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--loongforge", required=True)
    p.add_argument("out")
    a = p.parse_args()
    source = (Path(a.loongforge) / "loongforge/data/chat_template.py").read_text()
    source = re.sub(r"^from (loongforge|\.)[^\n]*\n", "", source, flags=re.M)

    class Any:
        def __init__(self, *_, **__):
            pass

    module = types.ModuleType("chat_template")
    sys.modules["chat_template"] = module
    module.__dict__.update(__name__="chat_template", MMPlugin=Any, Qwen2VLPlugin=Any, Qwen3VLPlugin=Any, KimiK25Plugin=Any, MiniCPMV46Plugin=Any,
                           DataRoles=types.SimpleNamespace(USER="user", ASSISTANT="assistant", SYSTEM="system"))
    source = source.replace("def _read_builtin_chat_template(filename: str) -> str:", "def _read_builtin_chat_template(filename):\n    return ''\n\n\ndef _unused(filename: str) -> str:")
    exec(compile(source, "chat_template.py", "exec"), module.__dict__)
    out = []
    for name in NAMES:
        t = module.MAPPING_NAME_TO_TEMPLATE[name]
        tok = Text()
        if t.replace_eos and t.stop_words:
            tok.eos = t.stop_words[0]
        for chat in CHATS:
            system = "".join(text for role, text in chat if role == "system") or None
            turns = [dict(role=role, content=text) for role, text in chat if role != "system"]
            pairs = [["".join(prompt), "".join(answer)] for prompt, answer in t.encode_multiturn(tok, turns, system)]
            if t.efficient_eos:  # as sft_dataset.py appends it
                pairs[-1][1] += tok.eos
            out.append(dict(name=name, messages=[dict(role=r, content=c) for r, c in chat], turns=pairs))
    Path(a.out).write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
