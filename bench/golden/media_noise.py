"""The image that the tests of dataset/media make by the same formula."""
import numpy as np


def noise(w, h, c):
    y, x, k = np.mgrid[0:h, 0:w, 0:c].astype(np.uint32)
    v = (x * np.uint32(2654435761)) ^ (y * np.uint32(40503) + np.uint32(77)) ^ (k * np.uint32(2246822519))
    v = (v ^ (v >> np.uint32(15))) * np.uint32(2654435769)
    fine = v >> np.uint32(24)
    coarse = (x * 3 + y * 5 + k * 60) % np.uint32(256)
    return ((fine + 3 * coarse) // 4).astype(np.uint8)
