"""git gc of a history whose objects and deltas are larger than DRAM, on two threads."""

import subprocess
import sys

from harness.tools import INPUTS
from harness.work import Outcome, digest

NAME, NEEDS, DRAM, ROOM = "git-gc", ["git"], 1, 20
#: Bytes of an object, versions that git compares each object with, and threads. Each thread has all of these versions and
#: their indexes in memory.
OBJECT, WINDOW, THREADS = 1 << 20, 24, 2
OPTIONS = ["-c", f"pack.window={WINDOW}", "-c", f"pack.threads={THREADS}", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=1g"]


def prepare(work):
    repository = work.folder / "history.git"
    subprocess.run([work.path("git"), "init", "-q", "--bare", "-b", "main", repository], check=True)
    # The index of an object is as large as the object.
    size = max(64 << 10, min(work.data // (2 * WINDOW * THREADS), 8 * OBJECT))
    objects = 3 * WINDOW
    stream = subprocess.Popen([sys.executable, INPUTS / "history.py", str(objects), str(size)], stdout=subprocess.PIPE)
    subprocess.run([work.path("git"), *OPTIONS, "-C", repository, "fast-import", "--quiet", "--depth=0"],
                   stdin=stream.stdout, check=True)
    if stream.wait():
        raise OSError("history.py failed")


def run(work, run_mode):
    git, repository = work.path("git"), run_mode.folder / "history.git"
    subprocess.run(["cp", "-a", work.folder / "history.git", repository], check=True)
    run_mode.run([git, *OPTIONS, "-C", repository, "gc", "--quiet", "--prune=now", "--aggressive"], work.settings.patience)
    seconds = run_mode.processes[-1].seconds
    # The pack is checked without a limit: fsck reads every object, and an object's name is the checksum of its contents.
    subprocess.run([git, "-C", repository, "fsck", "--full", "--strict"], check=True, capture_output=True)
    objects = subprocess.run([git, "-C", repository, "cat-file", "--batch-all-objects", "--batch-check"], check=True,
                             capture_output=True).stdout
    packs = len(list((repository / "objects/pack").glob("*.pack")))
    return Outcome(f"{packs} pack, {digest(objects)}", seconds)
