"""Result files of the Python benches: in the form of `deepram bench --results`, one new file a run."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "programs"))

from harness.table import memory, processor  # noqa: E402
from run import commit  # noqa: E402


def version() -> str:
    """The version of deepram in this repository."""
    text = (HERE.parent / "Cargo.toml").read_text()
    return re.search(r'^version = "(.*)"', text, re.MULTILINE).group(1)


def mount(folder: Path) -> tuple[str | None, str | None]:
    """Type and source device of the file system that holds a folder."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, source = line.partition(" - ")
        if place.split()[2] == number:
            return tuple(source.split()[:2])
    return None, None


class RunContext:
    """The circumstances of a run, taken at its start. `folder` is on the measured device."""

    def __init__(self, bench: str, folder: Path | None = None) -> None:
        filesystem, device = mount(folder) if folder else (None, None)
        words = [os.path.relpath(sys.argv[0], HERE.parent), *sys.argv[1:]]
        self.file: dict[str, Any] = {
            "bench": bench,
            "machine": {
                "cpu": processor(),
                "cores": os.cpu_count(),
                "memory_bytes": memory(),
                "kernel": platform.release(),
                "filesystem": filesystem,
                "device": device,
            },
            "commit": commit(),
            "command": " ".join(words),
            "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": version(),
        }

    def write(self, folder: Path, results: Any) -> Path:
        """Writes a new file into a folder, which is made if it does not exist."""
        file = {**self.file, "results": results}
        folder.mkdir(parents=True, exist_ok=True)
        date = file["date"].replace(":", "")
        path = folder / f"{file['bench']}-{date}-{file['commit'] or 'v' + file['version']}.json"
        with path.open("x") as out:
            out.write(json.dumps(file, indent=2) + "\n")
        return path
