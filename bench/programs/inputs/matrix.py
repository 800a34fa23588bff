"""Work on matrices, `data` bytes in all: filling, products of blocks, a transposition, gathers, a sort, sums."""

import hashlib
import sys

import numpy as np


def main():
    data = int(sys.argv[1])
    # Three matrices of doubles, and a quarter of a matrix for intermediate results.
    side = int((data / 8 / 3.25) ** 0.5) // 64 * 64
    rng = np.random.default_rng(7)
    a, b = np.empty((side, side)), np.empty((side, side))
    for i in range(0, side, 64):
        a[i : i + 64] = rng.integers(-8, 9, (64, side))
        b[i : i + 64] = rng.integers(-8, 9, (64, side))
    digest = hashlib.sha256()

    def note(name, values):
        # The values are integers far below 2^53, so that sums are the same in every order of addition.
        digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
        print(name, digest.hexdigest()[:16], flush=True)

    c = np.ascontiguousarray(a.T)
    note("transposed", c.sum(axis=0))
    block = 512
    for i in range(0, side, 4 * block):
        c[i : i + block] = a[i : i + block] @ b
    note("products", c.sum(axis=1))
    rows = rng.permutation(side)[: side // 4]
    note("gathered rows", a[rows].sum(axis=0))
    where = rng.integers(0, side * side, side * side // 256)
    np.add.at(b.reshape(-1), where, 1.0)
    note("scattered", b.sum(axis=0))
    a += b
    a *= 0.5
    note("updated", a.sum(axis=1))
    for i in range(0, side, 64):
        c[i : i + 64].sort(axis=1)
    note("sorted", c[:, :: side // 64])


main()
