#!/usr/bin/env python3
"""Writes the tables of the Python benches into docs/explanation/comparison.md, from the newest result files.

Usage: bench/python_tables.py RESULTS PAGE
  RESULTS  folder of result files, docs/results
  PAGE     the page, which has the marks <!-- python: begin --> and <!-- python: end -->
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

BEGIN, END = "<!-- python: begin -->", "<!-- python: end -->"
MIB = 1 << 20


def newest(folder: Path, bench: str) -> dict | None:
    """The newest result file of a bench, with its name."""
    files = [{**json.loads(path.read_text()), "name": path.name} for path in folder.glob(f"{bench}-*.json")]
    return max(files, key=lambda file: file["date"], default=None)


def mib(count: float) -> str:
    return f"{count / MIB:,.1f}" if count < 100 * MIB else f"{count / MIB:,.0f}"


def source(file: dict) -> str:
    machine = file["machine"]
    where = f"{machine['cores']} cores, {machine['memory_bytes'] >> 30} GiB, {machine['filesystem']} on {machine['device']}"
    return f"`{file['command']}` at {file['commit']}, load {file['load']:.1f}, {where}: [{file['name']}](../results/{file['name']})."


def arrays(file: dict) -> list[str]:
    results = file["results"]
    lines = [
        f"A float32 array of {results['size_bytes'] >> 20:,} MiB, each process within {results['limit_bytes'] >> 20:,} MiB of memory, the "
        "page cache included. Seconds; rows are 4 KiB. A process is killed within an update of 1 % that nobody made durable.",
        "",
        "| | fill | sum | gather, rows/s | update 1 %, made durable | MiB written by it | opened after the kill | rows of the killed update "
        "| rows torn or lost | rolled back |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]

    def cell(rounds: list[dict], step: str, key: str = "seconds") -> str:
        found = [peer[step] for peer in rounds if step in peer]
        failed = next((step["failed"] for step in found if "failed" in step), None)
        if failed or not found:
            return failed or "–"
        value = statistics.median(step[key] for step in found)
        return mib(value) if key == "bytes_written" else f"{value:,.0f}" if key != "seconds" else f"{value:.2f}"

    for peer in results["rounds"][0]:
        rounds = [peers[peer] for peers in results["rounds"]]
        cells = [("fill",), ("sum",), ("gather", "rows_per_s"), ("update",), ("update", "bytes_written"), ("reopen",)]
        cells += [("reopen", "rows_of_the_killed_update"), ("reopen", "rows_torn_or_lost"), ("rollback",)]
        lines.append(f"| {peer} | " + " | ".join(cell(rounds, *which) for which in cells) + " |")
    return [*lines, "", source(file)]


def checkpoints(file: dict) -> list[str]:
    results = file["results"]
    lines = [
        f"A PyTorch model with {results['state_bytes'] >> 20:,} MiB of state, of which {results['changed_share']:.0%} changes between "
        f"checkpoints, one every {results['interval_steps']} steps. After a kill each way resumed with the same losses, bit for bit.",
        "",
        "| way | stall, median, s | stall, longest, s | MiB written | first checkpoint, s | training without stalls, s | resumed, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in results["ways"]:
        stall = way["stall_seconds"]
        training = way["training_seconds"] - way["stalled_seconds"]
        lines.append(
            f"| {way['way']} | {stall['median']:.3f} | {stall['max']:.3f} | {mib(way['bytes_written'])} | {way['initial']['seconds']:.2f} "
            f"| {training:.1f} | {way['resume_seconds']:.2f} |"
        )
    return [*lines, "", source(file)]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder, page = Path(sys.argv[1]), Path(sys.argv[2])
    parts = []
    for bench, title, lines in (
        ("python-arrays", "Arrays, measured", arrays),
        ("torch-checkpoint", "Checkpoints of a model, measured", checkpoints),
    ):
        file = newest(folder, bench)
        if file is None:
            print(f"{folder} has no result of {bench}", file=sys.stderr)
            continue
        parts += [f"## {title}", "", *lines(file), ""]
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text("\n".join([before + BEGIN, "", *parts, END + after]))


if __name__ == "__main__":
    main()
