"""Swap for a run, active until it is closed: a file, a compressed disk in memory (zram), or a compressed cache of swap (zswap)."""

import os
import subprocess
from pathlib import Path

from .cgroup import Unavailable

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
#: The highest priority of swap.
FIRST = 32767
ZRAM = Path("/sys/class/zram-control")
ZSWAP = Path("/sys/module/zswap/parameters")


def _call(*argv):
    try:
        done = subprocess.run(argv, env={**os.environ, "PATH": PATH}, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unavailable(f"no swap: {argv[0]} is not installed") from error
    if done.returncode:
        raise Unavailable(f"no swap: {' '.join(argv)}: {done.stderr.strip()}")


def _swapoff(path):
    return subprocess.run(["swapoff", str(path)], env={**os.environ, "PATH": PATH}, capture_output=True)


class SwapFile:
    """An active swap file; closing it deactivates and removes it."""

    def __init__(self, path, size, priority=FIRST):
        self.path = path
        path.touch(mode=0o600, exist_ok=False)
        try:
            _call("fallocate", "-l", str(size), str(path))
            _call("mkswap", str(path))
            _call("swapon", "-p", str(priority), str(path))
        except BaseException:
            # Also a signal that ends the bench while swapon runs: the file may be active already.
            _swapoff(path)
            path.unlink(missing_ok=True)
            raise

    def close(self):
        if self.path.exists():
            done = _swapoff(self.path)
            if done.returncode:
                raise RuntimeError(f"swapoff {self.path}: {done.stderr.decode().strip()}; run it by hand and remove the file")
            self.path.unlink()


class Zram:
    """An active swap disk of `size` bytes, compressed in memory with the kernel's default; closing it removes it."""

    def __init__(self, size):
        try:
            self.number = int((ZRAM / "hot_add").read_text())
        except OSError as error:
            raise Unavailable(f"no zram: {error}") from error
        self.disk, self.path = Path(f"/sys/block/zram{self.number}"), Path(f"/dev/zram{self.number}")
        try:
            (self.disk / "disksize").write_text(str(size))
            _call("mkswap", str(self.path))
            _call("swapon", "-p", str(FIRST), str(self.path))
        except BaseException:
            self.close()
            raise

    def peak(self):
        """Peak memory of the disk, bytes."""
        return int((self.disk / "mm_stat").read_text().split()[4])

    def close(self):
        _swapoff(self.path)
        try:
            (self.disk / "reset").write_text("1")
            (ZRAM / "hot_remove").write_text(str(self.number))
        except OSError as error:
            raise RuntimeError(f"{self.path}: {error}; run swapoff, and write {self.number} to {ZRAM}/hot_remove") from error


class Zswap:
    """The compressed cache of swap in memory, as small as the kernel allows; closing it restores the kernel's settings."""

    SETTINGS = {"compressor": "lzo-rle", "max_pool_percent": "1", "enabled": "Y"}
    #: Largest size of the cache, bytes.
    MOST = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 100

    def __init__(self):
        self.before = {}
        try:
            for name, value in self.SETTINGS.items():
                self.before[name] = (ZSWAP / name).read_text().strip()
                (ZSWAP / name).write_text(value)
        except OSError as error:
            self.close()
            raise Unavailable(f"no zswap: {error}") from error

    def peak(self):
        """The most memory that the cache can take, bytes: the kernel does not record its peak."""
        return self.MOST

    def close(self):
        for name, value in reversed(self.before.items()):
            (ZSWAP / name).write_text(value)
