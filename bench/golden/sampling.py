"""Which tokens penalties and filters leave, and with which probabilities, as transformers has it: 100 cases.

    /work/venv/bin/python bench/golden/sampling.py stages/sample/testdata/filters.json
"""
import json
import random
import sys

import torch
from transformers.generation.logits_process import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                                                    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

random.seed(1)
torch.manual_seed(1)
cases = []
for n in range(100):
    v = random.choice([5, 31, 60])
    logits = torch.randn(1, v) * random.choice([0.5, 2, 5])
    history = [random.randrange(v) for _ in range(random.randrange(8))]
    p = {}
    if n % 2:
        p["temperature"] = round(random.uniform(0.3, 1.7), 2)
    if n % 3 == 1:
        p["top_k"] = random.randrange(1, 40)
    if n % 5 < 3:
        p["top_p"] = round(random.uniform(0.05, 0.99), 2)
    if n % 7 < 3:
        p["min_p"] = round(random.uniform(0.01, 0.4), 2)
    if n % 4 > 1 and history:
        p["repetition_penalty"] = round(random.uniform(0.7, 1.8), 2)
    if n % 11 == 0:
        logits = logits.round()  # equal ones
        p.pop("top_p", None)  # whose order transformers leaves to the sort
    order = LogitsProcessorList()
    if "repetition_penalty" in p:
        order.append(RepetitionPenaltyLogitsProcessor(p["repetition_penalty"]))
    if "temperature" in p:
        order.append(TemperatureLogitsWarper(p["temperature"]))
    if "top_k" in p:
        order.append(TopKLogitsWarper(p["top_k"]))
    if "top_p" in p:
        order.append(TopPLogitsWarper(p["top_p"]))
    if "min_p" in p:
        order.append(MinPLogitsWarper(p["min_p"]))
    ids = torch.tensor([history], dtype=torch.long)
    probs = order(ids, logits.clone()).softmax(-1)[0].tolist()
    cases.append({"logits": [float(f"{x:.9g}") for x in logits[0].tolist()], "history": history, "params": p,
                  "ids": [i for i, x in enumerate(probs) if x > 0], "probs": [float(f"{x:.8g}") for x in probs if x > 0]})
with open(sys.argv[1], "w") as f:
    json.dump(cases, f, separators=(",", ":"))
