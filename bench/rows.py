"""Rows of the table that bench/all.py prints: what a script measured of lfactor and of its peers, one JSON line each in the file that LFACTOR_ROWS names."""

import json
import math
import os
import statistics

# The t distribution's 97.5 % point, by how many rounds less one.
T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


def row(task, ours, peers, less=False, memory=None, floor=None):
    """ours and each of peers (by name) are lists, a value a round; less says that a smaller value is better. memory is lfactor's and the peer's bytes,
    floor the share of what the machine could do. The peer is the one with the best median. Nothing is done where LFACTOR_ROWS is not set."""
    path = os.environ.get("LFACTOR_ROWS")
    if not path or not peers:
        return
    better = min if less else max
    name = better(peers, key=lambda p: statistics.median(peers[p]))
    pairs = [(t / o if less else o / t) for o, t in zip(ours, peers[name])]
    with open(path, "a") as f:
        f.write(json.dumps(dict(group=os.environ.get("LFACTOR_TASK"), task=task, peer=name, ratios=pairs, ours=statistics.median(ours), theirs=statistics.median(peers[name]), memory=memory, floor=floor)) + "\n")


def interval(ratios):
    """The 95 % interval of a ratio's geometric mean, None of fewer than two rounds."""
    if len(ratios) < 2:
        return None
    logs = [math.log(r) for r in ratios]
    half = T.get(len(logs) - 1, 2.0) * statistics.stdev(logs) / math.sqrt(len(logs))
    mid = statistics.mean(logs)
    return math.exp(mid - half), math.exp(mid + half)
