"""Reads the config.json that is written for every published model with transformers, builds the model on the meta device, and compares
the number of parameters with configs/testdata/parameters.json. Families whose code is not part of transformers are left out.

Run from the repository's root:
  go test ./configs -run HFConfigRoundTrip -hfconfigs /tmp/configs && python bench/golden/config_read.py /tmp/configs
"""

import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

OWN = {"qwen", "internlm2", "mimo", "baichuan", "llava_onevision1_5"}


def main():
    counts, root = json.loads(pathlib.Path("configs/testdata/parameters.json").read_text()), pathlib.Path(sys.argv[1])
    bad = 0
    for path in sorted(root.glob("*/*/config.json")):
        name, facts = str(path.parent.relative_to(root)), json.loads(path.read_text())
        if facts["model_type"] in OWN or facts.get("text_config", {}).get("model_type") in OWN:
            continue
        maker = AutoModelForImageTextToText if "vision_config" in facts else AutoModelForCausalLM
        try:
            config = AutoConfig.from_pretrained(path.parent)
            with torch.device("meta"):
                model = maker.from_config(config)
            model.tie_weights()
            n = sum(p.numel() for p in {id(p): p for p in model.parameters()}.values())
            told = "ok" if n == counts[name] else f"{n} parameters, want {counts[name]}"
        except Exception as e:
            told = str(e).splitlines()[:2]
        bad += told != "ok"
        print(name, told)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
