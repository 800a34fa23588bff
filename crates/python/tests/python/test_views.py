"""Older tokens beside the live arrays, differences, batches, hints and pickles."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from conftest import in_child

import deepram
from deepram import errors


def test_a_view_shows_an_older_token_beside_the_live_array(pool):
    array = pool.array(np.arange(1_000_000), name="x")
    first = pool.sync()
    array[500_000:] = 0
    pool["y"] = [1, 2]
    second = pool.sync()
    array[:] = 7
    then = pool.at(first)
    assert list(then) == ["x"] and then.token == first
    assert np.array_equal(then["x"], np.arange(1_000_000))
    assert (array == 7).all()
    later = pool.at(second)
    assert later["x"][-1] == 0 and later["x"][3] == 3 and later["y"].tolist() == [1, 2]
    assert not then["x"].flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        then["x"][0] = 1
    with pytest.raises(KeyError, match="there are: 'x'"):
        then["y"]
    assert then.take_errors() == [] and "token" in repr(then)
    assert deepram.gather(then["x"], [[5, -1]]).tolist() == [[5, 999_999]]


def test_a_view_stays_within_its_dram(path):
    with deepram.Pool(path, size="128MiB", dram="24MiB") as pool:
        array = pool.zeros(64 << 20, "u1", name="x")
        for at in range(0, len(array), 1 << 20):
            array[at : at + (1 << 20)] = at >> 20
        token = pool.sync()
        array[:] = 99
        before = resident()
        view = pool.at(token, dram="2MiB")
        assert view["x"][:: 1 << 20].tolist() == list(range(64))
        assert view["x"].sum() == sum(range(64)) << 20
        assert resident() - before < 24 << 20
        assert pool.stats()["budget_bytes"] == 22 << 20
        del view
        pool.sync()
        assert pool.stats()["budget_bytes"] == 24 << 20
        with pytest.raises((errors.BudgetError, errors.OptionError)):
            pool.at(token, dram="64KiB")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_an_array_of_a_view_is_stale_when_its_token_is_given_up(pool):
    pool["x"] = np.arange(10)
    token = pool.sync()
    then = pool.at(token)["x"]
    view = pool.at(token)
    for step in range(10):
        pool["x"][0] = step
        pool.sync()
    with pytest.raises(errors.TokenError, match="not kept"):
        then[0]
    with pytest.raises(errors.TokenError, match="not kept"):
        view["x"]


def test_a_view_ends_with_the_pool_and_with_a_rollback(path):
    pool = deepram.Pool(path, size="32MiB", dram="24MiB")
    pool["x"] = np.arange(10)
    first = pool.sync()
    pool["x"] += 1
    second = pool.sync()
    early, late = pool.at(first)["x"], pool.at(second)["x"]
    pool.rollback(first)
    with pytest.raises(errors.TokenError):
        late[0]
    assert early.tolist() == list(range(10))
    pool.close()
    with pytest.raises(errors.ClosedError):
        early[0]


def test_diff_names_the_changed_parts(pool):
    line = pool.zeros(100_000, "float32", name="line")
    table = pool.zeros((500, 4096), "float32", name="table")
    cube = pool.zeros((3, 50, 4096), "float32", name="cube")
    columns = pool.zeros((4096, 500), "float32", name="columns", order="F")
    pool.zeros(10, name="gone")
    a = pool.sync()
    line[5000] = 1
    line[5001] = 1
    table[7] = 1
    table[8:10] = 1
    cube[1, 7:9] = 1
    columns[:, 33] = 1
    pool["new"] = [1]
    del pool["gone"]
    b = pool.sync()
    line[99_999] = 1
    for diff in (pool.diff(a, b), pool.diff(b, a)):
        assert diff["line"] == [(slice(4096, 5120),)]
        assert diff["table"] == [(slice(7, 10), slice(0, 4096))]
        assert diff["cube"] == [(slice(1, 2), slice(7, 9), slice(0, 4096))]
        assert diff["columns"] == [(slice(0, 4096), slice(33, 34))]
        assert set(diff) == {"line", "table", "cube", "columns"} and len(diff) == 4
        assert diff.added == ["new"] and diff.removed == ["gone"]
    assert pool.diff(b)["line"] == [(slice(99_328, 100_000),)]
    assert list(pool.diff(b, b)) == []
    assert "line" in repr(pool.diff(a))
    with pytest.raises(errors.TokenError):
        pool.diff(a, 99)


@pytest.mark.parametrize("seed", range(8))
def test_diff_covers_every_change(pool, seed):
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 40, random.integers(1, 5)))
    dtype = random.choice(["u1", "i2", "f8", "S5"])
    order = random.choice(["C", "F"])
    array = pool.zeros(shape, dtype, name="x", order=order)
    a = pool.sync()
    before = array.copy()
    for _ in range(random.integers(1, 6)):
        array[tuple(random.integers(0, length) for length in shape)] = 3
    if random.integers(2):
        pool.sync()
    changed = np.zeros(shape, bool)
    for index in pool.diff(a).get("x", []):
        changed[index] = True
    assert changed[np.asarray(array) != np.asarray(before)].all(), f"seed {seed}"


def test_gather_and_scatter_do_what_numpy_does(pool):
    random = np.random.default_rng(1)
    data = random.random((5000, 33))
    array = pool.array(data, name="x")
    pool.sync()
    deepram.evict(array)
    rows = random.integers(-5000, 5000, (70, 3))
    assert np.array_equal(deepram.gather(array, rows), data[rows])
    out = np.empty((70, 3, 33))
    assert deepram.gather(array, rows, out=out) is out and np.array_equal(out, data[rows])
    assert np.array_equal(deepram.gather(array[1000:2000], [0, -1]), data[[1000, 1999]])
    assert np.array_equal(deepram.gather(array[::7], [3, 4]), data[::7][[3, 4]])
    assert deepram.gather(array, []).shape == (0, 33)
    assert np.array_equal(deepram.gather(array[:, 0:33], 5), data[5])
    values = random.random((70, 3, 33))
    deepram.scatter(array, rows, values)
    data[rows] = values
    assert np.array_equal(array, data)
    deepram.scatter(array, [1, 1], [[2.0] * 33, [3.0] * 33])
    assert (array[1] == 3).all()
    deepram.scatter(array, [7, 8], 0)
    assert (array[7:9] == 0).all()
    line = pool.array(np.arange(1000), name="line")
    assert deepram.gather(line, [5, 7]).tolist() == [5, 7]


def test_gather_refuses_what_it_cannot_do(pool):
    array = pool.zeros((10, 4), name="x")
    for call, kind, part in [
        (lambda: deepram.gather(array, [10]), IndexError, "index 10 is out of bounds for 10 rows"),
        (lambda: deepram.gather(array, [-11]), IndexError, "index -11"),
        (lambda: deepram.gather(array, [1.5]), TypeError, "no integer"),
        (lambda: deepram.gather(np.zeros(3), [0]), TypeError, "not in a pool"),
        (lambda: deepram.gather([1, 2], [0]), TypeError, "no array of a pool"),
        (lambda: deepram.gather(array.T, [0]), ValueError, "not contiguous"),
        (lambda: deepram.gather(array[::-1], [0]), ValueError, "reverse"),
        (lambda: deepram.gather(array, [0], out=np.zeros(3)), ValueError, "out: "),
        (lambda: deepram.gather(pool.array(5.0), [0]), ValueError, "no dimension"),
        (lambda: deepram.scatter(array, [0], np.zeros(3)), ValueError, "broadcast"),
    ]:
        with pytest.raises(kind, match=part):
            call()
    pool.sync()
    with pytest.raises(ValueError, match="read-only"):
        deepram.scatter(pool.at(pool.history()[-1].token)["x"], [0], 1)


def test_hints_change_speed_and_never_elements(pool):
    array = pool.array(np.arange(2_000_000), name="x")
    pool.sync()
    deepram.evict(array)
    resident = pool.stats()["resident_segments"]
    deepram.prefetch(array[:100_000])
    deepram.prefetch(array, [1, 2, 3, 900_000])
    deepram.pin(array[:1000])
    assert array[500_000] == 500_000
    assert pool.stats()["resident_segments"] > resident
    deepram.unpin(array[:1000])
    assert np.array_equal(array, np.arange(2_000_000))
    with pytest.raises(errors.OptionError, match="half"):
        deepram.pin(pool.zeros(40 << 20, "u1"))


@pytest.mark.parametrize("seed", range(4))
def test_update_stores_only_segments_that_differ(pool, seed):
    random = np.random.default_rng(seed)
    array = pool.array(random.random((300, 700)), name="x")
    part = array[7:250]
    pool.sync()
    new = np.array(part)
    new[random.integers(0, 243), random.integers(0, 700)] = 5
    new[100:110] = 6
    assert 4096 <= deepram.update(part, new) <= 10 * 5600 + 3 * 4096, f"seed {seed}"
    assert np.array_equal(part, new) and deepram.update(part, new) == 0
    written = pool.stats()["bytes_user"]
    pool.sync()
    assert pool.stats()["bytes_user"] - written <= 30 * 4096
    deepram.update(array[:, ::3], 7)
    assert (array[:, ::3] == 7).all() and (np.asarray(array)[100 + 7, 1] == 6)
    deepram.update(pool.zeros(0), np.zeros(0))


def test_an_array_is_pickled_by_reference(path):
    pool = deepram.Pool(path, size="32MiB", dram="24MiB")
    array = pool.array(np.arange(1_000_000.0).reshape(1000, 1000), name="x")
    token = pool.sync()
    parts = [array, array[3:7, ::2], array.T, array[5]]
    texts = [pickle.dumps(part) for part in parts]
    assert all(len(text) < 1000 for text in texts)
    for part, text in zip(parts, texts):
        back = pickle.loads(text)
        assert np.shares_memory(back, part) and np.array_equal(back, part) and back.strides == part.strides
    unnamed = pool.array([1.0, 2.0])
    assert pickle.loads(pickle.dumps(unnamed)).tolist() == [1, 2]
    assert not np.shares_memory(pickle.loads(pickle.dumps(unnamed)), unnamed)
    then = pickle.dumps(pool.at(token)["x"][2])
    array[:] = 0
    assert pickle.loads(then)[3] == 2003 and pickle.loads(texts[1]).sum() == 0
    pool.sync()
    del unnamed, back
    pool.close()
    (path.parent / "pickled").write_bytes(texts[1] + then)
    source = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    part, then = pickle.load(file), pickle.load(file)
print(part.shape, part.sum(), then[3])
import warnings; warnings.simplefilter("ignore")
"""
    assert in_child(source, path.parent / "pickled").strip() == "(4, 500) 0.0 2003.0"
    with deepram.Pool(path, dram="24MiB") as pool:
        del pool["x"]
        pool["x"] = [1]
        with pytest.raises(errors.StaleArrayError, match="another array has its name"):
            pickle.loads(texts[0])
    assert sys.getrefcount(pool) < 10
