"""What LLaMA-Factory's converters read of the rows of data sets that a dataset_info.json names: for each entry, which
form of it acts and which rows are left out. Run in a folder that has LLaMA-Factory's src:

    PYTHONPATH=src python dataset_info.py > dataset/setup/testdata/dataset_info_rows.json

torch, transformers, datasets and peft are needed; torchaudio is not.
"""
import importlib.machinery
import json
import sys
import types

torchaudio = types.ModuleType("torchaudio")
torchaudio.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
sys.modules.setdefault("torchaudio", torchaudio)

import logging  # noqa: E402

logging.disable(logging.CRITICAL)

from llamafactory.data.converter import get_dataset_converter  # noqa: E402
from llamafactory.data.parser import get_dataset_list  # noqa: E402


class Args:
    media_dir = "."


def turns(*said, role="from", content="value"):
    return [{role: r, content: c} for r, c in said]


OWN = {"role_tag": "who", "content_tag": "what", "user_tag": "Q", "assistant_tag": "A", "observation_tag": "O",
       "function_tag": "F", "system_tag": "S"}
OPENAI = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
          "observation_tag": "tool", "function_tag": "function", "system_tag": "system"}
CALL = '{"name": "f", "arguments": {"x": 1}}'
PLAIN = turns(("human", "q"), ("gpt", "a"))
ALPACA = [
    {"instruction": "q", "input": "i", "output": "a", "system": "s", "history": [["x", "y"], ["z", "w"]], "tools": "[]"},
    {"instruction": "q", "input": "", "output": "a", "system": "", "history": [], "tools": ""},
    {"instruction": "", "input": "i", "output": "a", "system": None, "history": None, "tools": None},
    {"instruction": None, "input": None, "output": "a", "system": "s", "history": None, "tools": None},
    {"instruction": "q", "input": "i", "output": None, "system": "s", "history": None, "tools": None},
    {"instruction": "q", "input": "i", "output": "", "system": "s", "history": None, "tools": None},
]
SHARE = [{"conversations": c, "system": s, "tools": t} for c, s, t in [
    (PLAIN, "", ""), (PLAIN, "s", ""), (turns(("system", "in"), ("human", "q"), ("gpt", "a")), "beside", ""),
    (turns(("human", "q"), ("system", "in"), ("gpt", "a")), "", ""), (turns(("gpt", "q"), ("human", "a")), "", ""),
    (turns(("human", "q"), ("gpt", "a"), ("human", "r")), "", ""), (turns(("user", "q"), ("assistant", "a")), "", ""),
    (turns(("human", "q"), ("function_call", CALL), ("observation", "r"), ("gpt", "a")), "", '[{"name": "f"}]'),
    (turns(("human", "q"), ("human", "r"), ("gpt", "a"), ("gpt", "b")), "", ""), ([], "", ""),
]]
RANKED = [{"conversations": c, "chosen": y, "rejected": n, "system": "s"} for c, y, n in [
    (turns(("human", "q")), {"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}),
    (turns(("human", "q"), ("gpt", "x"), ("human", "r")), {"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}),
    (PLAIN, {"from": "gpt", "value": "a"}, {"from": "gpt", "value": "b"}),
    (turns(("human", "q")), {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}),
]]
CHOICE = [{"instruction": "q", "input": i, "chosen": c, "rejected": r, "system": "s"}
          for i, c, r in [("", "a", "b"), ("i", "a", "b"), ("i", None, "b"), ("i", "a", None)]]
CALLS = [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
MESSAGES = [{"messages": m, "tools": t} for m, t in [
    (turns(("user", "q"), ("assistant", "a"), role="role", content="content"), ""),
    (turns(("system", "detailed thinking on"), ("user", "q"), ("assistant", "a"), role="role", content="content"), ""),
    (turns(("user", "q"), role="role", content="content") + [{"role": "assistant", "content": "", "tool_calls": CALLS}]
     + turns(("tool", "r"), ("assistant", "a"), role="role", content="content"), '[{"name": "f"}]'),
    (turns(("user", "q"), ("user", "a"), role="role", content="content"), ""),
    (turns(("user", "q"), role="role", content="content"), ""),
]]

# name: entry without its source, rows
CASES = {
    "alpaca": ({}, ALPACA),
    "alpaca_columns": ({"columns": {"prompt": "instruction", "query": "input", "response": "output", "history": "history",
                                    "system": "system", "tools": "tools"}}, ALPACA),
    "alpaca_null": ({"columns": {"prompt": "instruction", "query": None, "response": "output"}}, ALPACA),
    "alpaca_short": ({"columns": {"prompt": "input", "response": "output"}}, ALPACA),
    "share": ({"formatting": "sharegpt"}, SHARE),
    "share_columns": ({"formatting": "sharegpt", "columns": {"messages": "conversations", "system": "system",
                                                             "tools": "tools"}}, SHARE),
    "share_tags": ({"formatting": "sharegpt", "columns": {"messages": "talk"}, "tags": OWN}, [
        {"talk": turns(("S", "s"), ("Q", "q"), ("A", "a"), role="who", content="what")},
        {"talk": turns(("Q", "q"), ("F", CALL), ("O", "r"), ("A", "a"), role="who", content="what")},
        {"talk": turns(("human", "q"), ("A", "a"), role="who", content="what")}]),
    "share_few_tags": ({"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": {
        "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}, [
        {"messages": turns(("user", "q"), ("assistant", "a"), role="role", content="content")},
        {"messages": turns(("system", "s"), ("user", "q"), ("assistant", "a"), role="role", content="content")}]),
    "openai": ({"formatting": "openai", "columns": {"messages": "messages", "tools": "tools"}, "tags": OPENAI}, MESSAGES),
    "dpo_alpaca": ({"ranking": True, "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen",
                                                 "rejected": "rejected"}}, CHOICE),
    "dpo_system": ({"ranking": True, "columns": {"prompt": "instruction", "system": "system", "chosen": "chosen",
                                                 "rejected": "rejected"}}, CHOICE),
    "dpo_share": ({"ranking": True, "formatting": "sharegpt", "columns": {"messages": "conversations",
                   "chosen": "chosen", "rejected": "rejected"}}, RANKED),
    "dpo_share_system": ({"ranking": True, "formatting": "sharegpt", "columns": {
        "messages": "conversations", "system": "system", "chosen": "chosen", "rejected": "rejected"}}, RANKED),
    "kto_alpaca": ({"columns": {"prompt": "instruction", "query": "input", "response": "output", "kto_tag": "good"}},
                   [dict(r, good=g) for r, g in zip(ALPACA[:2] + ALPACA[2:3], [True, False, None])]),
    "kto_share": ({"formatting": "sharegpt", "columns": {"messages": "conversations", "kto_tag": "good"}},
                  [dict(r, good=g) for r, g in zip(SHARE[:6], [True, False, True, True, True, False])]),
}


def kept(entry, got, row):
    """Whether the processor of the entry's stage learns a row."""
    if len(got["_prompt"]) % 2 != 1:
        return False
    columns = entry.get("columns", {})
    return len(got["_response"]) == 2 if entry.get("ranking") or "kto_tag" in columns else len(got["_response"]) == 1


def main():
    out = {}
    for name, (entry, rows) in CASES.items():
        info = {name: dict({"file_name": name + ".jsonl"}, **entry)}
        attr = get_dataset_list([name], info)[0]
        convert = get_dataset_converter(attr.formatting, attr, Args())
        said = []
        for row in rows:
            try:
                got = convert(row)
            except (KeyError, TypeError):
                said.append(None)
                continue
            said.append({k[1:]: got[k] for k in ("_prompt", "_response", "_system", "_tools")}
                        if kept(info[name], got, row) else None)
        out[name] = {"entry": info[name], "rows": rows, "read": said}
    print("{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in out.items()) + "}")


main()
