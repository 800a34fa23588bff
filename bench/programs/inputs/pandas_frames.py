"""pandas: frames of `data` bytes including intermediate results: group, merge, sort, pivot, strings. Integers only."""

import sys

import numpy as np
import pandas as pd


def note(name, values):
    print(name, len(values), int(pd.util.hash_pandas_object(values, index=False).sum()), flush=True)


def main():
    rows = int(sys.argv[1]) // 96
    rng = np.random.default_rng(11)
    sales = pd.DataFrame({"shop": rng.integers(0, rows // 40 + 1, rows), "item": rng.integers(0, 5000, rows),
                          "count": rng.integers(1, 100, rows)})
    shops = sales.groupby("shop")["count"].agg(["sum", "max", "size"]).reset_index()
    note("grouped", shops)
    merged = sales.merge(shops, on="shop")
    note("merged", merged)
    merged["share"] = merged["count"] * 1000 // merged["sum"]
    note("sorted", merged.sort_values(["share", "shop", "item", "count"], kind="stable"))
    del merged
    sales["group"] = sales["item"] % 16
    note("pivot", sales.pivot_table(index="item", columns="group", values="count", aggfunc="sum", fill_value=0))
    names = "item " + sales["item"].iloc[: rows // 8].astype(str)
    note("names", names.str.upper().value_counts().sort_index().reset_index())


main()
