"""A memory cgroup (version 1 or 2); closing it kills its processes and removes it."""

import os
import re
import signal
import threading
import time
from pathlib import Path

REMOVE_TIMEOUT = 10.0  # seconds for the last process of a group to end


class Unavailable(Exception):
    """This machine lacks a feature; the text names it."""


def _mounted(kind, option=None):
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, source = line.split(" - ")
        fs, _, options = source.split(" ")[:3]
        if fs == kind and (option is None or option in options.split(",")):
            return Path(mount.split(" ")[4])
    return None


def _own(controller):
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def _parent():
    """The parent of new groups, and the names of their files: limit, peak, out-of-memory kills."""
    root = _mounted("cgroup", "memory")
    if root:
        below = root / _own("memory")
        names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control")
        return (below if below.is_dir() else root), names
    root = _mounted("cgroup2")
    if root is None:
        raise Unavailable("no cgroups are mounted")
    # A group with processes cannot delegate the memory controller: the new group is a sibling of ours, or a child of the root.
    for parent in ((root / _own("")).parent, root):
        control = parent / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            return parent, ("memory.max", "memory.peak", "memory.events")
    raise Unavailable(f"no group under {root} delegates the memory controller")


class Group:
    """A group limited to `limit` bytes (None: no limit); without `swap` its memory is not swapped out."""

    def __init__(self, name, limit, swap):
        parent, (self._limit, self._peak, self._kills) = _parent()
        self.path = parent / f"deepram-programs-{os.getpid()}-{name}"
        #: Number of waits of a process for memory in the group.
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
        """Disables the out-of-memory killer of the group: a process that gets no memory waits. While many pages are being
        written to swap, the kernel would kill too early. Version 1 only; with version 2 processes may be killed."""
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
                    # Raising the limit wakes the waiting processes; then the limit is restored.
                    self._write(self._limit, self._limit_bytes + 65536)
                    self._write(self._limit, self._limit_bytes)
                except OSError:
                    pass  # Usage is above the limit for now: the next round restores it.

    def entering(self, argv):
        """The command that enters the group and executes `argv`."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *argv]

    def peak(self):
        """Peak memory, bytes, page cache included; None where the kernel does not report it."""
        file = self.path / self._peak
        return int(file.read_text()) if file.exists() else None

    def kills(self):
        """Number of processes that the kernel killed at the limit."""
        found = re.search(r"^oom_kill (\d+)", (self.path / self._kills).read_text(), re.MULTILINE)
        return int(found.group(1)) if found else 0

    def close(self):
        """Kills the processes of the group and removes it."""
        self._done.set()
        if self._waker:
            self._waker.join()
        until = time.monotonic() + REMOVE_TIMEOUT
        while self.path.exists():
            # Programs may have made groups below: the innermost are removed first.
            groups = [Path(path) for path, _, _ in os.walk(self.path, topdown=False)]
            try:
                for group in groups:
                    self._end(group)
                    group.rmdir()
            except FileNotFoundError:
                pass  # Another process has removed the group.
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
