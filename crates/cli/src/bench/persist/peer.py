# Durable updates of 64 bytes by SQLite and LMDB, for `deepram bench persist`.
# Arguments: sqlite-wal-full or lmdb, folder, threads, seconds, bytes of data.
# Prints one JSON object: seconds, nanoseconds of each update.
import json
import os
import random
import sys
import threading
import time

name, folder = sys.argv[1:3]
threads, seconds, size = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
ROWS = size // 64


def sqlite():
    import sqlite3

    path = os.path.join(folder, "data.sqlite")

    def connect():
        link = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA synchronous = FULL")
        return link

    link = connect()
    link.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v BLOB)")
    have = link.execute("SELECT count(*) FROM t").fetchone()[0]
    link.execute("BEGIN")
    link.executemany("INSERT INTO t VALUES (?, ?)", ((n, bytes(64)) for n in range(have, ROWS)))
    link.execute("COMMIT")
    link.close()

    def worker():
        link = connect()
        value = os.urandom(64)
        return lambda key: link.execute("UPDATE t SET v = ? WHERE id = ?", (value, key))

    return worker


def lmdb():
    import lmdb

    environment = lmdb.open(folder, map_size=max(16 * size, 1 << 28), max_readers=300)
    key = lambda n: n.to_bytes(8, "big")
    with environment.begin(write=True) as transaction:
        if transaction.stat()["entries"] < ROWS:
            for n in range(ROWS):
                transaction.put(key(n), bytes(64))

    def worker():
        value = os.urandom(64)

        def update(n):
            with environment.begin(write=True) as transaction:
                transaction.put(key(n), value)

        return update

    return worker


make = {"sqlite-wal-full": sqlite, "lmdb": lmdb}[name]()
times = []
start = time.perf_counter()


def run(seed):
    update, rng, mine = make(), random.Random(seed), []
    while (begun := time.perf_counter()) - start < seconds:
        update(rng.randrange(ROWS))
        mine.append(int((time.perf_counter() - begun) * 1e9))
    times.extend(mine)


workers = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(json.dumps({"seconds": time.perf_counter() - start, "nanoseconds": times}))
