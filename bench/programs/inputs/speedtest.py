"""Writes SQL like that of SQLite's speedtest1 to the standard output, for a database of about `data` bytes."""

import random
import sys

#: SQL expressions of i: a number, and a text of 60 to 130 bytes.
NUMBER = "(i * 2654435761 % 1073741789)"
TEXT = "printf('%08x %s %x', i * 40503 % 16777213, replace(hex(i * 7919), '3', 'word '), i)"


def filled(table, first, last):
    return (f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i+1 FROM n WHERE i<{last}) "
            f"INSERT INTO {table} SELECT i, {NUMBER}, {TEXT} FROM n;\n")


def main():
    rows = int(sys.argv[1]) // 430
    rng = random.Random(5)
    out = sys.stdout.write
    out("PRAGMA cache_size=-2000000; PRAGMA temp_store=MEMORY;\n")
    out("CREATE TABLE plain(a INTEGER, b INTEGER, c TEXT);\n")
    out("CREATE TABLE keyed(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);\n")
    out("CREATE TABLE texts(k TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;\n")
    single = rows // 50
    for table in ("plain", "keyed"):
        out("BEGIN;\n")
        for i in range(single):
            drawn = rng.getrandbits(30)
            out(f"INSERT INTO {table} VALUES({i + 1},{drawn},'{drawn:x} a row of its own statement {drawn * 7}');\n")
        out("COMMIT;\n")
        out(filled(table, single + 1, rows))
    out("CREATE INDEX plain_b ON plain(b); CREATE INDEX keyed_c ON keyed(c);\n")
    out("INSERT INTO texts SELECT c || a, b FROM plain WHERE a % 2;\n")
    out("SELECT 'rows', count(*), sum(b), sum(length(c)) FROM plain;\n")
    for _ in range(rows // 200):
        low = rng.getrandbits(30)
        out(f"SELECT count(*), sum(a), max(c) FROM plain WHERE b BETWEEN {low} AND {low + 10000};\n")
    for _ in range(rows // 200):
        out(f"SELECT b, c FROM keyed WHERE a={rng.randrange(rows) + 1};\n")
    out("BEGIN;\n")
    for _ in range(rows // 400):
        low = rng.randrange(rows)
        out(f"UPDATE keyed SET b=b+1, c=c||'!' WHERE a BETWEEN {low} AND {low + 3};\n")
    out("COMMIT;\n")
    out("SELECT 'joined', count(*), sum(p.b + k.b) FROM plain p JOIN keyed k ON p.a=k.a WHERE p.a % 7 = 3;\n")
    out(f"DELETE FROM plain WHERE b BETWEEN 0 AND {1 << 23};\n")
    out("UPDATE plain SET b=b*2 WHERE a % 256 = 0;\n")
    out("SELECT 'ordered', group_concat(a) FROM (SELECT a FROM plain WHERE a % 4 = 0 ORDER BY c DESC, a LIMIT 50);\n")
    out("SELECT 'grouped', a % 16, count(*), sum(b) FROM plain GROUP BY 2;\n")
    out("SELECT 'texts', count(*), sum(n), min(k), max(k) FROM texts WHERE k > 'f';\n")
    out("PRAGMA integrity_check(1);\n")


main()
