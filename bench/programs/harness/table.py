"""The results as text and Markdown."""

import json
import os
import platform
import re
import statistics
import sys
from pathlib import Path

MIB = 1 << 20
#: Marks around the table in a page.
BEGIN, END = "<!-- run.py --table: begin -->", "<!-- run.py --table: end -->"


def memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor():
    """The processor's name."""
    found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1) if found else platform.machine()


def _row(row):
    if "skipped" in row:
        return f"{row['program']:12} {row['run_mode']:8} skipped: {row['skipped']}"
    if "failed" in row:
        return f"{row['program']:12} {row['run_mode']:8} FAILED: {row['failed']}"
    peak = f"{row['peak'] / MIB:7.0f} MiB" if row["peak"] else "?"
    text = f"{row['program']:12} {row['run_mode']:8} {row['seconds']:8.2f} s  {peak:>11}"
    if row["waits"]:
        text += f"  ({row['waits']} waits for memory)"
    if row["tests"]:
        text += f"  {len(row['tests'])} tests, {sum(one == 'ok' for one in row['tests'].values())} ok"
    for name, value in row["parts"].items():
        text += f"  {name} {value:.1f} s"
    for phase, value in row["latency"].items():
        text += f"\n{'':21} {phase}: p50 {value['p50_us']} us, p99 {value['p99_us']}, p99.9 {value['p999_us']}"
    return text


def lines(rows, program):
    """Prints the runs of a program."""
    for row in rows:
        if row["program"] == program:
            print(_row(row), flush=True)


def _median(rows, run_mode, value):
    found = [value(row) for row in rows if row["run_mode"] == run_mode and "seconds" in row and "failed" not in row]
    return statistics.median(found) if found else None


def _ratio(a, b):
    return f"{a / b:.2f}" if a is not None and b else "–"


def _number(value, form=".1f"):
    return format(value, form) if value is not None else "–"


def _same(own):
    """Whether the output under deepram equals the output without a limit; for a suite, the number of tests."""
    plain = [row for row in own if row["run_mode"] == "plain"]
    paged = [row for row in own if row["run_mode"] == "deepram"]
    if any("failed" in row for row in plain + paged):
        return "**no**"
    if not paged or any("skipped" in row for row in paged):
        return "–"
    tests = plain[0]["tests"]
    return f"yes, {len(tests)} tests" if tests else "yes"


def _conditions(result):
    """One line with the conditions of the measurement."""
    machine, settings = result["machine"], result["results"]["settings"]
    if settings.get("data", "None") != "None":
        sizes = f"Data of {int(settings['data']) >> 20} MiB"
    else:
        sizes = f"D = {int(settings['dram']) >> 20} MiB, data {settings['scale']} times as much"
    return (f"{sizes}; {settings['rounds']} rounds. "
            f"{result['date']}, commit {result['commit']}, {machine['cores']} cores ({machine['cpu']}), "
            f"{machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}; load at the start {result['load']:.1f}.")


def _equal_memory(results):
    """Seconds and bytes read under `deepram run --memory` and in the other modes, as Markdown, for each limit: medians of all
    rounds of all results, and the ratios of the seconds of runs in the same round, with the least and the greatest."""
    if len({tuple(result["results"]["settings"].get(name) for name in ("data", "dram", "scale")) for result in results}) > 1:
        raise ValueError("several results make one table only if --data, --dram and --scale are the same")
    rows = [{**row, "round": (number, row["round"])} for number, result in enumerate(results)
            for row in result["results"]["rows"] if "round" in row]
    modes = [mode for mode in dict.fromkeys(row["run_mode"] for row in rows) if mode != "plain"]
    peers = [mode for mode in modes if mode != "memory"]
    head = ["program", "limit MiB", *(f"{mode} s" for mode in modes), *(f"memory / {peer}" for peer in peers),
            *(f"{mode} read MiB" for mode in modes)]
    out = [*(f"- {_conditions(result)}" for result in results), "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for group in sorted({row.get("group", 0) for row in rows if row["run_mode"] in modes}):
        out += _of_group([row for row in rows if row.get("group", 0) == group], modes, peers)
    return "\n".join(out + _problems([row for result in results for row in result["results"]["rows"]]))


def _of_group(rows, modes, peers):
    """The lines of the table for one limit."""
    out, medians = [], {peer: [] for peer in peers}
    for program in dict.fromkeys(row["program"] for row in rows):
        own = [row for row in rows if row["program"] == program]
        seconds = [_median(own, mode, lambda row: row["seconds"]) for mode in modes]
        read = [_median(own, mode, lambda row: (row["device_read"] or 0) / MIB) for mode in modes]
        ratios = {peer: _ratios_of_rounds(own, peer) for peer in peers}
        for peer, found in ratios.items():
            if found:
                medians[peer].append(statistics.median(found))
        limit = next((row["limit"] / MIB for row in own if row.get("limit")), None)
        cells = [program, _number(limit, ".0f"), *map(_number, seconds), *map(_spread, ratios.values()),
                 *(_number(mib, ",.0f") for mib in read)]
        out.append(f"| {' | '.join(cells)} |")
    means = [_number(statistics.geometric_mean(found) if found else None, ".2f") for found in medians.values()]
    empty = [""] * len(modes)
    return [*out, f"| {' | '.join(['geometric mean', '', *empty, *means, *empty])} |"]


def _ratios_of_rounds(rows, peer):
    """The seconds under `deepram run --memory` over those of the peer, of each round in which both succeeded."""
    seconds = {(row["run_mode"], row["round"]): row["seconds"] for row in rows if "seconds" in row and "failed" not in row}
    return [value / seconds[peer, number] for (mode, number), value in seconds.items()
            if mode == "memory" and (peer, number) in seconds]


def _spread(ratios):
    """The median, and of several the least and the greatest."""
    if not ratios:
        return "–"
    spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f}{spread}"


