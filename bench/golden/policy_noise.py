"""The noise that actions begin with for a seed, as stages/noise counts it from a key."""

import statistics

import numpy as np
import torch

MASK, STEP, INVERSE = (1 << 64) - 1, 0x9E3779B97F4A7C15, statistics.NormalDist().inv_cdf


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def drawn(seed, *shape):
    first = mix((seed + STEP) & MASK)
    v = [INVERSE(((mix((first + e * STEP) & MASK) >> 11) + 0.5) / (1 << 53)) for e in range(int(np.prod(shape)))]
    return torch.tensor(v, dtype=torch.float64).float().reshape(shape)
