"""Orders of customers in an SQLite database in memory: the program whose page faults are in orders.trace."""

import random
import sqlite3

choose = random.Random(1)
orders = 120_000
database = sqlite3.connect(":memory:")
database.execute("create table orders (id integer primary key, customer text, note text)")
rows = ((n, f"customer {n % 5000}", "x" * 200) for n in range(orders))
database.executemany("insert into orders values (?, ?, ?)", rows)
for _ in range(12_000):
    # A few orders are read and changed again and again, most of them seldom.
    order = int(choose.paretovariate(0.4)) * 7919 % orders
    database.execute("select customer from orders where id = ?", (order,)).fetchone()
    if choose.random() < 0.3:
        database.execute("update orders set note = ? where id = ?", ("y" * 200, order))
