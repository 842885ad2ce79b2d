"""Effective training time of a run on many hosts of which some fail, by what recovery costs: a table for docs/cluster.md.

Hosts fail independently, at the rate of Llama 3's run (arXiv:2407.21783, section 3.3.4: 419 unexpected interruptions in 54 days of 2,048
hosts with eight devices). Each way of recovery below is simulated for 54 days from several seeds, step by step. Effective time is steps
that count times the length of a step, over all time.

  job         the job starts again from the newest durable checkpoint, after --job seconds (scheduling, start, loading)
  actor       the ranks of the lost host alone start again (--restart seconds), everybody goes back to the durable checkpoint, which takes
              --load seconds to read
  buddies     as actor, but from copies in memory of every k-th step; only where a host and its buddy fail within the same copy period
              does the run go back to the checkpoint

Without a spare host, job waits until the host is repaired; the others double its ranks up on a neighbour until then, which makes steps
twice as long. Durable saves stop the run for --save seconds, at the interval that is best for job (Young's); copies cost one per cent of
a step in a hundred steps or less, as train.buddy auto keeps them. Figures of the defaults: --restart and --copy from the tests on one
machine (docs/cluster.md), --job and --repair are assumptions, to be replaced by one's own.

Run: python bench/uptime.py [--hosts 5000] [--step 12.3]
"""
import argparse
import math
import random

RATE = 419 / (54 * 24 * 3600 * 2048)  # failures of a host a second


def run(way, spares, a, seed):
    """The share of 54 days in which steps that count were computed."""
    rng = random.Random(seed)
    days, every = 54 * 86400, max(1, round(math.sqrt(2 * a.save / (RATE * a.hosts)) / a.step))
    clock, done, durable, copied = 0.0, 0, 0, 0
    failure = rng.expovariate(RATE * a.hosts)
    doubled = []  # when the hosts that are away come back
    free = spares
    back = []  # when spares are repaired
    while clock < days:
        doubled = [t for t in doubled if t > clock]
        returned = [t for t in back if t <= clock]
        free, back = free + len(returned), [t for t in back if t > clock]
        length = a.step * (2 if doubled else 1) * (1.01 if way == "buddies" else 1)
        if clock + length < failure:
            clock, done = clock + length, done + 1
            if done % a.k == 0:
                copied = done
            if done % every == 0 and done > durable:
                clock, durable = clock + a.save, done
            continue
        lost_both = way == "buddies" and rng.random() < RATE * a.k * a.step  # its buddy, within the same copies
        clock = failure
        failure = clock + rng.expovariate(RATE * a.hosts)
        repair = clock + rng.expovariate(1 / a.repair)
        if free > 0:
            free, back = free - 1, back + [repair]
        elif way == "job":
            clock = repair
        else:
            doubled.append(repair)
        if way == "job":
            clock, done = clock + a.job, durable
        elif way == "actor" or lost_both:
            clock, done = clock + a.restart + a.load, durable
        else:
            clock, done = clock + a.restart + a.copy, max(durable, copied)
        copied = min(copied, done)
        failure = max(failure, clock)
    return done * a.step / clock


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in (("hosts", 5000, "hosts"), ("step", 12.3, "seconds of a step"), ("save", 10.0, "seconds that a durable save stops the run"),
                                ("job", 600.0, "seconds until a job trains again"), ("restart", 3.0, "seconds until a lost rank is back"),
                                ("load", 60.0, "seconds to read a checkpoint"), ("copy", 5.0, "seconds to hand a copy of a rank's state over"),
                                ("k", 10, "steps between copies"), ("repair", 3600.0, "seconds until a failed host is back, on average"), ("seeds", 5, "runs of each way")):
        p.add_argument("--" + name, type=type(default), default=default, help=text)
    a = p.parse_args()
    print(f"{a.hosts} hosts, one fails every {1 / (RATE * a.hosts) / 60:.0f} min; steps of {a.step} s\n\n| recovery | spares | effective time |\n|---|---|---|")
    for way in ("job", "actor", "buddies"):
        for spares in (0, 16):
            shares = [run(way, spares, a, seed) for seed in range(a.seeds)]
            print(f"| {way} | {spares} | {100 * sum(shares) / len(shares):.1f} % ({100 * min(shares):.1f} to {100 * max(shares):.1f}) |")


if __name__ == "__main__":
    main()
