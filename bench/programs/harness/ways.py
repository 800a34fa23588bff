"""The ways to run a program: without a limit, under deepram, in a memory cgroup with swap."""

import json
import os
import signal
import subprocess
import time

from .group import Group, Unavailable
from .swapfile import SwapFile

MIB = 1 << 20


class Failed(Exception):
    """A program did not do what it does without deepram; the text says what happened."""


class Process:
    """A program under way."""

    def __init__(self, place, argv, **options):
        self.argv = argv
        self.begun = time.monotonic()
        self.popen = subprocess.Popen(place.command(argv), start_new_session=True, **options)
        self.seconds = None

    def alive(self):
        return self.popen.poll() is None

    def wait(self, limit):
        """Its status; fails if it takes longer than `limit` seconds."""
        try:
            status = self.popen.wait(limit)
        except subprocess.TimeoutExpired as error:
            self.end()
            raise Failed(f"{self.argv[0]}: not done after {limit:.0f} s") from error
        self.seconds = time.monotonic() - self.begun
        return status

    def end(self):
        """Ends it, and the session that it leads."""
        if self.alive():
            try:
                os.killpg(self.popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.popen.wait()


def _counters(line):
    return line.startswith("{") and line.endswith("}")


class Way:
    """One way, for one run; a context that leaves nothing behind."""

    name = "plain"

    def __init__(self, settings, folder, data):
        self.settings, self.folder, self.data = settings, folder, data
        self.group, self.processes = None, []
        #: Bytes: what the group is limited to, and the most that was charged to it.
        self.limit = self.peak = None
        #: Times that a process waited as the kernel found no memory; see `Group.never_kill`.
        self.waits = 0
        #: What paging counted.
        self.stats = None

    def __enter__(self):
        try:
            self.open()
        except Unavailable:
            # Without a group it still tells whether what comes out is right.
            if self.name == "swap":
                raise
            self.limit = None
        return self

    def open(self):
        self.group = Group(self.name, None, swap=False)

    def __exit__(self, kind, error, _):
        for process in self.processes:
            process.end()
        kills = 0
        try:
            if self.group:
                self.peak, kills, self.waits = self.group.peak(), self.group.kills(), self.group.waits
                self.group.close()
        finally:
            self.close()
        if kills and kind in (None, Failed):
            raise Failed(f"the kernel ended {kills} processes for want of memory in the group; {error or ''}")

    def close(self):
        pass

    def command(self, argv):
        return self.group.entering(argv) if self.group else argv

    def start(self, argv, env=None, **options):
        """Starts a program; its output goes to files in the run's folder if not said otherwise."""
        number = len(self.processes)
        environment = {**os.environ, **(env or {})}
        options.setdefault("cwd", self.folder)
        options.setdefault("stdin", subprocess.DEVNULL)
        with (self.folder / f"out.{number}").open("wb") as out, (self.folder / f"err.{number}").open("wb") as err:
            options.setdefault("stdout", out)
            process = Process(self, [str(word) for word in argv], env=environment, stderr=err, **options)
        self.processes.append(process)
        return process

    def finish(self, argv, limit, **options):
        """Runs a program to its end: its status and seconds. What it said last is told if it takes too long."""
        number = len(self.processes)
        process = self.start(argv, **options)
        try:
            return process.wait(limit), process.seconds
        except Failed as error:
            said = (self.folder / f"out.{number}").read_text(errors="replace").strip()
            raise Failed(f"{error}; last: {said[-300:]} {self.errors(number)[-300:]}") from error

    def run(self, argv, limit, **options):
        """Runs a program to its end: its standard output. Fails if its status is not 0."""
        number = len(self.processes)
        status, _ = self.finish(argv, limit, **options)
        if status:
            raise Failed(f"{argv[0]}: status {status}: {self.errors(number)[-400:]}")
        return (self.folder / f"out.{number}").read_bytes()

    def errors(self, number):
        """What a process said on its standard error, without deepram's counters."""
        lines = (self.folder / f"err.{number}").read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not _counters(line)).strip()


class Deepram(Way):
    """Under `deepram run`, in a group without swap that is wider than the budget by what is not paged."""

    name = "deepram"

    def open(self):
        self.limit = self.settings.group
        self.group = Group(self.name, self.limit, swap=False)

    def command(self, argv):
        settings = self.settings
        run = [settings.deepram, "run", "--dram", str(settings.dram), "--store", settings.store, "--stats", "json"]
        return super().command([str(word) for word in run] + settings.deepram_options + ["--", *argv])

    def close(self):
        """The counters of all that ran, of those that ended by themselves."""
        self.stats = {}
        for number in range(len(self.processes)):
            for line in (self.folder / f"err.{number}").read_text(errors="replace").splitlines():
                if _counters(line):
                    self.stats = json.loads(line)


class Swap(Way):
    """In a memory cgroup, with a swap file made for the run."""

    name = "swap"

    def open(self):
        self.limit = self.settings.swap_bytes
        self.group = Group(self.name, self.limit, swap=True)
        try:
            self.group.never_kill()
            path = self.settings.store / f"deepram-programs-{os.getpid()}.swap"
            self.file = SwapFile(path, 3 * self.data + 512 * MIB)
        except Unavailable:
            self.group.close()
            raise

    def close(self):
        self.file.close()


WAYS = {way.name: way for way in (Way, Deepram, Swap)}
