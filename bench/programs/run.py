#!/usr/bin/env python3
"""Runs unmodified programs whose data exceeds their DRAM: under deepram, in a cgroup with swap, and without a limit.

See README.md. Exit status: 0 success; 1 a program failed or its output differed; 2 no program could run.
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import table
from harness.cgroup import Unavailable
from harness.tools import Tools
from harness.run_modes import RUN_MODES, Deepram, Failed, RunMode
from harness.work import Work, difference
from programs import ALL

HERE = Path(__file__).resolve().parent
#: Smallest budget of `deepram run`.
LEAST = 16 << 20
#: Modes with a limit.
LIMITED = [name for name in RUN_MODES if name != RunMode.name]
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(text):
    found = re.fullmatch(r"(\d+)\s*([kmg]?)(?:i?b)?", text.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: expected a size such as 128MiB")
    return int(found.group(1)) * UNITS[found.group(2)]


def modes(text):
    names = text.split(",")
    unknown = [name for name in names if name not in LIMITED]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: no such mode; there are {', '.join(LIMITED)}")
    return names


def device_bytes(folder):
    """Bytes read from the device of a folder since the machine started; None where the kernel does not report them."""
    device = os.stat(folder).st_dev
    file = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(file.read_text().split()[2]) * 512 if file.exists() else None


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [program.NAME for program in ALL]
    parser.add_argument("--only", action="append", choices=names, help="run only this program; may be given again")
    parser.add_argument("--dram", type=size, default=64 << 20, help="DRAM for a program (64MiB)")
    parser.add_argument("--scale", type=float, default=4, help="data of a program over DRAM (4)")
    parser.add_argument("--limits", type=lambda text: [size(word) for word in text.split(",")], metavar="SIZES",
                        help="limits of the groups, such as 480MiB,560MiB, the same for every program; needs --data, and replaces "
                             "--dram, --beside and --swap-limit")
    parser.add_argument("--data", type=size, help="data of every program with --limits")
    parser.add_argument("--rounds", type=int, default=1, help="runs under a limit (1)")
    parser.add_argument("--cold", action="store_true",
                        help="drop the page cache before each run, so that it reads code and input from the device")
    parser.add_argument("--rate", type=float, default=2000, help="requests per second to the servers (2000)")
    parser.add_argument("--seconds", type=float, default=8, help="length of a mix of requests (8)")
    parser.add_argument("--beside", type=size,
                        help="room in both groups for unpaged memory: code, page cache, page tables (DRAM / 16 and "
                             "8MiB, 20MiB or 100MiB, by program)")
    parser.add_argument("--swap-limit", choices=["peak", "group", "dram"], default="peak",
                        help="limit of the group with swap: the peak of deepram's group, the limit of deepram's group, or "
                             "--dram alone (peak)")
    parser.add_argument("--deepram", type=Path, default=HERE.parent.parent / "target/release/deepram")
    parser.add_argument("--deepram-option", dest="deepram_options", action="append", default=[],
                        help="a further option of `deepram run`, such as --deepram-option=--policy=lru")
    parser.add_argument("--store", type=Path, default=Path("/var/tmp"), help="folder for swap files and inputs")
    parser.add_argument("--patience", type=float, default=400, help="time limit of a program, seconds (400)")
    parser.add_argument("--modes", type=modes, default="deepram,swap",
                        help=f"modes beside a run without a limit, of {', '.join(LIMITED)} (deepram,swap). memory, swap, zram and "
                             "zswap have equal memory with --swap-limit group")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    cache = os.environ.get("XDG_CACHE_HOME")
    parser.add_argument("--tools", type=Path, default=Path(cache) / "deepram-programs" if cache else HERE / ".cache",
                        help="folder for fetched programs")
    parser.add_argument("--table", type=Path, nargs="+", metavar="RESULT",
                        help="only print earlier --json files as one table in Markdown; several must be of --modes memory")
    parser.add_argument("--into", type=Path, metavar="PAGE",
                        help="with --table: write the table into this page, between its marks")
    parser.add_argument("--setup", action="store_true", help="only fetch the programs and list the missing ones")
    settings = parser.parse_args()
    if settings.into and not settings.table:
        parser.error("--into needs --table RESULT")
    if (settings.limits is None) != (settings.data is None):
        parser.error("--limits and --data need each other")
    if settings.limits and Deepram.name in settings.modes:
        parser.error(f"--limits sets no --dram for mode {Deepram.name}: give --modes, such as memory,swap,zswap")
    return settings


def commit():
    """The checked-out commit, with "-dirty" if files differ from it; None outside a repository."""
    done = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return done.stdout.strip() or None


def version(deepram):
    """The version of deepram."""
    return subprocess.run([deepram, "--version"], capture_output=True, text=True).stdout.split()[-1]


def say(text, end=False):
    """Shows progress in one line of the terminal; prints nothing where standard error is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}" if not end else "\r\x1b[K", end="", file=sys.stderr, flush=True)


def once(program, work, kind):
    """One run of a program in one mode, as a row."""
    folder = work.folder / kind.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    run_mode = kind(work.settings, folder, work.data)
    row = {"program": program.NAME, "run_mode": kind.name, "dram": work.settings.dram, "group": work.settings.group,
           "load_average": os.getloadavg()[0]}
    if work.settings.cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    before = device_bytes(work.settings.store)
    try:
        with run_mode:
            outcome = program.run(work, run_mode)
        after = device_bytes(work.settings.store)
        row["device_read"] = after - before if before is not None else None
        row.update(vars(outcome), peak=run_mode.peak, stats=run_mode.stats, limit=run_mode.limit, waits=run_mode.waits)
        if hasattr(program, "check"):
            with RunMode(work.settings, folder, work.data) as other:
                program.check(work, other)
    except Unavailable as error:
        row["skipped"] = str(error)
    except (Failed, OSError, subprocess.SubprocessError, ValueError) as error:
        row["failed"] = str(error)
    shutil.rmtree(folder, ignore_errors=True)
    return row


def limits(program, settings):
    """The limits of a program's runs, and the size of its data, bytes."""
    if settings.limits:
        return [{"dram": None, "group": limit, "swap_bytes": limit} for limit in settings.limits], settings.data
    dram = max(int(settings.dram * program.DRAM), LEAST)
    group = dram + (dram // 16 + (program.ROOM << 20) if settings.beside is None else settings.beside)
    swap = dram if settings.swap_limit == "dram" else group
    return [{"dram": dram, "group": group, "swap_bytes": swap}], int(dram * settings.scale)


def every_mode(program, settings, tools, folder):
    """All runs of a program, as rows."""
    sizes, data = limits(program, settings)
    cases = [argparse.Namespace(**{**vars(settings), **case}) for case in sizes]
    work = Work(cases[0], tools, folder, data)
    try:
        program.prepare(work)
    except (Failed, OSError, subprocess.SubprocessError) as error:
        return [{"program": program.NAME, "run_mode": "plain", "failed": f"its input: {error}"}]
    rows = []

    def add(kind, number):
        case = f", {work.settings.group >> 20} MiB" if settings.limits else ""
        say(f"{program.NAME}: {kind.name}{case}{f', round {number + 1}' if settings.rounds > 1 else ''}")
        row = {**once(program, work, kind), "round": number}
        if rows and "output" in row and "output" in rows[0] and row["output"] != rows[0]["output"]:
            row["failed"] = difference(row["tests"], rows[0]["tests"]) if row["tests"] else (
                f"other output: {row['output']}, not {rows[0]['output']}")
        rows.append(row)
        return row

    add(RunMode, 0)
    for number in range(settings.rounds):
        for case in cases:
            work.settings = case
            for name in settings.modes:
                peak = add(RUN_MODES[name], number).get("peak")
                if settings.swap_limit == "peak" and name == Deepram.name and peak:
                    case.swap_bytes = min(peak, case.group)
    return rows


def main():
    settings = arguments()
    if settings.table:
        return table.from_files(settings.table, settings.into)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    tools = Tools(settings.tools, say)
    tools.setup()
    say("", end=True)
    if settings.setup:
        for name, path in sorted(tools.paths.items()):
            print(f"{name:14} {path}")
        for _, reason in sorted(tools.missing.items()):
            print(f"missing: {reason}")
        return 0
    # The path must be absolute, since each program runs in a folder of its own.
    settings.deepram = settings.deepram.resolve()
    if not settings.deepram.exists():
        print(f"{settings.deepram}: no such file; run cargo build --release -p deepram -p deepram-preload", file=sys.stderr)
        return 2
    rows, begun, load, checked_out = [], time.monotonic(), os.getloadavg()[0], commit()
    machine = {"cpu": table.processor(), "cores": os.cpu_count(), "memory_bytes": table.memory(),
               "kernel": platform.release(), "filesystem": None, "device": None}
    # The file has the same format as one of `deepram bench --results`.
    result = {"bench": "programs", "machine": machine, "commit": checked_out, "command": " ".join(["run.py", *sys.argv[1:]]),
              "load": load, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "version": version(settings.deepram),
              "results": {"versions": tools.versions(),
                          "settings": {name: str(value) for name, value in vars(settings).items()}, "rows": rows}}
    for program in ALL:
        if settings.only and program.NAME not in settings.only:
            continue
        lacking = [tools.missing[name] for name in program.NEEDS if name in tools.missing]
        if lacking:
            rows.append({"program": program.NAME, "run_mode": "all", "skipped": "; ".join(lacking)})
        else:
            with tempfile.TemporaryDirectory(prefix="deepram-programs-", dir=settings.store) as folder:
                rows += every_mode(program, settings, tools, Path(folder))
        say("", end=True)
        table.lines(rows, program.NAME)
        result["results"]["seconds"] = round(time.monotonic() - begun, 1)
        # Written after each program: an interrupted run keeps the programs that have ended.
        if settings.json:
            settings.json.write_text(json.dumps(result, indent=1) + "\n")
    print(table.markdown([result]))
    # A failure under swap is a result, not an error.
    return 1 if any("failed" in row and row["run_mode"] not in ("swap", "zram", "zswap") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
