"""Redis' own tests that fork, save, load and use large values, with two servers at once and little DRAM."""

import re
import shutil

from harness.run_modes import Failed
from harness.work import suite

NAME, NEEDS, DRAM, ROOM = "redis-tests", ["redis-tests", "redis-server", "redis-cli", "tclsh"], 1, 20
UNITS = ["unit/dump", "unit/type/string", "unit/type/list", "unit/type/set", "unit/type/zset", "unit/type/hash",
         "unit/expire", "unit/other", "unit/aofrw", "integration/rdb", "integration/aof", "integration/dismiss-mem"]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TIMES = re.compile(r"\(\d+ ms\)$")


def prepare(work):
    pass


def run(work, run_mode):
    source, folder = work.path("redis-tests"), run_mode.folder / "redis"
    for name in ("tests", "src", "utils"):
        shutil.copytree(source / name, folder / name, symlinks=True)
    shutil.copy(source / "redis.conf", folder)
    units = [word for unit in UNITS for word in ("--single", unit)]
    argv = [work.path("tclsh"), "tests/test_helper.tcl", "--clients", 2, "--no-latency",
            "--timeout", int(work.settings.patience - 20), *units]
    status, seconds = run_mode.finish(argv, work.settings.patience, cwd=folder, env=work.tools.environment)
    said = COLOUR.sub("", (run_mode.folder / "out.0").read_text(errors="replace"))
    tests = {}
    # The output repeats failures at the end, with the unit after the name.
    for line in said.split("The following tests failed:")[0].splitlines():
        found = re.match(r"\[(ok|err|exception|ignore|skip|TIMEOUT)\]: (.*)", line)
        if found:
            name = TIMES.sub("", re.sub(r" in tests/\S+\.tcl$", "", found.group(2))).strip()
            while name in tests:
                name += "'"  # Names are not unique: the same test runs for several encodings.
            tests[name] = found.group(1)
    if "The End" not in said and "The following tests failed" not in said:
        raise Failed(f"redis-tests: status {status} before the end: {said[-300:]} {run_mode.errors(0)[-200:]}")
    return suite(tests, seconds)
