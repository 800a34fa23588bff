"""Arrays in a pool: names, views, tokens, what survives, and what raises."""

from __future__ import annotations

import gc
import pickle
import threading
import time
import warnings

import numpy as np
import pytest
from conftest import in_child

import deepram
from deepram import errors


def test_an_array_is_a_numpy_array_over_the_pool_without_a_copy(pool):
    array = pool.zeros((1000, 300), "float32", name="x")
    assert isinstance(array, np.ndarray)
    assert array.shape == (1000, 300) and array.dtype == np.float32 and array.flags.c_contiguous
    array[3] = 7
    assert pool["x"][3].sum() == 2100
    assert pool["x"].ctypes.data == array.ctypes.data
    assert type(array + 1) is np.ndarray and type(array.sum()) is np.float32
    assert type(np.sqrt(array)) is np.ndarray and isinstance(array[1:], deepram.Array)
    array += 1
    assert isinstance(array, deepram.Array) and array[0, 0] == 1
    assert np.shares_memory(array, pool["x"])


def test_every_kind_of_dtype_and_shape_comes_back_from_the_catalogue(path):
    made = {
        "float": np.arange(100.0).reshape(4, 25),
        "ints": np.arange(7, dtype=">i2"),
        "bool": np.array([True, False]),
        "complex": np.full((2, 2, 2), 1 + 2j),
        "text": np.array(["ab", "cde"], "U5"),
        "bytes": np.array([b"ab", b"cde"]),
        "times": np.array(["2026-01-01", "2026-02-03"], "datetime64[D]"),
        "struct": np.array([(1, 2.5, [1, 2])], [("a", "i4"), ("b", "f8"), ("c", "u1", (2,))]),
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "scalar": np.array(5.5),
        "empty": np.zeros((0, 3)),
    }
    with deepram.Pool(path, size="64MiB", dram="32MiB") as pool:
        for name, array in made.items():
            pool.array(array, name=name)
    with deepram.Pool(path, dram="32MiB") as pool:
        assert list(pool) == list(made) and len(pool) == len(made) and "text" in pool and "none" not in pool
        for name, array in made.items():
            back = pool[name]
            assert back.dtype == array.dtype and back.shape == array.shape, name
            assert np.array_equal(back, array), name
        assert pool["fortran"].flags.f_contiguous


def test_wrong_arguments_say_what_would_be_right(pool, folder):
    pool.zeros(3, name="x")
    for call, kind, part in [
        (lambda: pool.zeros(3, name="x"), ValueError, "has an array 'x' already"),
        (lambda: pool["y"], KeyError, "there are: 'x'"),
        (lambda: pool.zeros(3, object), TypeError, "holds Python objects"),
        (lambda: pool.zeros(-1), ValueError, "negative length"),
        (lambda: pool.zeros(3, order="A"), ValueError, "give 'C' or 'F'"),
        (lambda: pool.zeros(3, name=""), ValueError, "not empty"),
        (lambda: pool.zeros(1 << 40), errors.NoAddressSpaceError, "contiguous free address space"),
        (lambda: pool.rollback(999), errors.TokenError, "999"),
        (lambda: pool.at(999), errors.TokenError, "999"),
        (lambda: pool.keep(0), ValueError, "at least one"),
        (lambda: deepram.Pool(folder / "none.pool"), FileNotFoundError, "give size="),
        (lambda: deepram.Pool(folder / "new.pool", size="8Gib!"), ValueError, 'size: "8Gib!" is not a size'),
        (lambda: deepram.Pool(folder / "new.pool", size=0), ValueError, "must be positive"),
        (lambda: deepram.Pool(folder / "new.pool", size="64MiB", dram="1KiB"), errors.BudgetError, "too small"),
        (lambda: deepram.Pool(folder / "new.pool", size="1MiB", segment=5), errors.OptionError, "4096"),
        (lambda: deepram.Pool(folder / "new.pool", size="64MiB", mapping="x"), errors.OptionError, "give"),
    ]:
        with pytest.raises(kind, match=part.replace("(", r"\(")):
            call()
    (folder / "text").write_text("hello")
    with pytest.raises(errors.NotAPoolError):
        deepram.Pool(folder / "text")


def test_a_pool_is_opened_once(pool, path):
    with pytest.raises(errors.BusyError, match="in this process already"):
        deepram.Pool(path)
    with pytest.raises(AssertionError, match="BusyError"):
        in_child("import sys, deepram; deepram.Pool(sys.argv[1])", path)


def test_the_size_of_an_existing_pool_is_checked(path):
    deepram.Pool(path, size="64MiB", dram="32MiB").close()
    deepram.Pool(path, size="64MiB", dram="32MiB").close()
    with pytest.raises(ValueError, match="leave size out"):
        deepram.Pool(path, size="128MiB", dram="32MiB")
    deepram.Pool(path, dram="32MiB").close()


