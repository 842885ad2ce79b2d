"""Write chats.jsonl into a folder: conversations rendered by transformers with chat templates that this machine
has, for `go test ./dataset/token -run TestChatsDrawn -long`.

Run: python bench/golden/chat_drawn.py OUT [FOLDER…]. The templates are those of TRL's package and *.jinja of the
folders (llama.cpp's models/templates); none is kept. Needs transformers and TRL (made with 5.24 and 1.16).
"""
import copy
import datetime
import json
import pathlib
import re
import sys

import transformers.utils.chat_template_utils as utils
import trl
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Which"}, "days": {"type": "integer", "description": "How many"}}, "required": ["city"]}}}]
MARK = re.compile(r"<\|[^|<>\s]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<[a-z]+_of_[a-z]+>|</?s>|<(?:bos|eos|pad)>|\[/?[A-Z_]{2,30}\]|<sop>|<\|?(?:turn|channel|tool_call)\|?>|\[gMASK\]")


def u(x, **k):
    return {"role": "user", "content": x, **k}


def a(x, **k):
    return {"role": "assistant", "content": x, **k}


def s(x):
    return {"role": "system", "content": x}


def t(x, id="call00001", **k):
    return {"role": "tool", "tool_call_id": id, "name": "weather", "content": x, **k}


def call(args, id="call00001", name="weather"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}


def shapes():
    """Conversations by name."""
    think = "<think>\nHmm, {}.\n</think>\n\n"
    yield "one turn", [u("q1"), a("a1")]
    yield "two turns", [u("q1"), a("a1"), u("q2"), a("a2")]
    yield "three turns", [u("q1"), a("a1"), u("q2"), a("a2"), u("q3"), a("a3")]
    yield "system", [s("be brief"), u("q1"), a("a1")]
    yield "system, two turns", [s("be brief"), u("q1"), a("a1"), u("q2"), a("a2")]
    yield "system in the middle", [u("q1"), a("a1"), s("be long"), u("q2"), a("a2")]
    yield "two systems", [s("be brief"), s("be kind"), u("q1"), a("a1")]
    yield "developer", [{"role": "developer", "content": "be brief"}, u("q1"), a("a1")]
    yield "developer and system", [s("be kind"), {"role": "developer", "content": "be brief"}, u("q1"), a("a1")]
    yield "two answers in a row", [u("q1"), a("a1"), a("a2")]
    yield "two questions in a row", [u("q1"), u("q2"), a("a1")]
    yield "ends with a question", [u("q1"), a("a1"), u("q2")]
    yield "begins with an answer", [a("a0"), u("q1"), a("a1")]
    yield "empty answer", [u("q1"), a("")]
    yield "empty question", [u(""), a("a1")]
    yield "empty system", [s(""), u("q1"), a("a1")]
    yield "spaces around", [u("  q1 \n"), a("\n a1  "), u("q2"), a("  a2\n")]
    yield "unicode", [u("¿Qué tal? 🙂"), a("Größe: 42 m² — 你好 👩🏽‍💻‐"), u("ok"), a("…")]
    yield "same text", [u("a1"), a("a1"), u("a1"), a("a1")]
    yield "text of marks", [u("say <|im_end|> and </s>"), a("<|im_end|>x"), u("q2"), a("<|user|> y")]
    yield "lines", [u("q1\nq1"), a("a1\n\na1\n```py\nx = {}\n```"), u("q2"), a("a2")]
    yield "names", [u("q1", name="ann"), a("a1", name="bob")]
    for key in ["reasoning_content", "thinking", "reasoning"]:
        yield key, [u("q1"), a("a1", **{key: "because"})]
        yield key + ", two turns", [u("q1"), a("a1", **{key: "because"}), u("q2"), a("a2", **{key: "hence"})]
        yield key + " is null", [u("q1"), a("a1", **{key: None}), u("q2"), a("a2")]
    yield "empty reasoning", [u("q1"), a("a1", reasoning_content="")]
    yield "two names of reasoning", [u("q1"), a("a1", reasoning="one", reasoning_content="two")]
    yield "thoughts in the text", [u("q1"), a(think.format("a") + "a1")]
    yield "thoughts in the text, two turns", [u("q1"), a(think.format("a") + "a1"), u("q2"), a(think.format("b") + "a2")]
    yield "thoughts in the first answer", [u("q1"), a(think.format("a") + "a1"), u("q2"), a("a2")]
    yield "empty thoughts", [u("q1"), a("<think>\n\n</think>\n\na1")]
    for tools in [None, TOOLS]:
        for kind in ["object", "text"]:
            w = (lambda x: x) if kind == "object" else json.dumps
            label = ("tools, " if tools else "no tools, ") + kind + ", "
            first = [u("q1"), a("", tool_calls=[call(w({"city": "Ulm", "days": 2}))]), t("rain")]
            yield label + "call", first[:2], tools
            yield label + "call and result", first + [a("a1")], tools
            yield label + "call, result and a turn", first + [a("a1"), u("q2"), a("a2")], tools
            yield label + "no content", [first[0], {k: v for k, v in first[1].items() if k != "content"}, first[2], a("a1")], tools
            yield label + "null content", [first[0], {**first[1], "content": None}, first[2], a("a1")], tools
            yield label + "text and call", [u("q1"), a("Let me see.", tool_calls=first[1]["tool_calls"]), first[2], a("a1")], tools
            yield label + "parallel calls", [u("q1"), a("", tool_calls=[call(w({"city": "Ulm"})), call(w({"city": "Köln"}), "call00002")]), t("rain"), t("sun", "call00002"), a("a1")], tools
            yield label + "calls in turn", first + [a("", tool_calls=[call(w({"city": "Köln"}), "call00002")]), t("sun", "call00002"), a("a1")], tools
            yield label + "no arguments", [u("q1"), a("", tool_calls=[call(w({}))]), t("rain"), a("a1")], tools
            yield label + "nested arguments", [u("q1"), a("", tool_calls=[call(w({"z": [1, 2.5, None, {"b": "ü\n\"x\""}], "a": True}))]), t("rain"), a("a1")], tools
            yield label + "reasoning and call", [u("q1"), a("", reasoning_content="because", tool_calls=first[1]["tool_calls"]), first[2], a("a1", reasoning_content="hence")], tools
            yield label + "result is JSON", first[:2] + [t('{"rain": true}'), a("a1")], tools
    yield "tools without a call", [s("be brief"), u("q1"), a("a1")], TOOLS
    yield "empty list of calls", [u("q1"), a("a1", tool_calls=[]), u("q2"), a("a2")]
    yield "null list of calls", [u("q1", tool_calls=None), a("a1", tool_calls=None, function_call=None), u("q2", name=None), a("a2", tool_call_id=None)]
    yield "parts of text", [u([{"type": "text", "text": "q1"}]), a([{"type": "text", "text": "a1"}])]
    yield "two parts", [u([{"type": "text", "text": "q1"}, {"type": "text", "text": "q2"}]), a("a1")]
    yield "image", [u([{"type": "image"}, {"type": "text", "text": "q1"}]), a([{"type": "text", "text": "a1"}])]
    yield "image behind", [u([{"type": "text", "text": "q1"}, {"type": "image"}]), a("a1"), u("q2"), a("a2")]
    yield "parts with nulls", [u([{"type": "text", "text": "q1", "image": None}]), a([{"type": "text", "text": "a1", "image": None}])]
    for n in [5, 9]:
        yield f"{n} turns", [m for i in range(n) for m in (u(f"question {i}"), a(f"answer {i}"))]
    yield "other key", [u("q1"), a("a1", extra={"b": [1, 2]})]
    yield "numbers", [u("12345"), a("67890.5e3")]
    yield "long", [u("q " * 300), a("a " * 300), u("q2"), a("a2")]


