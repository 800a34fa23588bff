"""What was measured, for people."""

import os
import statistics

MIB = 1 << 20


def memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _row(row):
    if "skipped" in row:
        return f"{row['program']:12} {row['way']:8} skipped: {row['skipped']}"
    if "failed" in row:
        return f"{row['program']:12} {row['way']:8} FAILED: {row['failed']}"
    peak = f"{row['peak'] / MIB:7.0f} MiB" if row["peak"] else "?"
    text = f"{row['program']:12} {row['way']:8} {row['seconds']:8.2f} s  {peak:>11}"
    if row["waits"]:
        text += f"  ({row['waits']} waits for memory)"
    for name, value in row["parts"].items():
        text += f"  {name} {value:.1f} s"
    for phase, value in row["latency"].items():
        text += f"\n{'':21} {phase}: p50 {value['p50_us']} us, p99 {value['p99_us']}, p99.9 {value['p999_us']}"
    return text


def lines(rows, program):
    """A program's runs, as they came."""
    for row in rows:
        if row["program"] == program:
            print(_row(row), flush=True)


def _median(rows, way, value):
    found = [value(row) for row in rows if row["way"] == way and "seconds" in row and "failed" not in row]
    return statistics.median(found) if found else None


def _ratio(a, b):
    return f"{a / b:.2f}" if a is not None and b else "–"


def _number(value, form=".1f"):
    return format(value, form) if value is not None else "–"


def summary(result):
    """Medians of all rounds, as Markdown."""
    rows = result["rows"]
    names = list(dict.fromkeys(row["program"] for row in rows))
    print("\n| program | same output | plain s | deepram s | swap s | deepram / swap | deepram MiB | swap MiB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        own = [row for row in rows if row["program"] == name]
        seconds = {way: _median(own, way, lambda row: row["seconds"]) for way in ("plain", "deepram", "swap")}
        peaks = {way: _median(own, way, lambda row: (row["peak"] or 0) / MIB) for way in ("deepram", "swap")}
        paged = [row for row in own if row["way"] == "deepram"]
        same = "–" if not paged or any("skipped" in row for row in paged) else (
            "**no**" if any("failed" in row for row in paged) else "yes")
        lost = seconds["swap"] is None and any("failed" in row for row in own if row["way"] == "swap")
        print(f"| {name} | {same} | {_number(seconds['plain'])} | {_number(seconds['deepram'])} | "
              f"{_number(seconds['swap']) if not lost else 'failed'} | {_ratio(seconds['deepram'], seconds['swap'])} | "
              f"{_number(peaks['deepram'], '.0f')} | {_number(peaks['swap'], '.0f')} |")
    phases = [(row["program"], phase) for row in rows for phase in row.get("latency", {}) if row["way"] == "plain"]
    if phases:
        print(f"\nLatencies in µs at {result['settings']['rate']} requests a second, p50 / p99 / p99.9:\n")
        print("| program | plain | deepram | swap | p99, deepram / swap |")
        print("|---|---|---|---|---|")
    for name, phase in dict.fromkeys(phases):
        own = [row for row in rows if row["program"] == name and phase in row.get("latency", {})]
        cells, p99 = [], {}
        for way in ("plain", "deepram", "swap"):
            three = [_median(own, way, lambda row, key=key: row["latency"][phase][key])
                     for key in ("p50_us", "p99_us", "p999_us")]
            p99[way] = three[1]
            cells.append(" / ".join(_number(value, ".0f") for value in three))
        print(f"| {name}, {phase} | {' | '.join(cells)} | {_ratio(p99['deepram'], p99['swap'])} |")
    print(f"\n{result['seconds']:.0f} s in all")
