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
        except Unavailable:
            path.unlink()
            raise

    def close(self):
        if self.path.exists():
            done = subprocess.run(["swapoff", str(self.path)], env={**os.environ, "PATH": PATH}, capture_output=True)
            if done.returncode:
                raise RuntimeError(f"swapoff {self.path}: {done.stderr.decode().strip()}; run it by hand and remove the file")
            self.path.unlink()