def _problems(rows):
    wrong = [f"- {row['program']}, {row['run_mode']}: {' '.join(row[kind].split())}" for row in rows
             for kind in ("failed", "skipped") if kind in row]
    return ["", "Failed or skipped:", "", *dict.fromkeys(wrong)] if wrong else []


def markdown(results):
    """Conditions and medians of all rounds, as Markdown: of one result, or of several with `deepram run --memory`."""
    if all(any(row["run_mode"] == "memory" for row in result["results"]["rows"]) for result in results):
        return _equal_memory(results)
    if len(results) > 1:
        raise ValueError("several results make one table only if each has the mode memory")
    result = results[0]
    rows = result["results"]["rows"]
    names = list(dict.fromkeys(row["program"] for row in rows))
    out = [_conditions(result), "",
           "| program | D MiB | same output | plain s | deepram s | swap s | deepram / swap | deepram MiB | swap MiB | limit MiB |",
           "|---|---|---|---|---|---|---|---|---|---|"]
    for name in names:
        own = [row for row in rows if row["program"] == name]
        seconds = {run_mode: _median(own, run_mode, lambda row: row["seconds"]) for run_mode in ("plain", "deepram", "swap")}
        peaks = {run_mode: _median(own, run_mode, lambda row: (row["peak"] or 0) / MIB) for run_mode in ("deepram", "swap")}
        limit = next((row["limit"] / MIB for row in own if row.get("limit")), None)
        lost = seconds["swap"] is None and any("failed" in row for row in own if row["run_mode"] == "swap")
        cells = [name, _number(next((row["dram"] / MIB for row in own if "dram" in row), None), ".0f"), _same(own),
                 _number(seconds["plain"]), _number(seconds["deepram"]), "failed" if lost else _number(seconds["swap"]),
                 _ratio(seconds["deepram"], seconds["swap"]), _number(peaks["deepram"], ".0f"),
                 _number(peaks["swap"], ".0f"), _number(limit, ".0f")]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out + _problems(rows) + _latencies(result) + ["", f"{result['results']['seconds']:.0f} s in all."])


def _latencies(result):
    rows = result["results"]["rows"]
    phases = [(row["program"], phase) for row in rows for phase in row.get("latency", {}) if row["run_mode"] == "plain"]
    if not phases:
        return []
    out = ["", f"Latencies in µs at {result['results']['settings']['rate']} requests a second, p50 / p99 / p99.9:", "",
           "| program | plain | deepram | swap | p99, deepram / swap |", "|---|---|---|---|---|"]
    for name, phase in dict.fromkeys(phases):
        own = [row for row in rows if row["program"] == name and phase in row.get("latency", {})]
        cells, p99 = [], {}
        for run_mode in ("plain", "deepram", "swap"):
            three = [_median(own, run_mode, lambda row, key=key: row["latency"][phase][key])
                     for key in ("p50_us", "p99_us", "p999_us")]
            p99[run_mode] = three[1]
            cells.append(" / ".join(_number(value, ",.0f") for value in three))
        out.append(f"| {name}, {phase} | {' | '.join(cells)} | {_ratio(p99['deepram'], p99['swap'])} |")
    return out


def from_files(paths, page):
    """Prints result files of --json, or writes them into a page between the marks. Returns the exit status."""
    results = []
    for path in paths:
        try:
            results.append(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            print(f"{path}: not a result that --json wrote: {type(error).__name__}: {error}", file=sys.stderr)
            return 2
    try:
        text = markdown(results)
    except (ValueError, KeyError, TypeError) as error:
        print(f"{', '.join(map(str, paths))}: no table of results that --json wrote: {type(error).__name__}: {error}",
              file=sys.stderr)
        return 2
    if page is None:
        print(text)
        return 0
    old = page.read_text()
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(END) < old.index(BEGIN):
        print(f"{page}: expected one line `{BEGIN}` and after it one line `{END}`", file=sys.stderr)
        return 2
    page.write_text(f"{old[:old.index(BEGIN)]}{BEGIN}\n\n{text}\n\n{old[old.index(END):]}")
    return 0
