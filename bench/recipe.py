"""A recipe of six steps over some gigabytes: what was predicted beside what it took, and on a cluster of four hosts with kills the bytes
of one host.

    python bench/recipe.py --lfactor ./lfactor [--gb 5] [--kills 60] [--dir FOLDER]

Texts are made from a seed: words of a drawn vocabulary, one document in twelve a copy of an earlier one, one in thirty nearly so. The
prediction is of processors' seconds, which others on the machine do not change; wall time is printed beside it.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

RECIPE = """output: clean
memory: 256MiB
inputs: [texts]
steps: [pii, gopher_quality, {step: length, min_words: 20}, exact_dedup, minhash_dedup, {step: sample, fraction: 0.9}]
"""


def write_texts(folder, size):
    """JSON lines of so many bytes in files of 128 MB."""
    draw = random.Random(41)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(20000)] + ["the", "and", "of", "to", "that", "have", "with", "be"] * 400
    folder.mkdir(parents=True)
    written, file, earlier = 0, 0, []
    while written < size:
        with open(folder / f"{file:05d}.jsonl", "w") as f:
            here = 0
            while here < 128e6 and written + here < size:
                kind = draw.random()
                if earlier and kind < 1 / 12:
                    text = draw.choice(earlier)
                elif earlier and kind < 1 / 12 + 1 / 30:
                    of = draw.choice(earlier).split(" ")
                    of[draw.randrange(len(of))] = draw.choice(words)
                    text = " ".join(of)
                else:
                    text = ". ".join(" ".join(draw.choices(words, k=draw.randint(8, 24))) for _ in range(draw.randint(3, 40))) + "."
                    if len(earlier) < 2000:
                        earlier.append(text)
                    elif draw.random() < 0.05:
                        earlier[draw.randrange(2000)] = text
                line = json.dumps({"text": text, "n": here}) + "\n"
                here += len(line)
                f.write(line)
        written, file = written + here, file + 1
    return written


def hash_of(folder):
    """Of all files by name, but for locks and the folder of work."""
    h = hashlib.sha256()
    for p in sorted(folder.rglob("*")):
        if p.is_file() and not any(part.startswith(".") for part in p.relative_to(folder).parts):
            h.update(str(p.relative_to(folder)).encode())
            with open(p, "rb") as f:
                while block := f.read(1 << 20):
                    h.update(block)
    return h.hexdigest()


def run(command, cwd, env):
    return subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill_at_random(home, program, kills, done, stop):
    """Kills agents of the four hosts, and their processes, until so many have fallen."""
    draw = random.Random(6)
    while done[0] < kills and not stop.is_set():
        time.sleep(draw.uniform(1, 6))
        lock = home / "clusters" / "recipe" / "agents" / f"h{draw.randint(1, 4)}" / ".lock"
        try:
            agent = int(lock.read_text())
            of = [int(p) for p in pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]
            victim = draw.choice(of) if of and draw.random() < 2 / 3 else agent
            if program not in pathlib.Path(f"/proc/{victim}/cmdline").read_text():
                continue
            os.kill(victim, signal.SIGKILL)
            done[0] += 1
        except (OSError, ValueError):
            continue  # it is being started again


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lfactor", required=True)
    p.add_argument("--gb", type=float, default=5)
    p.add_argument("--kills", type=int, default=60)
    p.add_argument("--dir")
    a = p.parse_args()
    lfactor = str(pathlib.Path(a.lfactor).resolve())
    root = pathlib.Path(a.dir or tempfile.mkdtemp(prefix="lfactor-recipe-"))
    one, many = root / "one", root / "many"
    size = write_texts(root / "texts", a.gb * 1e9)
    for d in (one, many):
        d.mkdir()
        (d / "texts").symlink_to(root / "texts")
        (d / "recipe.yaml").write_text(RECIPE)
    env = dict(os.environ, LFACTOR_HOME=str(root / "home"), NO_COLOR="1")

    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    said = run([lfactor, "data", "run", "recipe.yaml"], one, env)
    wall, after = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if said.returncode:
        sys.exit(said.stdout[-4000:])
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{size / 1e9:.2f} GB on one host: {used:.0f} s of processors, {wall:.0f} s, resident {after.ru_maxrss / 1024:.0f} MiB")
    took = re.search(r"and ([\d.]+) s of processors; predicted were [\d.]+ and ([\d.]+)", said.stdout)
    took, predicted = float(took[1]), float(took[2])
    print(f"    behind the plan {took:.1f} s of processors, predicted {predicted:.1f}: {100 * (took / predicted - 1):+.1f} %", flush=True)
    want = hash_of(one / "clean")

    if a.kills:
        up = run([lfactor, "cluster", "up", "--local", "4", "--name", "recipe"], many, env)
        if up.returncode:
            sys.exit(up.stdout[-4000:])
        done, stop, began, begun, ended, same = [0], threading.Event(), time.time(), 0, 1, True
        killer = threading.Thread(target=kill_at_random, args=(root / "home", pathlib.Path(lfactor).name, a.kills, done, stop))
        killer.start()
        try:
            while True:
                begun += 1
                said = run([lfactor, "data", "run", "recipe.yaml", "--cluster", "recipe"], many, env)
                if said.returncode == 0 and done[0] >= a.kills:
                    break
                if said.returncode == 0:  # over before so many had fallen: once more
                    ended += 1
                    same = same and hash_of(many / "clean") == want
                    shutil.rmtree(many / "clean")
                    continue
                if "panic" in said.stdout or begun > 3 * a.kills + 20:
                    sys.exit(said.stdout[-4000:])
            stop.set()
            killer.join()
            same = same and hash_of(many / "clean") == want
            print(f"on four hosts with {done[0]} kills, begun {begun} times and ended {ended} times: {time.time() - began:.0f} s, "
                  f"{'the bytes of one host' if same else 'OTHER BYTES'}")
        finally:
            stop.set()
            run([lfactor, "cluster", "down", "recipe"], many, env)
    if not a.dir:
        shutil.rmtree(root)
    if a.kills and not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