def test_assignment_by_name(pool):
    pool["x"] = np.arange(5)
    pool["x"] += 1
    assert pool["x"].tolist() == [1, 2, 3, 4, 5]
    first = pool["x"]
    pool["x"] = np.zeros(5)
    assert first.tolist() == [0] * 5 and first.dtype == np.arange(5).dtype
    pool["x"] = 3
    assert first.tolist() == [3] * 5
    pool["x"] = first[::-1]
    with pytest.raises(ValueError, match="has shape"):
        pool["x"] = np.zeros(6)


def test_full_and_empty(pool):
    assert pool.full((2, 2), 7).tolist() == [[7, 7], [7, 7]]
    assert pool.full(3, 1.5, "float32", name="h").dtype == np.float32
    assert pool.empty(3, int).tolist() == [0, 0, 0]


def test_a_deleted_array_lives_as_long_as_its_views(pool):
    free = pool.info()["allocated_bytes"]
    array = pool.array(np.arange(100_000), name="x")
    part = array[10:20]
    del pool["x"]
    assert "x" not in pool
    again = pool.zeros(10, name="x")
    assert part.sum() == 145 and again.sum() == 0
    del array, part, again, pool["x"]
    gc.collect()
    pool.sync()
    # The catalogue itself takes a page.
    assert pool.info()["allocated_bytes"] <= free + 65536
    with pytest.raises(KeyError):
        del pool["x"]


def test_an_unnamed_array_gives_its_memory_back(pool):
    for _ in range(20):
        array = pool.zeros(4 << 20, "u1")
        array[:] = 1
    assert pool.zeros(4 << 20, "u1").sum() == 0


def test_what_was_synced_survives_a_kill_and_the_rest_does_not(path):
    source = """
import os, signal, sys, deepram
pool = deepram.Pool(sys.argv[1], size="64MiB", dram="16MiB")
x = pool.zeros((256, 1024), "float64", name="x")
temporary = pool.zeros(1000)
x[:] = 1
print(pool.sync(), flush=True)
x[:] = 2
pool.zeros(3, name="y")
os.kill(os.getpid(), signal.SIGKILL)
"""
    token = int(in_child(source, path, kill=True))
    with deepram.Pool(path, dram="16MiB") as pool:
        assert list(pool) == ["x"] and pool["x"].shape == (256, 1024) and (pool["x"] == 1).all()
        assert [entry.token for entry in pool.history()][-1] == token


def test_rollback_shows_the_elements_of_the_token_in_every_view(pool):
    array = pool.zeros(100_000, name="x")
    part, plain = array[1000:], np.asarray(array)
    array[:] = 1
    first = pool.sync()
    array[:] = 2
    second = pool.sync()
    array[:] = 3
    pool.rollback(second)
    assert array.sum() == 200_000
    pool.rollback(first)
    assert array.sum() == 100_000 and part.sum() == 99_000 and plain.sum() == 100_000
    with pytest.raises(errors.TokenError):
        pool.rollback(second)


def test_a_rollback_brings_back_a_deleted_array(pool):
    array = pool.array([1, 2, 3], name="x")
    token = pool.sync()
    del pool["x"]
    pool.sync()
    array[0] = 9
    pool.rollback(token)
    assert pool["x"].tolist() == [1, 2, 3] and array.tolist() == [1, 2, 3]
    del array
    pool.sync()
    assert pool["x"].tolist() == [1, 2, 3]


def test_an_array_that_a_rollback_removes_is_stale(pool):
    token = pool.sync()
    array = pool.array(np.arange(10.0), name="x")
    view, unnamed = array[2:5].reshape(3, 1), pool.zeros(5)
    pool.sync()
    pool.rollback(token)
    assert "x" not in pool
    for stale in (array, view, unnamed):
        with pytest.raises(errors.StaleArrayError, match="rollback to token"):
            stale[0]
    # Its addresses are not given to another array as long as it is in use.
    made = [pool.full(10, 7.0) for _ in range(5)]
    assert all(not (one.ctypes.data <= array.ctypes.data < one.ctypes.data + 65536) for one in made)
    pool.sync()


def test_memory_that_a_rollback_removes_is_free_again_without_views(pool):
    token = pool.sync()
    before = pool.info()["allocated_bytes"]
    array = pool.zeros(4 << 20, "u1")
    del array
    array = pool.zeros(4 << 20, "u1")
    pool.rollback(token)
    del array
    for _ in range(30):
        kept = pool.zeros(8 << 20, "u1")
        kept[:] = 1
    del kept
    pool.sync()
    assert pool.info()["allocated_bytes"] <= before + 65536


