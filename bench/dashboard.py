"""What an open page of the dashboard costs the run that it shows: two runs at once, each on a core of its own with a lfactor ui of
its own, and a page that is open at one of them for some seconds, then at the other, and so on. What one core has and the other has
not, and what others do to both, falls out of the differences.

    bench/dashboard.py LFACTOR [--windows 200] [--seconds 2] [--page graph|logs|curves] [--times 1]

--times N asks the run's actors N times as often as a page does (which is once a second, however many pages are open), by the
sockets of the run, and divides the loss by N: on a machine that others use too, what one page costs is below what can be seen.

Prints the median loss of steps a second and of processor time a step, with the 95 % interval of the median (bootstrap), and what
lfactor ui itself takes of the core. LFACTOR is the program; two cores and Linux are wanted, no packages.
"""
import argparse
import http.cookiejar
import json
import math
import os
import random
import re
import socket
import statistics
import subprocess
import sysconfig
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

RUN = """
model: {name: llama/3.2-1b, init: random, overrides: {hidden_size: 96, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 24,
  intermediate_size: 256, vocab_size: 401, max_position_embeddings: 64, rope_scaling: none}}
data: {kind: text, paths: [text], tokenizer: tok, seq_len: 32}
train: {steps: 10000000, global_batch: 32, micro_batch: 4, log_interval: 1000000}
optimizer: {lr: 1.0e-3}
schedule: {decay_steps: 1000}
plan: {pp: 2, dp: 4, threads: 1, procs: 2}
log: {dir: run%d}
"""


class Run:
    """A run of eight ranks and its server, both on one core."""

    def __init__(self, program, dir, core):
        self.dir, self.core, self.place = dir, core, 0
        (dir / f"run{core}.yaml").write_text(RUN % core)
        pin = lambda: os.sched_setaffinity(0, {core})
        quiet = dict(cwd=dir, preexec_fn=pin, stderr=subprocess.DEVNULL)
        self.train = subprocess.Popen([program, "train", f"run{core}.yaml", "-q"], stdout=subprocess.DEVNULL, **quiet)
        self.metrics = dir / f"run{core}" / "metrics.jsonl"
        while not self.metrics.exists():
            time.sleep(.1)
        self.ui = subprocess.Popen([program, "ui", f"run{core}"], stdout=subprocess.PIPE, text=True, **quiet)
        link = re.search(r"http\S+", self.ui.stdout.readline())[0]
        threading.Thread(target=self.ui.stdout.read, daemon=True).start()
        self.base = link.split("/login")[0]
        self.web = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        self.web.open(link).read()

    def family(self, pid):
        """The process and its children, which train the run's other part."""
        out = [pid]
        for p in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(p.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    out.append(int(p.parent.name))
            except (OSError, IndexError):
                pass
        return out

    def used(self, pid):
        """Processor time in seconds."""
        total = 0
        for p in self.family(pid):
            f = Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(f[11]) + int(f[12])
        return total / os.sysconf("SC_CLK_TCK")

    def steps(self):
        """The times of the steps that were taken since it was asked last."""
        with open(self.metrics, "rb") as f:
            f.seek(self.place)
            text = f.read()
        end = text.rfind(b"\n") + 1
        self.place += end
        return [json.loads(l)["seconds"] for l in text[:end].splitlines()]

    def look(self, page):
        """Opens the page as a browser does; gives what closes it."""
        for path in ("/", "/api/runs", "/api/runs/0/series?points=1200"):
            self.web.open(self.base + path).read()
        more = "" if page == "curves" else f"&{page}=0"
        answer = self.web.open(f"{self.base}/api/stream?runs=0{more}")

        def listen():
            try:
                while answer.readline():
                    pass
            except (OSError, ValueError, AttributeError):
                pass  # it was closed
        threading.Thread(target=listen, daemon=True).start()
        return lambda: answer.fp.raw._sock.shutdown(2)


    def ask(self, times):
        """Asks the run's actors what they do so many times a second; gives what ends it."""
        over, asked = threading.Event(), [0]

        def go():
            began = time.time()
            while not over.is_set():
                for path in self.metrics.parent.glob("why-*.sock"):
                    with socket.socket(socket.AF_UNIX) as c:
                        c.connect(str(path))
                        while c.recv(1 << 16):
                            pass
                asked[0] += 1
                over.wait(max(0, began + asked[0] / times - time.time()))
        threading.Thread(target=go, daemon=True).start()
        return over.set


def interval(values, times=2000):
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(times))
    return medians[int(.025 * times)], medians[int(.975 * times)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--windows", type=int, default=200)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--times", type=int, default=1)
    p.add_argument("--page", choices=["graph", "logs", "curves"], default="graph")
    a = p.parse_args()
    a.program = str(Path(a.program).resolve())
    with tempfile.TemporaryDirectory() as d:
        d = Path(d)
        (d / "text").mkdir()
        sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]
        for s in sources:
            (d / "text" / (s.stem + ".txt")).write_bytes(s.read_bytes())
        subprocess.run([a.program, "data", "tokenizer", "text", "--to", "tok", "--vocab", "400"], cwd=d, check=True, capture_output=True)
        runs = [Run(a.program, d, core) for core in sorted(os.sched_getaffinity(0))[:2]]
        try:
            report(runs, a)
        finally:
            for r in runs:
                for c in (r.ui, r.train):
                    c.terminate()
                    c.wait()


def report(runs, a):
    time.sleep(3)  # the runs begin
    rates, costs, served = [], [], []
    for n in range(a.windows):
        shown = runs[n % 2]
        close = shown.look(a.page) if a.times == 1 else shown.ask(a.times)
        time.sleep(.2)
        for r in runs:
            r.steps()
        before = [r.used(r.train.pid) for r in runs]
        server = shown.used(shown.ui.pid)
        time.sleep(a.seconds)
        times = [r.steps()[1:] for r in runs]  # the first was under way
        used = [r.used(r.train.pid) - b for r, b in zip(runs, before)]
        served.append((shown.used(shown.ui.pid) - server) / a.seconds)
        close()
        if min(len(t) for t in times) < 3:  # others have the machine: the pair is left out
            rates.append(None)
            costs.append(None)
            continue
        rates.append(math.log(statistics.mean(times[0]) / statistics.mean(times[1])))
        costs.append(math.log(used[0] / (len(times[0]) + 1) * (len(times[1]) + 1) / used[1]))
    for name, v in (("time of a step", rates), ("processor time of a step", costs)):
        # with the page at the first run a ratio is c + loss, at the second c - loss
        loss = [100 / a.times * (v[i] - v[i + 1]) / 2 for i in range(0, len(v) - 1, 2) if None not in v[i:i + 2]]
        if len(loss) < 2:
            raise SystemExit("a run takes fewer than three steps in a window: --seconds more")
        lo, hi = interval(loss)
        print(f"{name}: {statistics.median(loss):+.2f} % by the page, 95 % interval {lo:+.2f} to {hi:+.2f} %, {len(loss)} pairs")
    print(f"lfactor ui: {100 * statistics.mean(served):.2f} % of a core, which the run has too")


main()
