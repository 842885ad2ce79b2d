"""What vLLM's parsers make of the arguments of calls, for actors/serve/testdata/tagged.json.

python bench/golden/tool_values.py WHEEL > actors/serve/testdata/tagged.json

WHEEL is the folder of an unpacked wheel of vllm 0.33.0. Of its modules only the functions that are named here are run, so that
nothing of it needs to be installed.
"""

import ast
import functools
import json
import math
import random
import re
import sys


def taken(path, names):
    """The functions and constants of a module with these names."""
    space = {"json": json, "math": math, "re": re, "functools": functools, "Any": object}
    for node in ast.parse(open(path).read()).body:
        name = getattr(node, "name", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = getattr(target, "id", None)
        if name in names:
            module = ast.Module([ast.ImportFrom("__future__", [ast.alias("annotations")], 0), node], [])
            exec(compile(ast.fix_missing_locations(module), path, "exec"), space)
    return space


root = sys.argv[1] + "/vllm/"
utils = taken(root + "tool_parsers/utils.py",
              ["coerce_to_schema_type", "_TYPE_ALIASES", "_is_json_finite", "extract_types_from_schema"])
GLM = taken(root + "parser/glm47_moe.py", ["_ARG_RE", "_PARTIAL_ARG_RE", "_glm47_parse_args", "_glm47_arg_converter"])
CODER = taken(root + "parser/qwen3.py", ["_PARAM_RE", "_PARTIAL_PARAM_RE", "_trim_wrapping_newlines", "_qwen3_arg_converter"])
MINIMAX = taken(root + "parser/minimax_m2.py",
                ["_PARAM_RE", "_PARTIAL_PARAM_RE", "_param_name", "_minimax_m2_parse_args", "_minimax_m2_arg_converter",
                 "_trim_wrapping_newlines"])
FAMILIES = {
    "<tool_call> <arg_key>": (GLM["_glm47_arg_converter"], "<arg_key>{k}</arg_key>{s}<arg_value>{v}</arg_value>{s}",
                              "<tool_call>{n}\n{b}</tool_call>"),
    "<tool_call> <function=": (CODER["_qwen3_arg_converter"], "<parameter={k}>{s}{v}{s}</parameter>\n",
                               "<tool_call>\n<function={n}>\n{b}</function>\n</tool_call>"),
    "<minimax:tool_call>": (MINIMAX["_minimax_m2_arg_converter"], '<parameter name="{k}">{v}</parameter>{s}',
                            '<minimax:tool_call>\n<invoke name="{n}">\n{b}</invoke>\n</minimax:tool_call>'),
}
TEXTS = ["7", " 7 ", "-12", "+3", "7.0", "0.25", "1e3", "1e-7", "inf", "nan", "null", "NULL", "true", "True ", "false", "0", "1", "yes",
         "", "Rome", "two\nlines", "a < b & c", '"quoted"', "[1, 2]", "[1", '{"a": {"b": [null]}}', "{}", "né \\ \"", "123456789012345678"]
SCHEMAS = [{"type": t} for t in ["string", "integer", "number", "boolean", "object", "array", "null"]] + [
    {}, True, {"type": ["string", "null"]}, {"type": ["integer", "null"]}, {"type": ["boolean", "integer"]}, {"enum": ["a", 7, None]},
    {"enum": [1, 2]}, {"enum": [True]}, {"anyOf": [{"type": "number"}, {"type": "null"}]}, {"oneOf": [{"type": "array"}, {"type": "string"}]},
    {"allOf": [{"type": "integer"}]}, {"anyOf": [{"type": "object"}, {}]}]

draw = random.Random(67)
print("[")
for i in range(600):
    template, (convert, one, call) = draw.choice(list(FAMILIES.items()))
    keys = draw.sample(["city", "n", "x", "on", "list", "else", "a_b"], draw.randint(0, 4))
    body = "".join(one.format(k=k, v=draw.choice(TEXTS), s=draw.choice(["", "\n", "\n"])) for k in keys)
    properties = {k: draw.choice(SCHEMAS) for k in keys if draw.random() < 0.9}
    values = {k: utils["coerce_to_schema_type"](v, utils["extract_types_from_schema"](properties.get(k)))
              for k, v in json.loads(convert(body, False)).items()}
    print(json.dumps({"template": template, "text": call.format(n="get", b=body), "properties": properties, "arguments": values},
                     ensure_ascii=False) + ("," if i < 599 else ""))
print("]")
