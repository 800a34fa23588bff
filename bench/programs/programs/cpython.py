"""CPython's own tests of threads, processes, mappings, signals and sockets, with little DRAM."""

import sys

from harness.tools import INPUTS
from harness.run_modes import Failed
from harness.work import suite

# A hundred processes are forked at once: each has up to 2.7 MiB that is not paged (Python's data and the pager's own), 0.25 MiB of
# page tables and 0.1 MiB of kernel stacks.
NAME, NEEDS, DRAM, ROOM = "cpython-tests", ["cpython-tests"], 4, 60
MODULES = ["test_mmap", "test_threading", "multiprocessing_fork", "test_subprocess", "test_signal", "test_socket"]


def prepare(work):
    pass


def run(work, run_mode):
    results = run_mode.folder / "results"
    limit = work.settings.patience / 2
    argv = [sys.executable, INPUTS / "cpython_tests.py", results, limit, *MODULES]
    status, seconds = run_mode.finish(argv, limit * len(MODULES), env={"PYTHONPATH": str(work.path("cpython-tests")),
                                                                    "TMPDIR": str(run_mode.folder)})
    tests = {}
    for line in results.read_text().splitlines():
        result, name = line.split(" ", 1)
        tests[name] = "not ended" if result == "begun" else result
    if status:
        raise Failed(f"cpython-tests: status {status}: {run_mode.errors(0)[-400:]}")
    return suite(tests, seconds)
