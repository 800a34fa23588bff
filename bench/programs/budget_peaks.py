#!/usr/bin/env python3
"""Measures how far the anonymous memory of a run exceeds its DRAM budget (ADR 32), or comes close to its limit (ADR 49).

Usage: bench/programs/budget_peaks.py [--deepram PATH] [--python PATH] [--only TEXT] [--rounds N] [--json FILE]
Reads the memory cgroup of each run 2000 times a second. Needs cgroup version 1, as root, and cc; NumPy and sqlite3 for one case
each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from run import commit, version

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from result_file import RunContext

#: Exit status of a run whose program was killed.
KILLED = 128 + 9
ARRAYS = "import sys\nb = [bytearray(1 << 20) for _ in range(24)]\nfor a in b:\n  for i in range(0, 1 << 20, 4096): a[i] = 1"
NUMPY = "import numpy as n; a = n.ones(4 << 20); print((a * 2).sum())"
FORKS = ("import os\nb = bytearray(40 << 20)\ndef store(x):\n  for i in range(0, len(b), 4096): b[i] = x\nstore(1)\n"
         "for k in range(4):\n  if os.fork() == 0:\n    store(2); os._exit(0)\nfor k in range(4): os.wait()")


def together(count, command):
    """A shell script that runs a command several times at once."""
    return " ".join(f"{command} &" for _ in range(count)) + " wait"


def in_turn(count, command):
    """A shell script that runs a command several times, one after the other."""
    return "(" + "; ".join([command] * count) + ")"


def cases(churn, python, sql):
    """Name, MiB, script and option of each case. The option says what the MiB are for: anonymous memory, or all memory."""
    dram = [
        ("six Python programs with 24 MiB each", 64, together(6, f"python3 -c '{ARRAYS}'")),
        ("three programs that fill and free 96 MiB", 128, together(3, f"{churn} 96 3")),
        ("twelve programs, three at a time, that fill and free 96 MiB", 128, together(3, in_turn(4, f"{churn} 96 1"))),
        ("four NumPy programs with 64 MiB each", 96, together(4, f"{python} -c '{NUMPY}'")),
        ("a program of 40 MiB with four forked children that store to all of it", 64, f"python3 -c '{FORKS}'"),
    ]
    memory = ("SQLite with 256 MiB", 72, f"exec sqlite3 -batch :memory: < {sql}", "--memory")
    return [(*case, "--dram") for case in dram] + [memory]


def peak(deepram, mib, script, option):
    """Peak of the run's anonymous memory over its budget or limit; "killed" if the kernel killed it at the limit."""
    argv = [deepram, "run", option, f"{mib}MiB", "--store", "/var/tmp", "--", "sh", "-c", script]
    run = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.split(":")[1] == "memory")
    stat = Path("/sys/fs/cgroup/memory") / own.split(":")[2].lstrip("/") / f"deepram-run-{run.pid}/memory.stat"
    most = 0
    while run.poll() is None:
        try:
            most = max(most, int(stat.read_text().split("total_rss ")[1].split()[0]))
        except (OSError, IndexError):
            pass  # The group does not exist yet, or no longer.
        time.sleep(0.0005)
    if run.returncode == KILLED:
        return "killed"
    if run.returncode != 0 or most == 0:
        sys.exit(f"budget_peaks: the run ended with {run.returncode}, peak {most}: {script[:60]}")
    return round(most / (mib << 20), 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deepram", type=Path, default=ROOT / "target/release/deepram")
    parser.add_argument("--python", default="python3", help="a Python with NumPy")
    parser.add_argument("--only", default="", help="the cases whose name contains this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--commit", default=commit(), help="commit of the build (that of this repository)")
    options = parser.parse_args()
    context, deepram = RunContext("budget-peaks"), options.deepram.resolve()
    with tempfile.TemporaryDirectory() as folder:
        churn = Path(folder) / "churn"
        subprocess.run(["cc", "-O1", "-o", churn, ROOT / "crates/cli/tests/programs/churn.c"], check=True)
        sql = Path(folder) / "script.sql"
        with sql.open("wb") as out:
            subprocess.run([sys.executable, ROOT / "bench/programs/inputs/speedtest.py", str(256 << 20)], stdout=out, check=True)
        results = []
        for name, mib, script, option in (case for case in cases(churn, options.python, sql) if options.only in case[0]):
            peaks = [peak(deepram, mib, script, option) for _ in range(options.rounds)]
            results.append({"processes": name, "budget_mib": mib, "option": option, "peaks_over_budget": peaks})
            print(f"{name}, {option} {mib}MiB: {', '.join(map(str, peaks))}", flush=True)
    if options.json:
        command = f"bench/programs/budget_peaks.py --only '{options.only}' --rounds {options.rounds}"
        file = {**context.file, "commit": options.commit, "command": command, "version": version(deepram), "results": results}
        options.json.write_text(json.dumps(file, indent=1) + "\n")


if __name__ == "__main__":
    main()
