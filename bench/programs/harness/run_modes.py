"""The modes of running a program: without a limit, under deepram, and in a memory cgroup with swap."""

import json
import os
import signal
import subprocess
import time

from .cgroup import Group, Unavailable
from .swapfile import FIRST, SwapFile, Zram, Zswap

MIB = 1 << 20


class Failed(Exception):
    """A program failed or behaved differently than without deepram; the text gives the reason."""


class Process:
    """A running program."""

    def __init__(self, place, argv, **options):
        self.argv = argv
        self.begun = time.monotonic()
        self.popen = subprocess.Popen(place.command(argv), start_new_session=True, **options)
        self.seconds = None

    def alive(self):
        return self.popen.poll() is None

    def wait(self, limit):
        """Waits for the end and returns the exit status; fails after `limit` seconds."""
        try:
            status = self.popen.wait(limit)
        except subprocess.TimeoutExpired as error:
            self.end()
            raise Failed(f"{self.argv[0]}: no end within {limit:.0f} s") from error
        self.seconds = time.monotonic() - self.begun
        return status

    def end(self):
        """Kills the program and the session that it leads."""
        if self.alive():
            try:
                os.killpg(self.popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.popen.wait()


def _is_statistics(line):
    """Whether a line of standard error is the JSON object of `deepram run --stats json`."""
    return line.startswith("{") and line.endswith("}")


class RunMode:
    """One mode, for one run. Leaving the context ends every process and removes the cgroup."""

    name = "plain"

    def __init__(self, settings, folder, data):
        self.settings, self.folder, self.data = settings, folder, data
        self.group, self.processes = None, []
        #: Limit and peak memory of the group, bytes.
        self.limit = self.peak = None
        #: Number of waits for memory instead of kills; see `Group.never_kill`.
        self.waits = 0
        #: Statistics of `deepram run`.
        self.stats = None

    def __enter__(self):
        try:
            self.open()
        except Unavailable:
            # Without a cgroup the run still verifies the output.
            if isinstance(self, Swap):
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
            raise Failed(f"the kernel killed {kills} processes at the limit of the group; {error or ''}")

    def close(self):
        pass

    def command(self, argv):
        return self.group.entering(argv) if self.group else argv

    def start(self, argv, env=None, **options):
        """Starts a program. Its output goes to files in the run's folder unless `options` redirect it."""
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
        """Runs a program to its end; returns exit status and seconds. The error of a timeout has its last output."""
        number = len(self.processes)
        process = self.start(argv, **options)
        try:
            return process.wait(limit), process.seconds
        except Failed as error:
            said = (self.folder / f"out.{number}").read_text(errors="replace").strip()
            raise Failed(f"{error}; last: {said[-300:]} {self.errors(number)[-300:]}") from error

    def run(self, argv, limit, **options):
        """Runs a program to its end; returns its standard output. Fails if its exit status is not 0."""
        number = len(self.processes)
        status, _ = self.finish(argv, limit, **options)
        if status:
            raise Failed(f"{argv[0]}: status {status}: {self.errors(number)[-400:]}")
        return (self.folder / f"out.{number}").read_bytes()

    def errors(self, number):
        """Standard error of a process without deepram's statistics."""
        lines = (self.folder / f"err.{number}").read_text(errors="replace").splitlines()
        return "\n".join(line for line in lines if not _is_statistics(line)).strip()


class Deepram(RunMode):
    """Under `deepram run`, in a group without swap whose limit is the budget and room for unpaged memory."""

    name = "deepram"

    def open(self):
        self.limit = self.settings.group
        self.group = Group(self.name, self.limit, swap=False)

    def size(self):
        """The options of `deepram run` that give the memory."""
        return ["--dram", self.settings.dram]

    def command(self, argv):
        settings = self.settings
        run = [settings.deepram, "run", *self.size(), "--store", settings.store, "--stats", "json"]
        return super().command([str(word) for word in run] + settings.deepram_options + ["--", *argv])

    def close(self):
        """Reads the statistics of the processes that ended by themselves."""
        self.stats = {}
        for number in range(len(self.processes)):
            for line in (self.folder / f"err.{number}").read_text(errors="replace").splitlines():
                if _is_statistics(line):
                    self.stats = json.loads(line)


class Memory(Deepram):
    """Under `deepram run` with the limit of the group for all memory, less what `deepram run` itself takes."""

    name = "memory"
    OWN = 4 * MIB

    def size(self):
        return ["--memory", self.settings.group - self.OWN]


class Swap(RunMode):
    """In a memory cgroup, with a swap file created for the run."""

    name = "swap"

    def open(self):
        self.limit = self.settings.swap_bytes
        self.group = Group(self.name, self.group_limit(), swap=True)
        try:
            self.group.never_kill()
            self.open_swap()
        except BaseException:
            self.group.close()
            raise

    def group_limit(self):
        return self.limit

    def open_swap(self, priority=FIRST):
        path = self.settings.store / f"deepram-programs-{os.getpid()}.swap"
        self.file = SwapFile(path, 3 * self.data + 512 * MIB, priority)

    def close(self):
        self.file.close()


class CompressedSwap(Swap):
    """As `Swap`, with compressed memory before the swap file. No group is charged for it, so a part of the limit is taken off that of
    the group. The peak is the sum of both."""

    def open_swap(self, priority=FIRST):
        super().open_swap(priority)
        try:
            self.compressed = self.open_compressed()
        except BaseException:
            super().close()
            raise

    def close(self):
        try:
            self.peak = self.peak and self.peak + self.compressed.peak()
            self.compressed.close()
        finally:
            super().close()


class ZramSwap(CompressedSwap):
    """With a compressed disk (zram): a quarter of the limit is taken off, and the disk holds half of the limit, uncompressed."""

    name = "zram"

    def group_limit(self):
        return self.limit - self.limit // 4

    def open_swap(self):
        super().open_swap(FIRST - 1)

    def open_compressed(self):
        return Zram(self.limit // 2)


class ZswapSwap(CompressedSwap):
    """With the kernel's compressed cache of swap (zswap): the most memory that it can take is taken off."""

    name = "zswap"

    def group_limit(self):
        most = Zswap.MOST
        if self.limit < 2 * most:
            raise Unavailable(f"zswap takes up to {most // MIB} MiB here, more than half of the limit of {self.limit // MIB} MiB: "
                              "give a larger --dram")
        return self.limit - most

    def open_compressed(self):
        return Zswap()


RUN_MODES = {run_mode.name: run_mode for run_mode in (RunMode, Deepram, Memory, Swap, ZramSwap, ZswapSwap)}
