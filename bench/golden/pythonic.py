"""Calls of tools as models write them in Python, and what Python's own parser makes of them, for actors/serve/testdata/pythonic.json.

python bench/golden/pythonic.py > actors/serve/testdata/pythonic.json
"""

import ast
import json
import random

NAMES = {"true": True, "false": False, "null": None}


def literal(node):
    if isinstance(node, ast.Name):
        return NAMES[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal(x) for x in node.elts]
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(k): literal(v) for k, v in zip(node.keys, node.values)}
    return ast.literal_eval(node)


def name(node):
    return name(node.value) + "." + node.attr if isinstance(node, ast.Attribute) else node.id


def calls(text):
    try:
        body = ast.parse(text.strip()).body
        nodes = body[0].value.elts if len(body) == 1 and isinstance(body[0].value, ast.List) else [x.value for x in body]
        out = []
        assert all(isinstance(x, ast.Expr) for x in body)
        for c in nodes:
            assert isinstance(c, ast.Call) and not c.args and all(k.arg for k in c.keywords)
            out.append({"name": name(c.func), "arguments": json.loads(json.dumps({k.arg: literal(k.value) for k in c.keywords}, allow_nan=False))})
        return out or None
    except (SyntaxError, AssertionError, KeyError, ValueError, AttributeError, TypeError):
        return None


draw = random.Random(67)
WORDS = ["Rome", "two words", "né", "it's", 'say "hi"', "a\\nb", "tab\\t", "back\\\\slash", "\\u00e9", "\\x41", "\\'", "\\d", "日本", "[x](y)", "a=b, c", ""]


def value(depth):
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind < 2:
        quote = draw.choice("\"'")
        word = draw.choice(WORDS)
        if quote in word.replace("\\" + quote, ""):
            word = word.replace(quote, "\\" + quote)
        return quote + word + quote
    if kind < 4:
        return draw.choice(["0", "7", "-3", "1_000", "2.5", "-0.25", "1e3", "1E-2", "3.", ".5", "+4"])
    if kind < 6:
        return draw.choice(["True", "False", "None", "true", "false", "null"])
    items = [value(depth + 1) for _ in range(draw.randrange(4))]
    space = draw.choice([", ", ",", " , ", ",\n  "])
    if kind == 6:
        return "[" + space.join(items) + draw.choice(["", ","] if items else [""]) + "]"
    if kind == 7 and len(items) > 1:
        return "(" + space.join(items) + ")"
    return "{" + space.join(f'"k{i}": {x}' for i, x in enumerate(items)) + "}"


def one():
    arguments = [f"{k}{draw.choice(['=', ' = '])}{value(0)}" for k in draw.sample(["city", "n", "x", "on", "a_b"], draw.randrange(4))]
    return draw.choice(["get", "get_weather", "files.read"]) + "(" + draw.choice([", ", ","]).join(arguments) + ")"


print("[")
rows = []
for i in range(600):
    lines = [one() for _ in range(draw.randint(1, 3))]
    text = "[" + ", ".join(lines) + "]" if draw.random() < 0.7 else "\n".join(lines)
    if draw.random() < 0.15:  # damaged
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice(["", "(", ")", "]", "=", "*", "x+"]) + text[at + 1 :]
    rows.append(json.dumps({"text": text, "calls": calls(text)}, ensure_ascii=False))
print(",\n".join(rows))
print("]")
