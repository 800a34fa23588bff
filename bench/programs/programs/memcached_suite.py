"""memcached's own tests, four files at once."""

import re
import shutil

from harness.run_modes import Failed
from harness.work import suite

NAME, NEEDS, DRAM, ROOM = "memcached-tests", ["memcached-tests", "prove"], 2, 20
#: These tests sleep for about a minute or longer.
LEFT_OUT = {"binary-extstore.t", "chunked-extstore.t", "error-extstore.t", "extstore-buckets.t", "extstore-jbod.t"}


def prepare(work):
    pass


def run(work, run_mode):
    folder = run_mode.folder / "memcached"
    shutil.copytree(work.path("memcached-tests"), folder, symlinks=True)
    files = sorted(f"t/{path.name}" for path in (folder / "t").glob("*.t") if path.name not in LEFT_OUT)
    status, seconds = run_mode.finish([work.path("prove"), "-j4", *files], work.settings.patience, cwd=folder)
    said = (run_mode.folder / "out.0").read_text(errors="replace")
    tests = dict(re.findall(r"^(t/\S+\.t) \.+ *(ok|skipped|Failed|Dubious|No subtests run)", said, re.MULTILINE))
    # Below its table, prove lists the failed tests of each file.
    for name, more in re.findall(r"^(t/\S+\.t) .*Wstat.*\n((?:  .*\n)+)", said, re.MULTILINE):
        tests[name] = "; ".join(line.strip() for line in more.splitlines())
    if "Result:" not in said:
        raise Failed(f"memcached-tests: status {status} before the end: {said[-300:]} {run_mode.errors(0)[-200:]}")
    return suite(tests, seconds)
