"""Says of pairs {"gold", "answer"}, JSON lines at its input, whether math-verify has them equal: true or false, one a
line. Made with math-verify 0.9.0. The sample in actors/reward/maths/testdata is written by
LFACTOR_PYTHON=... go test ./actors/reward/maths -run TestMathVerify -long -rewrite"""
import json
import logging
import sys

from math_verify import parse, verify

logging.disable(logging.CRITICAL)
for line in sys.stdin:
    pair = json.loads(line)
    print("true" if verify(parse(pair["gold"]), parse(pair["answer"])) else "false")
