"""A swap file with the highest priority, active until it is closed."""

import os
import subprocess

from .cgroup import Unavailable

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _call(*argv):
    try:
        done = subprocess.run(argv, env={**os.environ, "PATH": PATH}, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise Unavailable(f"no swap file: {argv[0]} is not installed") from error
    if done.returncode:
        raise Unavailable(f"no swap file: {' '.join(argv)}: {done.stderr.strip()}")


class SwapFile:
    """An active swap file; closing it deactivates and removes it."""

    def __init__(self, path, size):
        self.path = path
        path.touch(mode=0o600, exist_ok=False)
        try:
            _call("fallocate", "-l", str(size), str(path))
            _call("mkswap", str(path))
            _call("swapon", "-p", "32767", str(path))
        except BaseException:
            # Also a signal that ends the bench while swapon runs: the file may be active already.
            self._swapoff()
            path.unlink(missing_ok=True)
            raise

    def _swapoff(self):
        return subprocess.run(["swapoff", str(self.path)], env={**os.environ, "PATH": PATH}, capture_output=True)

    def close(self):
        if self.path.exists():
            done = self._swapoff()
            if done.returncode:
                raise RuntimeError(f"swapoff {self.path}: {done.stderr.decode().strip()}; run it by hand and remove the file")
            self.path.unlink()
