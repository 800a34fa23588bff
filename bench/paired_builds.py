#!/usr/bin/env python3
"""Compares two builds of deepram on the memory, pool and persistence workloads of docs/performance.md, by turns, as ratios
within a round. Data larger than DRAM has half the size of that page, so that a round takes ten minutes.

Usage: bench/paired_builds.py BEFORE NOW --dir DIR [--rounds N] [--only TEXT] [--results DIR]
  BEFORE, NOW  the two `deepram` commands; NOW is built from this checkout
  --dir        folder for the files, on the device to be measured
  --rounds     number of rounds; each runs every workload once with each build, and every second round begins with NOW
               (default: 5)
  --only       runs only the workloads whose name contains this text
  --results    also writes a result file into this folder

A ratio above 1 means that NOW is faster, or that a miss takes less processor time in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from result_file import RunContext

Rates = dict[str, float]

MEMORY = "--seconds 2 --warmup 1 --repeats 1 --device-seconds 0.1"
LARGER = f"--size 1GiB --dram 256MiB {MEMORY}"
IN_DRAM = f"--size 256MiB --dram 512MiB --no-latency --peers pager {MEMORY}"


def counted_threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def memory_rates(results: Any) -> Iterator[tuple[str, float]]:
    """Accesses a second, and the inverses of the 99.9th percentile of their times and of a miss's processor time, by peer."""
    for peer in results["peers"]:
        yield peer["peer"], peer["rate"]["median"]
        if peer["p999_us"]:
            yield f"{peer['peer']}, p99.9", 1 / peer["p999_us"]["median"]
        if peer.get("processor_us_per_miss"):
            yield f"{peer['peer']}, processor time", 1 / peer["processor_us_per_miss"]["median"]


def checkpoint_rates(results: Any) -> Iterator[tuple[str, float]]:
    """The inverse of each time of the project's own."""
    for series in results["series"]:
        if series["unit"] == "ms" and series["name"].startswith(("sync", "longest stop", "rollback")):
            yield series["name"], 1 / series["median"]


def open_rates(results: Any) -> Iterator[tuple[str, float]]:
    """The inverse of each time to open a pool."""
    for row in results:
        yield f"{row['log_bytes'] >> 20} MiB in the log", 1 / row["open"]["median"]


def persist_rates(results: Any) -> Iterator[tuple[str, float]]:
    """Persists a second."""
    for row in results["rows"]:
        yield f"{row['method']}, {counted_threads(row['threads'])}", row["per_s"]


# Name, arguments of `deepram bench`, and what reads the rates from its results.
WORKLOADS = [
    *(
        (f"{name}, {counted_threads(threads)}", f"{bench} --threads {threads} --peers {peers} {LARGER}", memory_rates)
        for name, bench, peers in (
            ("uniform reads", "gups --read", "pager,pool"),
            ("uniform updates", "gups", "pager,pool"),
            ("Zipf reads", "zipf", "pager,pool"),
            ("scan", "scan", "pager,pool"),
        )
        for threads in (1, 4)
    ),
    ("gather", f"gather --peers pager,pool-load {LARGER}", memory_rates),
    ("loads by call, uniform", f"gups --read --peers pool-load,pool-load-unpromoted {LARGER}", memory_rates),
    ("loads by call, Zipf", f"zipf --peers pool-load,pool-load-unpromoted {LARGER}", memory_rates),
    ("in DRAM, uniform reads", f"gups --read {IN_DRAM}", memory_rates),
    ("in DRAM, uniform updates", f"gups {IN_DRAM}", memory_rates),
    ("in DRAM, Zipf reads", f"zipf {IN_DRAM}", memory_rates),
    ("in DRAM, scan", f"scan {IN_DRAM}", memory_rates),
    ("sync", "checkpoint --repeats 3", checkpoint_rates),
    ("open", "open --repeats 2 --sizes 1G --log 0,64M", open_rates),
    ("persist", "persist --repeats 1 --methods persist,persist-async,transaction-log", persist_rates),
]


def run(command: str, arguments: str, folder: Path) -> Any:
    words = [command, "bench", *arguments.split(), "--dir", str(folder), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    context = RunContext("paired-builds", options.dir)
    chosen = [workload for workload in WORKLOADS if options.only in workload[0]]
    if not chosen:
        sys.exit(f"no workload has \"{options.only}\" in its name; there are: {', '.join(w[0] for w in WORKLOADS)}")
    ratios: dict[str, list[float]] = {}
    for number in range(options.rounds):
        for name, arguments, rates in chosen:
            builds = {"before": options.before, "now": options.now}
            order = list(builds) if number % 2 == 0 else list(reversed(builds))
            found: dict[str, Rates] = {}
            for build in order:
                with tempfile.TemporaryDirectory(dir=options.dir) as folder:
                    found[build] = dict(rates(run(builds[build], arguments, Path(folder))))
            for what, now in found["now"].items():
                if what in found["before"]:
                    ratio = now / found["before"][what]
                    ratios.setdefault(f"{name}: {what}", []).append(ratio)
                    print(f"round {number + 1} of {options.rounds}: {name}: {what} {ratio:.3f}", file=sys.stderr, flush=True)
    rows = [
        {"name": name, "median": statistics.median(all_of), "min": min(all_of), "max": max(all_of), "samples": len(all_of)}
        for name, all_of in ratios.items()
    ]
    for row in rows:
        print(f"{row['name']:60} {row['median']:6.3f} ({row['min']:.3f} to {row['max']:.3f})")
    if options.results:
        print(context.write(options.results, {"ratios_of_now_to_before": rows}), file=sys.stderr)


if __name__ == "__main__":
    main()
