"""Accesses that the device cannot serve raise, and the process goes on."""

from __future__ import annotations

from conftest import in_child

FULL = """
import sys
import numpy as np
import deepram
from deepram import errors

path, random = sys.argv[1], np.random.default_rng(1)
pool = deepram.Pool(path, size="64MiB", dram="16MiB", flash="40MiB", keep=1)
small = pool.array(np.arange(1000), name="small")
token = pool.sync()
large = pool.empty(56 << 20, "u1", name="large")
try:
    for at in range(0, len(large), 1 << 20):
        large[at : at + (1 << 20)] = random.integers(0, 256, 1 << 20, "u1")
    print("no error")
except errors.NoSpaceError as error:
    print("raised", "last token" in str(error))
for use in (lambda: small[5], lambda: small.sum(), pool.sync):
    try:
        use()
        # The exception comes a few bytecodes late.
        for _ in range(1000):
            pass
        print("no error")
    except errors.PoolError as error:
        print(type(error).__name__)
pool.abandon()
try:
    small[5]
except errors.ClosedError:
    print("stale")
with deepram.Pool(path, dram="16MiB") as pool:
    print(list(pool), pool["small"].sum(), pool.history()[-1].token >= token)
"""

DAMAGED = """
import sys
import threading
import time
import numpy as np
import deepram
from deepram import errors

path = sys.argv[1]
with deepram.Pool(path, size="16MiB", dram="16MiB") as pool:
    for name in ("good", "bad"):
        pool[name] = np.frombuffer((name.encode() * 4096)[:4096] * 16, "u1")
with open(path, "r+b") as file:
    data = file.read()
    at = data.index(b"badbadbadbad", data.index(b"goodgoodgood"))
    while at >= 0:
        file.seek(at + 100)
        file.write(b"xyz")
        at = data.find(b"badbadbadbad", at + 4096)
pool = deepram.Pool(path, dram="16MiB")
good, bad = pool["good"], pool["bad"]
try:
    deepram.gather(bad, [5])
except errors.PoolError as error:
    print("gather", type(error).__name__)
print("good", bytes(good[:4]))
try:
    bad.sum()
    print("no error")
except errors.PoolError as error:
    print("access", type(error).__name__, "last token" in str(error))
pool.abandon()
pool = deepram.Pool(path, dram="16MiB")
bad, seen = np.asarray(pool["bad"]), []


def work():
    try:
        try:
            for _ in range(100_000):
                bad.max()
        except errors.PoolError as error:
            seen.append(type(error).__name__)
        # An access that was under way when the exception came may raise another one.
        time.sleep(0.2)
    except errors.PoolError:
        pass


thread = threading.Thread(target=work)
thread.start()
# The exception of another thread needs the main thread to execute something.
while thread.is_alive():
    thread.join(0.01)
print("thread", *seen)
pool.abandon()
with deepram.Pool(path, dram="16MiB") as pool:
    print("again", bytes(pool["good"][:4]))
"""


def test_a_store_to_a_full_device_raises_and_the_pool_is_as_at_its_last_token(path):
    lines = in_child(FULL, path).splitlines()
    assert lines == ["raised True", "NoSpaceError", "NoSpaceError", "ClosedError", "stale", "['small'] 499500 True"]


def test_a_load_from_a_damaged_segment_raises_and_the_rest_can_be_read(path):
    lines = in_child(DAMAGED, path).splitlines()
    assert lines == [
        "gather DamagedError",
        "good b'good'",
        "access DamagedError True",
        "thread DamagedError",
        "again b'good'",
    ]
