"""GNU sort of a file that fits its buffer, which is larger than DRAM.

GNU sort merges pointers to lines: if the halves of the file exceed the DRAM, it reads every line at random. Short lines
would take hours, with swap too.
"""

import os
import random

from harness.work import job

NAME, NEEDS, DRAM, ROOM = "sort", ["sort"], 1, 20


def prepare(work):
    """Makes lines of 600 to 1,400 bytes, much larger than sort's own record of a line."""
    rng, left = random.Random(2), work.data * 15 // 16
    with (work.folder / "lines").open("w") as out:
        while left > 0:
            lines = [f"{rng.getrandbits(64):016x} {'x' * rng.randrange(582, 1383)}\n" for _ in range(1000)]
            left -= sum(map(len, lines))
            out.writelines(lines)
        out.flush()
        os.fsync(out.fileno())


def run(work, run_mode):
    lines, result = work.folder / "lines", work.folder / "sorted"
    with lines.open("rb") as file:
        # In every mode the run begins with the file on the device, not in the page cache.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    argv = [work.path("sort"), "-S", f"{2 * work.data}b", "--parallel=2", "-T", work.folder, "-o", result, lines]
    return job(run_mode, argv, work.settings.patience, [result], env={"LC_ALL": "C"})
