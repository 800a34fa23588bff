"""Gets the programs: those on the PATH, or Debian's packages unpacked into a folder; nothing is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Programs and the packages that hold them.
PACKAGES = {"redis-server": "redis-server", "memcached": "memcached", "sqlite3": "sqlite3", "stress-ng": "stress-ng"}
#: Programs that are not unpacked: where they are wanted they are part of the machine.
NATIVE = {"gcc": "apt-get install gcc", "sort": "coreutils", "java": "apt-get install default-jdk-headless",
          "javac": "apt-get install default-jdk-headless"}
INPUTS = Path(__file__).resolve().parent.parent / "inputs"


def _call(argv, **options):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, **options)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, argv))}: {(done.stderr or done.stdout).strip()[-300:]}")


class Tools:
    """What there is: paths by name, and reasons for what is missing."""

    def __init__(self, folder, say):
        self.folder, self._say = folder, say
        self.paths, self.missing = {}, {}
        root = folder / "root"
        self._searched = [root / "usr/bin", root / "usr/sbin"]
        self._libraries = [root / "usr/lib" / f"{os.uname().machine}-linux-gnu"]

    #: What the environment of unpacked programs must have.
    @property
    def environment(self):
        old = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": ":".join([*map(str, self._libraries), *([old] if old else [])])}

    def setup(self):
        """Finds or fetches all; what cannot be had is in `missing`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, package in PACKAGES.items():
            self._try(name, lambda: self._find(name) or self._unpack(name, package))
        for name, how in NATIVE.items():
            path = shutil.which(name)
            self._note(name, path and Path(path), how)
        self._try("kvload", self._kvload)
        self._try("numpy", self._numpy)

    def _note(self, name, path, reason):
        if path:
            self.paths[name] = path
        else:
            self.missing[name] = f"{name} is not there ({reason})"

    def _try(self, name, get):
        try:
            self._note(name, get(), "not found")
        except OSError as error:
            self.missing[name] = f"{name}: {error}"

    def _find(self, name):
        path = shutil.which(name) or shutil.which(name, path=":".join(map(str, self._searched)))
        return path and Path(path)

    def _unpack(self, name, package):
        """The package and what it needs and the machine lacks, unpacked below the folder."""
        archives = self.folder / "archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        self._say(f"{name}: Debian's package {package}")
        if not shutil.which("apt-get"):
            raise OSError("no apt-get here; put the program on the PATH")
        fetch = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "--download-only",
                 "-o", f"Dir::Cache::archives={archives}", package]
        try:
            _call(fetch)
        except OSError:
            _call(["apt-get", "update", "-q"])
            _call(fetch)
        for archive in archives.glob("*.deb"):
            _call(["dpkg", "-x", archive, self.folder / "root"])
            archive.unlink()
        return self._find(name)

    def _kvload(self):
        source, program = INPUTS / "kvload.c", self.folder / "kvload"
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            self._say("kvload: compiling")
            _call(["gcc", "-O2", "-Wall", "-Wextra", "-o", program, source, "-lm"])
        return program

    def _numpy(self):
        """A Python that has NumPy, in a virtual environment."""
        python = self.folder / "venv/bin/python"
        if not python.exists():
            self._say("numpy: a virtual environment")
            _call([sys.executable, "-m", "venv", self.folder / "venv"])
        if subprocess.run([python, "-c", "import numpy"], capture_output=True).returncode:
            _call([python, "-m", "pip", "install", "-q", "numpy"])
        return python