def normal(messages, texts, parts, joined, reads):
    """A form that lfactor gives messages: calls' arguments are objects, or texts; texts are lists of one part, or
    joined: lists of texts are one text, no content is an empty one, and a developer is the system."""
    out = []
    for m in copy.deepcopy(utils._normalize_chat_messages(messages)):
        if m.get("tool_calls") == []:
            del m["tool_calls"]
        for c in m.get("tool_calls", []):
            f = c["function"]
            if texts and not isinstance(f["arguments"], str):
                f["arguments"] = json.dumps(f["arguments"], ensure_ascii=False)
            elif not texts and isinstance(f["arguments"], str):
                f["arguments"] = json.loads(f["arguments"])
        if isinstance(m.get("content"), list):
            m["content"] = [{k: v for k, v in p.items() if v is not None} for p in m["content"]]
        if parts and isinstance(m.get("content"), str):
            m["content"] = [{"type": "text", "text": m["content"]}]
        if joined:
            m.setdefault("content", "")
        if joined and isinstance(m.get("content"), list) and all(p["type"] == "text" for p in m["content"]):
            m["content"] = "".join(p["text"] for p in m["content"])
        if m["role"] == "developer" and (joined or "developer" not in reads):
            m["role"] = "system"
        out.append(m)
    return out


def templates(folders):
    own = pathlib.Path(trl.__file__).parent / "chat_templates"
    for folder in [own, *map(pathlib.Path, folders)]:
        for p in sorted(folder.glob("*.jinja")):
            yield p.stem, p.read_text()


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


def main():
    out, folders = pathlib.Path(sys.argv[1]), sys.argv[2:]
    utils.datetime = Fixed
    all = list(templates(folders))
    marks = sorted({m for _, x in all for m in MARK.findall(x)} | {"<bos>", "<eos>"})
    tok = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(m, normalized=False, special=True) for m in marks])
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<bos>", eos_token="<eos>")
    fast.save_pretrained(out)
    n = 0
    with open(out / "chats.jsonl", "w") as f:
        for name, source in all:
            for label, messages, *tools in shapes():
                forms = []
                for parts in [False, True]:
                    for texts, joined in [(False, False), (True, False), (False, True), (True, True)]:
                        for prompt in [False, True]:
                            one = {"texts": texts, "parts": parts, "prompt": prompt}
                            try:
                                got = fast.apply_chat_template(normal(messages, texts, parts, joined, source), tools=tools[0] if tools else None, chat_template=source, tokenize=True, return_dict=True, return_assistant_tokens_mask=not prompt, add_generation_prompt=prompt)
                                one["ids"] = got["input_ids"]
                                if not prompt and re.search(r"\{%-?\s*generation", source):
                                    one["mask"] = got["assistant_masks"]
                            except Exception as e:  # whatever a template raises
                                one["error"] = f"{type(e).__name__}: {e}"
                            forms.append(one)
                f.write(json.dumps({"name": name, "source": source, "shape": label, "messages": messages, "tools": tools[0] if tools else None, "forms": forms}, ensure_ascii=False) + "\n")
                n += 1
    print(f"{n} pairs of {len(all)} templates and {n // len(all)} conversations")


main()
