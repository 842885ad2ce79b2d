"""Writes a configuration of torchtitan's registry as JSON. Run it where torchtitan can be imported:

    lfactor config import --dumper > dump.py
    python dump.py torchtitan.models.llama3.config_registry:llama3_8b > llama3_8b.json
    lfactor config import llama3_8b.json

The model's own layers are left out: its name and flavor say which they are."""

import dataclasses, importlib, json, sys


def plain(v):
    if dataclasses.is_dataclass(v):
        kind = type(v).__qualname__
        out = {f.name: plain(getattr(v, f.name)) for f in dataclasses.fields(v) if (kind, f.name) != ("ModelSpec", "model")}
        return {"_type": kind, **out} if kind.endswith("AC.Config") else out
    if isinstance(v, dict):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return v if v is None or isinstance(v, (str, int, float, bool)) else getattr(v, "__qualname__", str(v))


module, name = sys.argv[1].split(":")
print(json.dumps(plain(getattr(importlib.import_module(module), name)()), indent=1))
