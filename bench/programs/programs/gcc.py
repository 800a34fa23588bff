"""GCC compiles one large C file. GCC takes 30 s to use half a gigabyte, so it gets half of the DRAM."""

import subprocess
import sys

from harness.tools import INPUTS
from harness.work import job

NAME, NEEDS, DRAM, ROOM = "gcc", ["gcc"], 1 / 2, 8
MIB = 1 << 20


def prepare(work):
    """GCC takes 30 MiB, and 0.5 MiB for each function and its table."""
    functions = max(10, (work.data - 30 * MIB) * 2 // MIB)
    with (work.folder / "large.c").open("wb") as out:
        subprocess.run([sys.executable, INPUTS / "source.py", str(functions)], stdout=out, check=True)


def run(work, run_mode):
    result = work.folder / "large.o"
    argv = [work.path("gcc"), "-O2", "-c", "large.c", "-o", result]
    return job(run_mode, argv, work.settings.patience, [result], cwd=work.folder)
