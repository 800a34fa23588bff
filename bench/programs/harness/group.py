"""A memory cgroup (version 1 or 2), gone with everything in it when it is left."""

import os
import re
import signal
import threading
import time
from pathlib import Path

PATIENCE = 10.0  # seconds for a group's last process to go


class Unavailable(Exception):
    """Something that this machine does not offer; the text says what."""


def _mounted(kind, option=None):
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, what = line.split(" - ")
        fs, _, options = what.split(" ")[:3]
        if fs == kind and (option is None or option in options.split(",")):
            return Path(place.split(" ")[4])
    return None


def _own(controller):
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def _parent():
    """Where groups with a limit can be made, and the names of their files: limit, peak, out-of-memory kills."""
    root = _mounted("cgroup", "memory")
    if root:
        below = root / _own("memory")
        names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
        return (below if below.is_dir() else root), names
    root = _mounted("cgroup2")
    if root is None:
        raise Unavailable("no cgroups are mounted")
    # A group with processes gives its children no memory controller: ours goes beside our own, or to the top.
    for place in ((root / _own("")).parent, root):
        control = place / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            return place, ("memory.max", "memory.peak", "memory.events")
    raise Unavailable(f"no group under {root} gives its children the memory controller")


class Group:
    """A group with at most `limit` bytes (none: no limit); without `swap` nothing in it is swapped out."""

    def __init__(self, name, limit, swap):
        parent, (self._limit, self._peak, self._kills) = _parent()
        self.path = parent / f"deepram-programs-{os.getpid()}-{name}"
        #: Times that somebody waited for the kernel to find memory in the group after all.
        self.waits, self._limit_bytes, self._waker = 0, limit, None
        self._done = threading.Event()
        try:
            self.path.mkdir()
        except OSError as error:
            raise Unavailable(f"no memory cgroup: {error}") from error
        try:
            if limit is not None:
                self._write(self._limit, limit)
            if not swap:
                for file in ("memory.swappiness", "memory.swap.max"):
                    if (self.path / file).exists():
                        self._write(file, 0)
        except OSError as error:
            self.path.rmdir()
            raise Unavailable(f"no limit on memory: {error}") from error

    def _write(self, file, value):
        (self.path / file).write_text(str(value))

    def never_kill(self):
        """Has whoever finds no memory in the group wait, not die: while much is on its way to swap the kernel
        gives up early. Version 1 only; elsewhere processes may be killed."""
        control = self.path / "memory.oom_control"
        if control.exists():
            control.write_text("1")
            self._waker = threading.Thread(target=self._wake, args=(control,), daemon=True)
            self._waker.start()

    def _wake(self, control):
        while not self._done.wait(0.005):
            if "under_oom 1" in control.read_text():
                self.waits += 1
                try:
                    # A limit that grows has those who wait try again; then back to what it was.
                    self._write(self._limit, self._limit_bytes + 65536)
                    self._write(self._limit, self._limit_bytes)
                except OSError:
                    pass  # Too much is in use to shrink just now: the next round does.

    def entering(self, argv):
        """The command that enters the group and becomes `argv`."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *argv]

    def peak(self):
        """Most bytes in use at once, page cache included; None where the kernel does not tell."""
        file = self.path / self._peak
        return int(file.read_text()) if file.exists() else None

    def kills(self):
        """Processes that the kernel ended for want of memory."""
        found = re.search(r"^oom_kill (\d+)", (self.path / self._kills).read_text(), re.MULTILINE)
        return int(found.group(1)) if found else 0

    def close(self):
        """Ends what is still in the group, and removes it."""
        self._done.set()
        if self._waker:
            self._waker.join()
        until = time.monotonic() + PATIENCE
        while self.path.exists():
            # Programs may have made groups below: the innermost come first.
            groups = [Path(path) for path, _, _ in os.walk(self.path, topdown=False)]
            try:
                for group in groups:
                    self._end(group)
                    group.rmdir()
            except FileNotFoundError:
                pass  # A group that removed itself.
            except OSError as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"{self.path}: {error}; remove it with rmdir") from error
                time.sleep(0.02)

    @staticmethod
    def _end(group):
        for pid in (group / "cgroup.procs").read_text().split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
