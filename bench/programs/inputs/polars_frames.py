"""polars: frames of `data` bytes including intermediate results: group, join, sort, window, strings, on two threads."""

import sys

import numpy as np
import polars as pl


def note(name, frame):
    print(name, frame.height, (frame.hash_rows(seed=1) % (1 << 40)).sum(), flush=True)


def main():
    rows = int(sys.argv[1]) // 80
    rng = np.random.default_rng(12)
    trips = pl.DataFrame({"car": rng.integers(0, rows // 20 + 1, rows), "road": rng.integers(0, 3000, rows),
                          "metres": rng.integers(1, 1 << 20, rows)})
    cars = trips.group_by("car").agg(pl.col("metres").sum().alias("all"), pl.len().alias("trips"),
                                     pl.col("metres").max().alias("longest"))
    note("grouped", cars.sort("car"))
    joined = trips.join(cars, on="car", how="inner")
    note("joined", joined.sort(["car", "road", "metres"]))
    del joined
    ranked = trips.with_columns(pl.col("metres").rank("min").over("road").alias("rank"))
    note("ranked", ranked.sort(["road", "rank", "car"]))
    names = trips.select(("road " + pl.col("road").cast(pl.String)).alias("name"), "metres")
    note("names", names.group_by("name").agg(pl.col("metres").sum()).sort("name"))


main()
