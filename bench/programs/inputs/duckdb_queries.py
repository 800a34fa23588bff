"""DuckDB: a database in memory of `data` bytes including intermediate results; spilling to files is disabled."""

import hashlib
import sys

import duckdb

QUERIES = {
    "grouped": "SELECT product, count(*), sum(price), max(buyer) FROM orders GROUP BY product ORDER BY product",
    "joined": "SELECT b.town, count(*), sum(o.price) FROM orders o JOIN buyers b USING (buyer) GROUP BY b.town ORDER BY 1",
    "windowed": "SELECT day, sum(price) FROM (SELECT day, price, row_number() OVER (PARTITION BY day ORDER BY price, number) r"
                " FROM orders) WHERE r <= 100 GROUP BY day ORDER BY day",
    "distinct": "SELECT count(*), sum(n) FROM (SELECT buyer, product, count(*) n FROM orders GROUP BY buyer, product)",
    "sorted": "SELECT number, note FROM orders ORDER BY note, number LIMIT 1000 OFFSET 50000",
}


def main():
    data = int(sys.argv[1])
    rows = data // 120
    base = duckdb.connect(":memory:")
    # Without this setting DuckDB takes its memory limit from the cgroup, and fails at that limit.
    for setting in ("threads=2", f"memory_limit='{8 * data}B'", "temp_directory=''", "allocator_background_threads=false"):
        base.execute(f"SET {setting}")
    base.execute(f"CREATE TABLE buyers AS SELECT i AS buyer, (hash(i) % 997)::INT AS town FROM range({rows // 10}) t(i)")
    base.execute(f"CREATE TABLE orders AS SELECT i AS number, (hash(i) % {rows // 10})::BIGINT AS buyer, "
                 "(hash(i + 1) % 20000)::INT AS product, (hash(i + 2) % 100000)::BIGINT AS price, (i % 365)::INT AS day, "
                 f"md5(i::VARCHAR) AS note FROM range({rows}) t(i)")
    for name, query in QUERIES.items():
        print(name, hashlib.sha256(repr(base.execute(query).fetchall()).encode()).hexdigest()[:16], flush=True)
    base.execute("UPDATE orders SET price = price + 1 WHERE number % 3 = 0")
    base.execute("DELETE FROM orders WHERE number % 7 = 0")
    print("changed", base.execute("SELECT count(*), sum(price), min(note) FROM orders").fetchall(), flush=True)


main()
