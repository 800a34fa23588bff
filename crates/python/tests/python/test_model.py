"""Random sequences of operations on a pool, beside a model of dictionaries of ordinary arrays."""

from __future__ import annotations

import gc
import os
import random

import numpy as np
import pytest

import deepram
from deepram import errors

SEEDS = range(int(os.environ.get("DEEPRAM_MODEL_SEEDS", "6")))
STEPS = 150
KEPT = 4


class World:
    """A pool, the names that should be in it, and every token's state."""

    def __init__(self, path, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.pool = deepram.Pool(path, size="32MiB", dram="24MiB", keep=KEPT)
        self.arrays: dict[str, np.ndarray] = {}
        self.tokens: dict[int, dict[str, np.ndarray]] = {}
        #: Arrays in use, by what they should hold; and stale ones.
        self.held: list[tuple[deepram.Array, str | None, np.ndarray]] = []
        self.stale: list[deepram.Array] = []

    def a_name(self) -> str | None:
        return self.random.choice(list(self.arrays)) if self.arrays else None

    def create(self) -> None:
        shape = tuple(self.random.randint(0, 60) for _ in range(self.random.randint(0, 3)))
        data = self.numbers.integers(0, 100, shape).astype(self.random.choice(["u1", "i4", "f8"]))
        name = self.random.choice(["a", "b", "c", "d", None])
        if name in self.arrays:
            with pytest.raises(ValueError, match="already"):
                self.pool.array(data, name=name)
            return
        array = self.pool.array(data, name=name)
        if name is not None:
            self.arrays[name] = data
        if self.random.random() < 0.5:
            self.held.append((array, name, data))

    def store(self) -> None:
        name = self.a_name()
        if name is None or self.arrays[name].size == 0:
            return
        value, at = self.random.randint(0, 99), self.random.randrange(self.arrays[name].size)
        self.pool[name].reshape(-1, order="A")[at] = value
        self.arrays[name].reshape(-1)[at] = value

    def delete(self) -> None:
        name = self.a_name()
        if name is not None:
            del self.pool[name]
            # An array in use keeps its elements, but not its name.
            self.held = [(array, None if held == name else held, data) for array, held, data in self.held]
            del self.arrays[name]

    def hold(self) -> None:
        name = self.a_name()
        if name is not None:
            self.held.append((self.pool[name], name, self.arrays[name]))

    def release(self) -> None:
        if self.held:
            self.held.pop(self.random.randrange(len(self.held)))
        if self.stale and self.random.random() < 0.5:
            self.stale.pop()

    def copy(self) -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in self.arrays.items()}

    def sync(self) -> None:
        self.tokens[self.pool.sync()] = self.copy()
        self.forget()

    def forget(self) -> None:
        # Older ones are given up in the background.
        kept = {entry.token for entry in self.pool.history()[-KEPT:]}
        self.tokens = {token: state for token, state in self.tokens.items() if token in kept}

    def rollback(self) -> None:
        self.forget()
        if not self.tokens:
            return
        token = self.random.choice(list(self.tokens))
        try:
            self.pool.rollback(token)
        except BufferError:
            # Arrays in use are in the way.
            self.held.clear()
            self.stale.clear()
            gc.collect()
            self.pool.rollback(token)
        self.arrays = {name: array.copy() for name, array in self.tokens[token].items()}
        self.tokens = {number: state for number, state in self.tokens.items() if number <= token}
        held, self.held = self.held, []
        for array, _, _ in held:
            if type(array) is not deepram.Array:
                self.stale.append(array)
                continue
            # An array that the token has is that array again, also if it was deleted since.
            name = next((n for n in self.arrays if np.shares_memory(self.pool[n], array)), None)
            if name is not None:
                self.held.append((array, name, self.arrays[name]))

    def reopen(self) -> None:
        end = self.random.choice(["close", "abandon"])
        self.stale += [array for array, _, _ in self.held]
        self.held.clear()
        getattr(self.pool, end)()
        if end == "abandon":
            last = max(self.tokens, default=None)
            self.arrays = {} if last is None else {n: a.copy() for n, a in self.tokens[last].items()}
        self.pool = deepram.Pool(self.path, dram="24MiB")
        if end == "close":
            self.tokens[self.pool.history()[-1].token] = self.copy()
        self.forget()

    def look_back(self) -> None:
        self.forget()
        if self.tokens:
            token = self.random.choice(list(self.tokens))
            view = self.pool.at(token, dram="1MiB")
            assert set(view) == set(self.tokens[token])
            for name, data in self.tokens[token].items():
                assert np.array_equal(view[name], data), (token, name)

    def check(self) -> None:
        assert list(self.pool) == list(self.arrays) or set(self.pool) == set(self.arrays)
        for name, data in self.arrays.items():
            array = self.pool[name]
            assert array.dtype == data.dtype and np.array_equal(array, data), name
        for array, name, data in self.held:
            if name is not None:
                assert np.array_equal(array, data), name
        for array in self.stale:
            with pytest.raises((errors.StaleArrayError, errors.ClosedError)):
                array.sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pool_behaves_as_its_model(path, seed):
    world = World(path, seed)
    actions = [World.create, World.store, World.store, World.delete, World.hold, World.release, World.sync]
    actions += [World.rollback, World.reopen, World.look_back]
    done = []
    try:
        for _ in range(STEPS):
            action = world.random.choice(actions)
            done.append(action.__name__)
            action(world)
            world.check()
    except BaseException:
        print(f"seed {seed}, steps: {' '.join(done)}")
        raise
    used = world.pool.info()["allocated_bytes"]
    world.held.clear()
    world.stale.clear()
    for name in list(world.pool):
        del world.pool[name]
    gc.collect()
    world.pool.sync()
    # Nothing is left but the catalogue.
    assert world.pool.info()["allocated_bytes"] <= 65536 < used + 65537
    world.pool.close()
