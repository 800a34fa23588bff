# A store of records behind a loopback socket, for `deepram repro pmem --real`: LMDB or SQLite with their own calls, spoken to in
# the text protocol of memcached (get, set). Arguments: lmdb or sqlite, the file, MiB of other records, number of the workload's
# records and their prefixes, all of which are written before the measurement.
# Prints its port. Serves one connection, and ends with it.
import socket
import sys

kind, path, fill, records, prefixes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]

if kind == "lmdb":
    import lmdb

    # Stores go to the map; each transaction ends with msync of the used part of it.
    env = lmdb.open(path, map_size=1 << 28, subdir=False, writemap=True, sync=True, max_dbs=0)

    def get(keys):
        with env.begin(buffers=False) as transaction:
            return [(key, transaction.get(key)) for key in keys]

    def put(pairs):
        with env.begin(write=True) as transaction:
            for key, value in pairs:
                transaction.put(key, value)

else:
    import sqlite3

    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA mmap_size=268435456")
    db.execute("CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def get(keys):
        query = "SELECT value FROM records WHERE key = ?"
        rows = [(key, db.execute(query, (key,)).fetchone()) for key in keys]
        return [(key, row and row[0]) for key, row in rows]

    def put(pairs):
        db.execute("BEGIN")
        db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?)", pairs)
        db.execute("COMMIT")


put((b"fill%08d" % n, bytes(1000)) for n in range(fill * 1000))
put((b"%s%012d" % (prefix.encode(), n), bytes(1000)) for prefix in prefixes for n in range(records))
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection = listener.accept()[0]
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
reader = connection.makefile("rb")
while line := reader.readline():
    words = line.split()
    if words[0] == b"get":
        found = [b"VALUE %s 0 %d\r\n%s\r\n" % (key, len(v), v) for key, v in get(words[1:]) if v is not None]
        connection.sendall(b"".join(found) + b"END\r\n")
    elif words[0] == b"set":
        value = reader.read(int(words[4]))
        reader.read(2)
        put([(words[1], value)])
        connection.sendall(b"STORED\r\n")
    else:
        connection.sendall(b"ERROR\r\n")
