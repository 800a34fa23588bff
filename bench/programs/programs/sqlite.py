"""SQLite's command line with a database in memory and a script like SQLite's speedtest1."""

import subprocess
import sys

from harness.tools import INPUTS
from harness.work import job

NAME, NEEDS, DRAM, ROOM = "sqlite", ["sqlite3"], 1, 8


def prepare(work):
    with (work.folder / "script.sql").open("wb") as out:
        subprocess.run([sys.executable, INPUTS / "speedtest.py", str(work.data)], stdout=out, check=True)


def run(work, run_mode):
    with (work.folder / "script.sql").open("rb") as script:
        return job(run_mode, [work.path("sqlite3"), "-batch", ":memory:"], work.settings.patience, stdin=script,
                   env=work.tools.environment)