def test_unnamed_arrays_of_a_token_that_are_not_in_use_are_freed_by_a_rollback(pool):
    array = pool.zeros(4 << 20, "u1")
    token = pool.sync()
    del array
    other = pool.zeros(3)
    before = pool.info()["allocated_bytes"]
    del other
    pool.sync()
    pool.rollback(token)
    pool.sync()
    assert pool.info()["allocated_bytes"] <= before


def test_a_rollback_that_would_give_memory_in_use_to_another_array_is_refused(pool):
    first = pool.zeros(60 << 20, "u1", name="first")
    first[:100] = 1
    token = pool.sync()
    del first, pool["first"]
    second = pool.zeros(60 << 20, "u1", name="second")
    with pytest.raises(BufferError, match="'second'"):
        pool.rollback(token)
    assert second.sum() == 0 and "second" in pool
    del second
    pool.rollback(token)
    assert pool["first"].sum() == 100


USES = {
    "element": lambda a: a[0],
    "store": lambda a: a.__setitem__(0, 1),
    "slice": lambda a: a[1:],
    "sum": lambda a: a.sum(),
    "np.sum": lambda a: np.sum(a),
    "add": lambda a: a + 1,
    "reversed add": lambda a: 1 + a,
    "add in place": lambda a: a.__iadd__(1),
    "out": lambda a: np.add(1, 2, out=a),
    "compare": lambda a: a == 1,
    "bool": lambda a: bool(a),
    "iterate": lambda a: next(iter(a)),
    "list": lambda a: list(a),
    "contains": lambda a: 3 in a,
    "copy": lambda a: a.copy(),
    "tolist": lambda a: a.tolist(),
    "tobytes": lambda a: a.tobytes(),
    "view": lambda a: a.view(),
    "reshape": lambda a: a.reshape(-1),
    "transpose": lambda a: a.T,
    "flat": lambda a: a.flat[0],
    "sort": lambda a: a.sort(),
    "fill": lambda a: a.fill(1),
    "dot": lambda a: a @ a,
    "concatenate": lambda a: np.concatenate([a, a]),
    "where": lambda a: np.where(a > 1),
    "gather": lambda a: deepram.gather(a, [0]),
    "scatter": lambda a: deepram.scatter(a, [0], 1),
    "prefetch": lambda a: deepram.prefetch(a),
    "pickle": lambda a: pickle.dumps(a),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_every_use_of_an_array_raises_after_close(path, use):
    pool = deepram.Pool(path, size="16MiB", dram="16MiB")
    array = pool.array(np.arange(10.0), name="x")
    part = array[2:]
    pool.close()
    for stale in (array, part):
        with pytest.raises(errors.ClosedError, match="closed"):
            use(stale)
    assert "stale" in repr(array) and "stale" in f"{array}" and array.shape == (10,)


def test_a_plain_view_raises_after_close_and_the_process_goes_on(path):
    source = """
import sys, threading, time
import numpy as np
import deepram
from deepram import errors

pool = deepram.Pool(sys.argv[1], size="16MiB", dram="16MiB")
array = pool.array(np.arange(100_000.0), name="x")
plain, memory = np.asarray(array), memoryview(array)
pool.close()

def expect(use):
    try:
        use()
        for _ in range(1000):
            time.sleep(0)
    except errors.ClosedError:
        return
    raise SystemExit("no exception")

for _ in range(3):
    expect(lambda: plain[0])
    expect(lambda: plain.sum())
    expect(lambda: plain.fill(1))
    expect(lambda: memory[5])
    expect(lambda: np.add(plain, 1))

result = []
def work():
    try:
        expect(lambda: plain[7])
        result.append("raised")
    except BaseException as error:
        result.append(repr(error))
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(result[0])
del plain, memory, array
with deepram.Pool(sys.argv[1], dram="16MiB") as pool:
    print(pool["x"].sum())
"""
    assert in_child(source, path).split() == ["raised", "4999950000.0"]


def test_a_plain_view_raises_after_a_rollback_removed_the_array(path):
    source = """
import sys, time
import numpy as np
import deepram
from deepram import errors

with deepram.Pool(sys.argv[1], size="16MiB", dram="16MiB") as pool:
    kept = pool.full(1000, 5.0, name="kept")
    token = pool.sync()
    array = pool.array(np.arange(100_000.0), name="x")
    plain = np.asarray(array)
    pool.rollback(token)
    for _ in range(3):
        try:
            plain.sum()
            for _ in range(1000):
                time.sleep(0)
        except errors.StaleArrayError:
            print("raised")
    del plain, array
    other = [pool.full(100_000, 7.0) for _ in range(5)]
    assert all(one.sum() == 700_000 for one in other)
    pool.sync()
    assert kept.sum() == 5000
with deepram.Pool(sys.argv[1], dram="16MiB") as pool:
    assert pool["kept"].sum() == 5000
"""
    assert in_child(source, path).split() == ["raised"] * 3


def test_an_access_in_a_forked_child_raises_and_the_parent_goes_on(path):
    source = """
import os, sys, time
import deepram
from deepram import errors

pool = deepram.Pool(sys.argv[1], size="16MiB", dram="16MiB")
array = pool.full(100_000, 2.0, name="x")
child = os.fork()
if child == 0:
    status = 1
    try:
        array.sum()
        for _ in range(1000):
            time.sleep(0)
    except errors.ForkedChildError:
        try:
            pool.sync()
        except errors.ForkedChildError:
            status = 0
    os._exit(status)
print(os.waitpid(child, 0)[1], array.sum())
pool.close()
"""
    assert in_child(source, path).split() == ["0", "200000.0"]


def test_an_array_keeps_its_pool_open(path):
    def make():
        return deepram.Pool(path, size="16MiB", dram="16MiB").full(1000, 3.0, name="x")

    array = make()
    gc.collect()
    array[0] = 4
    assert array.sum() == 3001
    with pytest.warns(ResourceWarning, match="was not closed"):
        del array
        gc.collect()
    with deepram.Pool(path, dram="16MiB") as pool:
        assert pool["x"].sum() == 3001


def test_a_pool_that_is_not_closed_is_saved_when_the_interpreter_ends(path):
    source = "import sys, deepram; p = deepram.Pool(sys.argv[1], size='16MiB', dram='16MiB'); p['x'] = [1, 2]"
    in_child(source, path)
    with deepram.Pool(path, dram="16MiB") as pool:
        assert pool["x"].tolist() == [1, 2]


def test_leaving_the_block_by_an_exception_abandons_what_was_not_synced(path):
    with pytest.raises(RuntimeError):
        with deepram.Pool(path, size="16MiB", dram="16MiB") as pool:
            pool["x"] = [1, 2]
            pool.sync()
            pool["x"] = [3, 4]
            raise RuntimeError
    with deepram.Pool(path, dram="16MiB") as pool:
        assert pool["x"].tolist() == [1, 2]
        pool["x"] = [5, 6]
        pool.abandon()
    with deepram.Pool(path, dram="16MiB") as pool:
        assert pool["x"].tolist() == [1, 2]
    for use in (pool.sync, pool.history, lambda: pool["x"], lambda: "x" in pool, lambda: pool.zeros(1), pool.info):
        with pytest.raises(errors.ClosedError):
            use()
    pool.close()
    assert pool.closed and "closed" in repr(pool)


def test_history_has_times_and_sizes(pool):
    before = time.time()
    pool.full(1000, 1.0, name="x")
    token = pool.sync()
    entries = pool.history()
    assert entries[0].token < token and entries[0].time is None
    assert entries[-1].token == token and before - 1 <= entries[-1].time.timestamp() <= time.time() + 1
    assert entries[-1].bytes_written >= 8000
    # As many tokens as the pool keeps: none is given up in the background.
    for _ in range(5):
        pool["x"] += 1
        last = pool.sync()
    pool.drop(token)
    assert token not in [entry.token for entry in pool.history()] and pool.history()[-1].token == last
    pool.keep(2)
    pool["x"] += 1
    assert pool.history()[-1].token < pool.sync() == pool.history()[-1].token


def test_other_threads_run_during_a_sync(pool):
    array = pool.zeros(48 << 20, "u1", name="x")
    counts = [0, 0]
    done = threading.Event()

    def count():
        while not done.is_set():
            counts[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    array[:] = 1
    before = counts[0]
    pool.sync()
    counts[1] = counts[0] - before
    done.set()
    thread.join()
    assert counts[1] > 0


def test_threads_use_a_pool_together(pool):
    failures = []

    def work(seed):
        try:
            random = np.random.default_rng(seed)
            for step in range(20):
                name = f"{seed}-{step}"
                data = random.integers(0, 100, 50_000)
                array = pool.array(data, name=name)
                if step % 5 == 0:
                    pool.sync()
                assert np.array_equal(array, data)
                if step % 2:
                    del pool[name]
        except BaseException as error:
            failures.append((seed, error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(pool) == 40


def test_more_than_the_dram_passes_through(path):
    with deepram.Pool(path, size="128MiB", dram="16MiB") as pool:
        array = pool.zeros((1024, 16384), "float64" if False else "float32", name="x")
        for row in range(1024):
            array[row] = row
        pool.sync()
        assert array.sum(dtype="f8") == 16384 * 1023 * 512
        assert pool.stats()["dram_bytes"] <= 16 << 20
        pool.dram = "24MiB"
        assert pool.dram == 24 << 20 and pool.stats()["budget_bytes"] == 24 << 20


def test_nothing_warns_in_ordinary_use(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with deepram.Pool(path, size="16MiB", dram="16MiB", mapping="user") as pool:
            pool["x"] = np.ones(3)
            repr(pool), str(pool["x"]), pool.info(), pool.stats()
