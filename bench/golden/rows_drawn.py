"""Write rows of training data in the forms that other trainers write, as JSON lines and as Parquet, with what they are to transformers and TRL, for
`go test ./dataset/setup -run TestRowsDrawn -long`.

Run: python bench/golden/rows_drawn.py OUT [SEED]. A conversation is drawn in the form that transformers reads, and written in another: OpenAI's, ShareGPT's,
Axolotl's, TRL's. OUT/FOLDER is a tokenizer with its template, OUT/FOLDER/FORM.jsonl and .parquet have rows, and beside them .want says of each row which ids it is
and which of them are learnt, or that it must be refused. Nothing is kept. Needs transformers, TRL, datasets and pyarrow (made with 5.24, 1.16, 5.2 and 26.0).
"""
import copy
import datetime
import itertools
import json
import pathlib
import random
import re
import sys

import datasets
import pyarrow
import pyarrow.parquet
import transformers.utils.chat_template_utils as utils
import trl
import trl.data_utils
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

ROWS = 8  # of a file
MARK = re.compile(r"<\|[^|<>\s]{1,40}\|>|<｜[^｜\s]{1,40}｜>|<[a-z]+_of_[a-z]+>|</?s>|<(?:bos|eos|pad)>|\[/?[A-Z_]{2,30}\]|<sop>|\[gMASK\]")
THEIRS = "qwen3 qwen2_5 qwen3_instruct_2507 qwen3_5_think llama3 gptoss glm4moe lfm2_v2 nemotron_3_nano phi3 cohere2 deepseekv3".split()
# A turn is learnt with the token that stops it, and with the line's end behind it.
OWN = """{% if tools %}system : tools {{ tools | tojson }} end
{% endif %}{% if brief is defined %}system : {{ 'brief' if brief else 'soft' }} end
{% endif %}{% for m in messages %}{% if m.role == 'assistant' %}gpt : {% generation %}{% if m.reasoning_content %}because {{ m.reasoning_content }} then {% endif %}{{ m.content }}{% for c in m.tool_calls or [] %} call {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %} </s>
{% endgeneration %}{% else %}{{ m.role }} : {{ m.content }}{% if m.name %} by {{ m.name }}{% endif %} end
{% endif %}{% endfor %}{% if add_generation_prompt %}gpt : {% endif %}"""
WORDS = "user assistant gpt end the a cat sat on mat why because it was warm and soft call then tool tools name by city days system be brief".split()
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Which"}, "days": {"type": "integer"}}, "required": ["city"]}}},
         {"type": "function", "function": {"name": "search", "description": "It finds.", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}}]


def tokenizers():
    letters = sorted(set("".join(WORDS)) | set("abcdefghijklmnopqrstuvwxyz0123456789:{}\"[],.?!_<>/-"))
    vocab = {w: i for i, w in enumerate(["[UNK]", *WORDS, *(c for c in letters if c not in WORDS)])}
    word = lambda: models.WordLevel(vocab=vocab, unk_token="[UNK]")
    yield "WordLevel, WhitespaceSplit", word(), pre_tokenizers.WhitespaceSplit(), None
    yield "WordLevel, BertPreTokenizer", word(), pre_tokenizers.BertPreTokenizer(), None
    pieces = {w: i for i, w in enumerate(dict.fromkeys(["[UNK]", *WORDS, *letters, *("##" + c for c in letters)]))}
    yield "WordPiece, BertPreTokenizer", models.WordPiece(vocab=pieces, unk_token="[UNK]"), pre_tokenizers.BertPreTokenizer(), None
    bpe = {w: i for i, w in enumerate(dict.fromkeys(["[UNK]", *letters, "ca", "cat", "wa", "was", "th", "the"]))}
    merges = [("c", "a"), ("ca", "t"), ("w", "a"), ("wa", "s"), ("t", "h"), ("th", "e")]
    yield "BPE, Whitespace", models.BPE(vocab=bpe, merges=merges, unk_token="[UNK]"), pre_tokenizers.Whitespace(), None
    unigram = [("[UNK]", 0.0), *((c, -5.0) for c in letters + ["▁"]), *(("▁" + w, -3.0) for w in WORDS)]
    yield "Unigram, Metaspace", models.Unigram(unigram, 0, False), pre_tokenizers.Metaspace(), None
    yield "bytes", *level()


def level():
    return models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()


def folders(out):
    """Each tokenizer with a template: (name, tokenizer, template with {% generation %})."""
    theirs = {n: (pathlib.Path(trl.__file__).parent / f"chat_templates/{n}_training.jinja").read_text() for n in THEIRS}
    bare = re.sub(r"\{% (end)?generation %\}", "", OWN)
    for name, model, pre, dec in tokenizers():
        for kind, written in [("marked", OWN), ("bare", bare)]:
            yield from folder(out, f"{name}, {kind}", model, pre, dec, written, OWN, {"</s>", "<s>"})
    for name, source in theirs.items():
        yield from folder(out, name, *level(), source, source, set(MARK.findall(source)) | {"<s>", "</s>"})


def folder(out, name, model, pre, dec, written, source, marks):
    tok = Tokenizer(model)
    tok.pre_tokenizer = pre
    if dec:
        tok.decoder = dec
    tok.add_special_tokens([AddedToken(m, normalized=False, special=True) for m in sorted(marks)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token="</s>", chat_template=written)
    fast.save_pretrained(out / name)
    yield name, fast, source


class Draw:
    """A conversation in transformers' form: messages, tools, variables of the template, and which turns of the assistant are learnt."""

    def __init__(self, r, table, calls=False, think=False):
        self.r, self.table, self.ids = r, table, itertools.count(1)
        self.messages, self.tools, self.vars, self.start = [], None, None, 0
        if r.random() < 0.4:
            self.messages.append({"role": "system", "content": self.text()})
        if calls and r.random() < 0.8:
            self.tools = r.sample(TOOLS, r.choice([1, 2]))
        for i in range(r.choice([1, 1, 2, 3])):
            self.messages.append({"role": "user", "content": self.text()})
            if calls and (i == 0 or r.random() < 0.5):
                made = [self.call() for _ in range(r.choice([1, 1, 2]))] if calls != "single" else [self.call()]
                self.messages.append({"role": "assistant", "content": "", "tool_calls": made})
                for c in made:
                    self.messages.append({"role": "tool", "tool_call_id": c["id"], "name": c["function"]["name"], "content": self.text()})
            self.messages.append({"role": "assistant", "content": self.text()})
            if think and r.random() < 0.6:
                self.messages[-1]["reasoning_content"] = self.text()
        self.learn = {i: True for i, m in enumerate(self.messages) if m["role"] == "assistant"}

    def text(self):
        r = self.r
        words = [r.choice(WORDS + ["Größe", "zebra", "你好", "🙂", "12.5", "{x}", "a's", "...", "\"q\""]) for _ in range(r.randrange(1, 7))]
        return "".join(w + r.choice([" ", " ", " ", "  ", "\n", ", "]) for w in words[:-1]) + words[-1]

    def call(self):
        r = self.r
        args = {}
        keys = ["city", "days", "deep", "flag", "share"]
        for k in sorted(r.sample(keys, r.randrange(len(keys)))) if self.table else r.sample(keys, r.randrange(len(keys))):
            args[k] = {"city": self.text, "days": lambda: r.randrange(-5, 10**r.randrange(1, 12)), "deep": lambda: [r.choice(WORDS) for _ in range(r.randrange(3))], "flag": lambda: r.random() < 0.5, "share": lambda: r.choice([0.5, 2.25, 1e-7, 1e16, 3.0])}[k]()
            if not self.table and r.random() < 0.1:
                args[k] = r.choice([None, {"b": [None, 1.0, "é\n"], "a": {}}])
        return {"id": f"call{next(self.ids):05d}", "type": "function", "function": {"name": r.choice(["weather", "search"]), "arguments": args}}

    def named(self):
        out = {"messages": copy.deepcopy(self.messages)}
        if self.tools:
            out["tools"] = copy.deepcopy(self.tools)
        if self.vars is not None:
            out["chat_template_kwargs"] = dict(self.vars)
        return out

    def kwargs(self):
        if self.r.random() < 0.7:
            self.vars = {k: self.r.random() < 0.5 for k in self.r.sample(["brief", "enable_thinking"], 2 if self.table else self.r.choice([0, 1, 2]))}
        elif self.table:
            self.vars = {"brief": True, "enable_thinking": True}


def maybe(r, what, share=0.5):
    return what if r.random() < share else None


# Each form draws a row: what it says to transformers as a Draw, or None where it must be refused, and the row.
def form_openai(r, table):
    d = Draw(r, table, think=True)
    row = d.named()
    for m in row["messages"]:
        if "reasoning_content" in m:
            m[r.choice(["reasoning_content", "reasoning", "thinking"])] = m.pop("reasoning_content")
        for k in r.sample(["name", "tool_calls", "function_call", "tool_call_id", "reasoning_content", "refusal", "audio", "weight"], r.randrange(5)):
            m.setdefault(k, None)
        if r.random() < 0.1:
            m["tool_calls"] = []
    if r.random() < 0.3:
        row["tools"] = None
    if r.random() < 0.1:
        r.choice([m for m in row["messages"] if m["role"] == "assistant"])["content"] = None
        if all(m.get("content") is not None or any(m.get(k) for k in ["reasoning_content", "reasoning", "thinking"]) for m in row["messages"]):
            for m, n in zip(d.messages, row["messages"]):
                if n["content"] is None:
                    del m["content"]
            return d, row
        return None, row
    return d, row


def form_calls(r, table):
    d = Draw(r, table, calls=True)
    row = d.named()
    texts, bad = table and r.random() < 0.5, False
    for m, own in zip(row["messages"], d.messages):
        if m.get("tool_calls"):
            null = r.random()
            if null < 0.3:
                m["content"] = None
                del own["content"]
            elif null < 0.5:
                del m["content"], own["content"]
        for c in m.get("tool_calls", []):
            f = c["function"]
            if table:
                f["arguments"] = json.dumps(f["arguments"], ensure_ascii=r.random() < 0.5)
            elif r.random() < 0.05:
                f["arguments"], bad = r.choice(["[1]", "x", [1], "3", "\"s\"", "{", 7]), True
            elif not f["arguments"]:
                f["arguments"] = r.choice([{}, "{}", "", None])
            elif r.random() < 0.5:
                f["arguments"] = json.dumps(f["arguments"], ensure_ascii=r.random() < 0.5, indent=r.choice([None, 1]))
    if row.get("tools") and r.random() < 0.4:
        row["tools"] = json.dumps(row["tools"])
    elif table and row.get("tools"):
        row["tools"] = json.dumps(row["tools"])
    if not row.get("tools"):
        row["tools"] = None
    return None if bad else d, row


def form_objects(r, table):
    """Arguments and tools as objects: in tables each has all keys."""
    d = Draw(r, table, calls=True)
    d.tools = TOOLS[: r.choice([1, 2])]
    row = d.named()
    for m in row["messages"]:
        if m.get("tool_calls") and r.random() < 0.5:
            m["content"] = None
    for m, own in zip(row["messages"], d.messages):
        if m["content"] is None:
            del own["content"]
    return d, row


def form_functions(r, table):
    d = Draw(r, table, calls="single")
    row = d.named()
    tools = row.pop("tools", None)
    for m, own in zip(row["messages"], d.messages):
        if calls := m.pop("tool_calls", None):
            f = calls[0]["function"]
            m["content"] = None
            del own["content"]
            m["function_call"] = {"name": f["name"], "arguments": f["arguments"] if not table and r.random() < 0.3 else json.dumps(f["arguments"])}
        if m["role"] == "tool":
            m["role"] = "function"
            del m["tool_call_id"]
            own["tool_call_id"] = own["name"]
    for own in d.messages:
        for c in own.get("tool_calls", []):
            c["id"] = c["function"]["name"]
    if tools:
        row["functions"] = [t["function"] for t in tools]
    elif table:
        row["functions"] = None
    return d, row


def flags(d, list, r):
    key = r.choice(["weight", "train", "training", "loss", "loss_scale"])
    bad = False
    for i, m in enumerate(list):
        if m.get("role", m.get("from")) in ("assistant", "gpt") and r.random() < 0.6:
            yes, no = {"weight": ([1, 1.0], [0, 0.0]), "loss_scale": ([1.0, 1], [0.0, 0])}.get(key, ([True], [False]))
            d.learn[i] = r.random() < 0.4
            m[key] = r.choice(yes if d.learn[i] else no)
            if r.random() < 0.04:
                m[key], bad = r.choice([0.5, 2, -1, "no", [True]] if not d.table else [0.5, 2, -1]) if key in ("weight", "loss_scale") else "no", True
                if d.table and not isinstance(m[key], (int, float)):
                    m[key], bad = d.learn[i], False
        elif r.random() < 0.2:
            m[key] = None
    return None if bad else d


def form_flags(r, table):
    d = Draw(r, table)
    row = d.named()
    return flags(d, row["messages"], r), row


def form_sharegpt(r, table, calls=False):
    d = Draw(r, table, calls=calls)
    said, turns = None, []
    name = {"user": r.choice(["human", "user"]), "assistant": r.choice(["gpt", "chatgpt", "bot", "model", "assistant"]), "system": "system"}
    call, answer = r.choice([("function_call", "observation"), ("tool_call", "tool_response"), ("function_call", "function_response"), ("function_call", "tool")])
    for m in d.messages:
        if m["role"] == "system" and r.random() < 0.5:
            said = m["content"]
            continue
        if made := m.get("tool_calls"):
            wrote = [{k: c["function"][k] for k in r.sample(["name", "arguments"], 2)} for c in made]
            if len(wrote) == 2 and r.random() < 0.5:
                turns += [{"from": call, "value": json.dumps(w, ensure_ascii=False)} for w in wrote]
                continue
            text = json.dumps(wrote[0] if len(wrote) == 1 and r.random() < 0.7 else wrote, ensure_ascii=False)
            if r.random() < 0.2:
                m["content"] = "<think>" + d.text() + "</think>"
                text = m["content"] + r.choice(["", "\n\n"]) + text
            turns.append({"from": call, "value": text})
            continue
        turns.append({"from": answer if m["role"] == "tool" else name[m["role"]], "value": m["content"]})
    row = {"conversations": turns}
    if said is not None or table:
        row[r.choice(["system", "system_prompt"]) if not table else "system"] = said
    if d.tools or table:
        row["tools"] = json.dumps(d.tools) if d.tools else maybe(r, "")
    if calls and r.random() < 0.04 and any(t["from"] == call for t in turns):
        next(t for t in turns if t["from"] == call)["value"] = r.choice(["no JSON", '{"arguments": {}}', "[]", '{"name": "x", "arguments": [1]}'])
        return None, row
    if not calls and said is None:
        for own, m in zip(d.messages, turns):
            if own["content"] == "":
                m["value"] = ""
        return flags(d, turns, r) if all(m["from"] in ("human", "user", "gpt", "system") for m in turns) else d, row
    return d, row


def form_sharegpt_calls(r, table):
    return form_sharegpt(r, table, calls=True)


def form_columns(r, table):
    d = Draw(r, table)
    row = d.named()
    names = ("from", "value") if r.random() < 0.5 else ("role", "content")
    turns = [dict(zip(names, (m["role"], m["content"]))) for m in row.pop("messages")]
    how = r.choice(["list", "text", "texts"])
    value = {"list": turns, "text": json.dumps(turns), "texts": [json.dumps(t) for t in turns]}[how]
    row[r.choice(["messages", "conversations"])] = value
    return d, row


def form_kwargs(r, table):
    d = Draw(r, table, calls=r.random() < 0.5)
    d.kwargs()
    row = d.named()
    row["tools"] = json.dumps(row["tools"]) if row.get("tools") else None
    strings(row["messages"])
    return d, row


def strings(messages):
    for m in messages:
        for c in m.get("tool_calls") or []:
            c["function"]["arguments"] = json.dumps(c["function"]["arguments"])


def split(d, r):
    """Where a conversation's completion begins: behind a user's message or a tool's."""
    return r.choice([i for i, m in enumerate(d.messages) if m["role"] == "assistant"])


def form_completion(r, table):
    d = Draw(r, table, calls=r.random() < 0.5)
    d.kwargs()
    if r.random() < 0.05:
        return None, {"prompt": "a cat", "completion": "sat"}
    row, n = d.named(), split(d, r)
    row["tools"] = json.dumps(row["tools"]) if row.get("tools") else None
    turns = row.pop("messages")
    strings(turns)
    row["prompt"], row["completion"] = turns[:n], turns[n:]
    for i in d.learn:
        d.learn[i] = i >= n
    d.start = n
    if not table and r.random() < 0.2:
        row["prompt"], row["completion"] = json.dumps(turns[:n]), json.dumps(turns[n:])
    return d, row


def form_prompts(r, table):
    d = Draw(r, table, calls=r.random() < 0.5)
    d.kwargs()
    row, n = d.named(), split(d, r)
    row["tools"] = json.dumps(row["tools"]) if row.get("tools") else None
    turns = row.pop("messages")[:n]
    strings(turns)
    d.messages, d.prompt = d.messages[:n], True
    d.learn = {i: x for i, x in d.learn.items() if i < n}
    if r.random() < 0.2 and not d.tools:
        d.plain = d.text() + " a cat"
        return d, {r.choice(["prompt", "question", "problem"]): d.plain, "answer": "a"}
    row["prompt"] = json.dumps(turns) if table or r.random() < 0.2 else turns
    row["answer" if r.random() < 0.5 else "reward_model"] = "a"
    return d, row


def form_preference(r, table):
    d = Draw(r, table, calls=r.random() < 0.5)
    d.kwargs()
    n = split(d, r)
    other = copy.deepcopy(d.messages[n:])
    other[-1]["content"] = d.text() + " other"
    row, prompt, good = d.named(), copy.deepcopy(d.messages[:n]), copy.deepcopy(d.messages[n:])
    tools = json.dumps(d.tools) if d.tools else None
    del row["messages"]
    row["tools"] = tools
    how = r.choice(["explicit", "implicit", "openai"])
    if how == "implicit":
        row |= {"chosen": prompt + good, "rejected": prompt + other}
        got = trl.data_utils.extract_prompt(row)
        d.pair = (got["prompt"], got["chosen"], got["rejected"])
        if maybe(r, True, 0.3):
            row["prompt"] = prompt[-1]["content"]
    elif how == "openai" and not d.vars:
        row = {"input": {"messages": prompt, "tools": d.tools or []}, "preferred_output": good, "non_preferred_output": other}
        d.pair = (prompt, good, other)
    else:
        row |= {"prompt": prompt, "chosen": good, "rejected": other}
        d.pair = (prompt, good, other)
    d.pair = copy.deepcopy(d.pair)
    row = json.loads(json.dumps(row))  # nothing is shared
    if table or r.random() < 0.5:
        for k in ["prompt", "chosen", "rejected", "preferred_output", "non_preferred_output"]:
            if isinstance(row.get(k), list):
                strings(row[k])
        strings(row.get("input", {}).get("messages", []))
    if table:
        row = {k: json.dumps(v) if isinstance(v, list) and r.random() < 0.5 else v for k, v in row.items()}
    return d, row


def form_texts(r, table):
    """Pairs of texts, by themselves or as HH-RLHF has them."""
    d = Draw(r, table)
    p, a, b = d.text() + " a cat ", d.text() + " sat", d.text() + " soft"
    if r.random() < 0.5:
        p = f"\n\nHuman: {p}\n\nAssistant:"
        d.plain = (p, " " + a, " " + b)
        return d, {"chosen": p + " " + a, "rejected": p + " " + b}
    d.plain = (p, a, b)
    return d, {"prompt": p, "chosen": a, "rejected": b}


def form_judged(r, table):
    d, row = form_completion(r, table)
    row["label"] = r.random() < 0.5
    if d is None:
        d = Draw(r, table)
        d.plain = (row["prompt"], row["completion"])
    return d, row


FORMS = {k[5:]: v for k, v in globals().items() if k.startswith("form_")}
# Columns of one type hold rows of one kind alone, so these are drawn anew until all rows are of the first one's.
APART = {"preference": lambda r: tuple(sorted((k, type(v).__name__) for k, v in r.items() if v is not None and k not in ("tools", "chat_template_kwargs"))), "columns": lambda r: tuple((k, type(v).__name__, type(v[0]).__name__ if not isinstance(v[0], dict) else str(v[0].keys())) for k, v in r.items()),
         "completion": lambda r: type(r["prompt"]).__name__, "judged": lambda r: type(r["prompt"]).__name__, "prompts": lambda r: tuple(sorted(k for k in r if k in ("prompt", "question", "problem"))), "texts": lambda r: len(r), "flags": lambda r: None, "sharegpt": lambda r: None}


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


class Oracle:
    def __init__(self, fast, source):
        self.fast, self.source = fast, source

    def render(self, messages, tools, vars, prompt):
        messages = utils._normalize_chat_messages(messages)
        text, spans = utils.render_jinja_template(conversations=[messages], tools=tools, chat_template=self.source, return_assistant_tokens_mask=not prompt, add_generation_prompt=prompt, **{**self.fast.special_tokens_map, **(vars or {})})
        return text[0], (spans[0] if not prompt else None)

    def ways(self, messages):
        """Other forms of the same messages, for templates that cannot write the usual one: no content is an empty one, arguments are text, texts are parts."""
        yield "", messages
        for texts, parts in [(False, False), (True, False), (False, True), (True, True)]:
            out = copy.deepcopy(messages)
            for m in out:
                m.setdefault("content", "")
                if parts and m["content"]:
                    m["content"] = [{"type": "text", "text": m["content"]}]
                for c in m.get("tool_calls") or []:
                    if texts:
                        c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
            yield f"texts {texts}, parts {parts}", out

    def said(self, text, messages):
        """Whether all that messages say is in a text, and nothing as Python prints it."""
        def leaves(v):
            for x in v.values() if isinstance(v, dict) else v:
                yield from leaves(x) if isinstance(x, (dict, list)) else [x]
        bare = lambda s: re.sub(r"\\[nr]|[\W]", "", s)
        written = lambda s: s in text or bare(s) in bare(text)
        for m in messages:
            if isinstance(m.get("content"), str) and not written(m["content"].split("</think>")[-1].strip()):
                return False
            for c in m.get("tool_calls") or []:
                args = c["function"]["arguments"]
                if c["function"]["name"] not in text or args and repr(args) in text and repr(args) != json.dumps(args, ensure_ascii=False):
                    return False
                if isinstance(args, dict) and not all(written(x.strip()) if isinstance(x, str) else str(x) in text for x in leaves(args) if isinstance(x, (str, int, float)) and not isinstance(x, bool)):
                    return False
        return True

    def encode(self, messages, tools, vars, prompt, learn, start=0):
        error = ""
        for how, list in self.ways(messages):
            try:
                text, spans = self.render(list, tools, vars, prompt)
            except Exception as e:  # whatever a template raises
                error = error or f"{type(e).__name__}: {e}"
                continue
            if not self.said(text, messages) or "\\\"" in text and how.startswith("texts True"):
                error = error or "it does not write all"
                continue
            got = self.fast(text, add_special_tokens=False, return_offsets_mapping=True)
            ids, offsets = got["input_ids"], got["offset_mapping"]
            if prompt:
                return {"ids": ids, "how": how}
            turns = sorted(i for i, m in enumerate(messages) if m["role"] == "assistant")
            if len(spans) != len(turns):
                return {"ids": ids, "how": how, "unlike": f"{len(spans)} marked of {len(turns)} turns"}
            mask, behind = [0] * len(ids), 0
            if start:  # what a prompt says by itself is none of its answer
                behind = trl.data_utils.common_prefix_length(self.fast(self.render(list[:start], tools, vars, False)[0], add_special_tokens=False)["input_ids"], ids)
            for i, (a, b) in zip(turns, spans):
                for k, (x, y) in enumerate(offsets):
                    if learn.get(i) and i >= start and k >= behind and y > a and x < b:
                        mask[k] = 1
            return {"ids": ids, "mask": mask, "how": how}
        return {"error": error}

    def plain(self, *texts):
        return self.fast("".join(texts), add_special_tokens=False)["input_ids"]

    def answer(self, prompt, text):
        ids, head = self.plain(prompt, text), self.plain(prompt)
        if ids[-1:] != [self.fast.eos_token_id]:
            ids = ids + [self.fast.eos_token_id]
        return ids, trl.data_utils.common_prefix_length(head, ids)

    def want(self, form, d, known):
        if d is None:
            return {"refuse": True}
        vars = {k: None for k in known} | d.vars if d.vars is not None else None
        if plain := getattr(d, "plain", None):
            if form == "prompts":
                return {"samples": [{"ids": self.plain(plain)}]}
            both = [self.answer(plain[0], t) for t in plain[1:]]
            n = min(n for _, n in both)
            return {"samples": [{"ids": ids, "mask": [0] * n + [1] * (len(ids) - n)} for ids, _ in both]}
        if pair := getattr(d, "pair", None):
            every = {i: True for i in range(99)}
            return {"samples": [self.encode(pair[0] + a, d.tools, vars, False, every, len(pair[0])) for a in pair[1:]]}
        return {"samples": [self.encode(d.messages, d.tools, vars, hasattr(d, "prompt"), d.learn, d.start if form == "judged" else 0)]}


def write(path, rows, table, form, r):
    if not table:
        path.with_suffix(".jsonl").write_text("".join(json.dumps(x, ensure_ascii=r.random() < 0.5) + "\n" for x in rows))
        return
    names = list(dict.fromkeys(k for x in rows for k in x))
    columns = {k: [x.get(k) for x in rows] for k in names}
    made = pyarrow.table(columns)
    lists = [k for k in names if k != "tools" and any(isinstance(v, list) and v and isinstance(v[0], dict) for v in columns[k])]
    if lists and r.random() < 0.3:  # datasets' column of objects as JSON
        features = datasets.Features({k: datasets.List(datasets.Json()) if k in lists else v for k, v in datasets.Dataset(made).features.items()})
        datasets.Dataset.from_dict(columns, features=features).to_parquet(str(path.with_suffix(".parquet")))
        return
    pyarrow.parquet.write_table(made, path.with_suffix(".parquet"))


def reorder(draws, path):
    """Give arguments the order of the keys in a table's column of them."""
    def orders(t, out):
        if pyarrow.types.is_struct(t):
            for f in t:
                if f.name == "arguments" and pyarrow.types.is_struct(f.type):
                    out.append([k.name for k in f.type])
                orders(f.type, out)
        elif pyarrow.types.is_list(t):
            orders(t.value_type, out)
        return out
    columns = {f.name: orders(f.type, []) for f in pyarrow.parquet.read_schema(path)}
    for d in draws:
        for names, list in [(("messages", "prompt", "completion"), d.messages)] + [(n, p) for n, p in zip([("prompt", "input", "chosen"), ("chosen", "preferred_output"), ("rejected", "non_preferred_output")], getattr(d, "pair", ()))]:
            order = next((columns[k][0] for k in names if columns.get(k)), None)
            for m in list if order else []:
                for c in m.get("tool_calls") or []:
                    c["function"]["arguments"] = {k: c["function"]["arguments"][k] for k in order if k in c["function"]["arguments"]}


def main():
    out, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    datasets.disable_progress_bars()
    utils.datetime = Fixed
    n = 0
    for name, fast, source in folders(out):
        oracle = Oracle(fast, source)
        for form, draw in FORMS.items():
            for table in [False, True]:
                r = random.Random(f"{seed} {name} {form} {table}")
                rows, key = [], None
                while len(rows) < ROWS:
                    d, row = draw(r, table)
                    kind = APART.get(form, lambda r: None)(row)
                    if table and key is not None and kind != key:
                        continue
                    key = kind
                    rows.append((d, row))
                known = {k for d, _ in rows if table and d is not None for k in d.vars or {}}
                path = out / name / f"{form}{' table' if table else ''}"
                write(path, [x for _, x in rows], table, form, r)
                if table:
                    reorder([d for d, _ in rows if d is not None], path.with_suffix(".parquet"))
                path.with_suffix(".want").write_text("".join(json.dumps(oracle.want(form, d, known)) + "\n" for d, _ in rows))
                n += len(rows)
    print(f"{n} rows of {len(FORMS)} forms: {', '.join(FORMS)}")


if __name__ == "__main__":
    main()
