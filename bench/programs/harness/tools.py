"""Finds the programs on the PATH, or unpacks Debian's packages into a folder; nothing is installed.

Test suites come from Debian's source packages (harness/suites.py), Python's libraries from PyPI.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import suites

#: Programs and the packages that contain them.
PACKAGES = {"redis-server": "redis-server", "redis-cli": "redis-tools", "memcached": "memcached", "sqlite3": "sqlite3",
            "stress-ng": "stress-ng", "fio": "fio", "node": "nodejs", "tclsh": "tcl"}
#: Python's libraries in the virtual environment, and the packages of PyPI that contain them.
LIBRARIES = {"numpy": "numpy", "pandas": "pandas", "polars": "polars", "duckdb": "duckdb", "sklearn": "scikit-learn",
             "xgboost": "xgboost-cpu"}
#: Programs that must be installed on the machine, and how to install each; they are not unpacked.
NATIVE = {"gcc": "apt-get install gcc", "sort": "coreutils", "java": "apt-get install default-jdk-headless",
          "javac": "apt-get install default-jdk-headless", "git": "apt-get install git", "make": "apt-get install make",
          "prove": "apt-get install perl", "setpriv": "apt-get install util-linux"}
INPUTS = Path(__file__).resolve().parent.parent / "inputs"


def call(argv, **options):
    """Runs a command to its end. Raises OSError with the end of its output if its status is not 0."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, **options)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, argv))}: {(done.stderr or done.stdout).strip()[-300:]}")


class Tools:
    """The tools: the paths of those found, and the reasons why others are missing, by name."""

    def __init__(self, folder, say):
        self.folder, self._say = folder, say
        self.paths, self.missing = {}, {}
        self.root = root = folder / "root"
        self._searched = [root / "usr/bin", root / "usr/sbin"]
        common = [root / lib / f"{os.uname().machine}-linux-gnu" for lib in ("usr/lib", "lib")]
        # fio's package refers to the libraries in ceph by absolute paths.
        self._libraries = [*common, common[0] / "ceph"]

    #: Environment variables that unpacked programs need.
    @property
    def environment(self):
        old = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": ":".join([*map(str, self._libraries), *([old] if old else [])])}

    def setup(self):
        """Finds or fetches all tools; those that cannot be fetched are in `missing`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, package in PACKAGES.items():
            self._try(name, lambda: self.find(name) or self._unpack(name, package))
        for name, how in NATIVE.items():
            path = shutil.which(name)
            self._note(name, path and Path(path), how)
        self._try("kvload", self._kvload)
        for module, package in LIBRARIES.items():
            self._try(module, lambda: self._library(module, package))
        self._try("postgres", lambda: self._postgres() or self._unpack_postgres())
        for name, get in suites.ALL.items():
            self._try(name, lambda: get(self))

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

    def say(self, text):
        self._say(text)

    def find(self, name):
        """Returns the program on the PATH or among the unpacked programs; None if it is in neither."""
        path = shutil.which(name) or shutil.which(name, path=":".join(map(str, self._searched)))
        return path and Path(path)

    def _unpack(self, name, package):
        self.unpack(package)
        return self.find(name)

    def unpack(self, package):
        """Unpacks the package, and its dependencies that the machine lacks, below the folder; returns the root."""
        archives = self.folder / "archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        self._say(f"Debian's package {package}")
        if not shutil.which("apt-get"):
            raise OSError("apt-get is missing; put the program on the PATH")
        fetch = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "--download-only",
                 "-o", f"Dir::Cache::archives={archives}", package]
        try:
            call(fetch)
        except OSError:
            call(["apt-get", "update", "-q"])
            call(fetch)
        for archive in archives.glob("*.deb"):
            call(["dpkg", "-x", archive, self.root])
            archive.unlink()
        return self.root

    def _postgres(self):
        """Returns the folder of programs of PostgreSQL's newest version."""
        found = [path.parent for top in (Path("/"), self.root) for path in top.glob("usr/lib/postgresql/*/bin/pgbench")
                 if (path.parent / "postgres").exists()]
        return max(found, key=lambda path: float(path.parent.name), default=None)

    def _unpack_postgres(self):
        self.unpack("postgresql")
        return self._postgres()

    def _kvload(self):
        source, program = INPUTS / "kvload.c", self.folder / "kvload"
        if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
            self._say("kvload: compiling")
            call(["gcc", "-O2", "-Wall", "-Wextra", "-o", program, source, "-lm"])
        return program

    def _library(self, module, package):
        """Returns a Python that can import the module, in a virtual environment."""
        python = self.folder / "venv/bin/python"
        if not python.exists():
            self._say("a virtual environment")
            call([sys.executable, "-m", "venv", self.folder / "venv"])
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
            self._say(f"PyPI's package {package}")
            call([python, "-m", "pip", "install", "-q", package])
        return python

    def versions(self):
        """Returns the versions of the programs by name, each as the line that the program prints."""
        found = {}
        for name in ("redis-server", "memcached", "sqlite3", "stress-ng", "fio", "node", "git", "gcc", "java"):
            if name in self.paths:
                done = subprocess.run([self.paths[name], "--version"], capture_output=True, text=True,
                                      env={**os.environ, **self.environment})
                found[name] = ((done.stdout or done.stderr).splitlines() or ["?"])[0]
        if "postgres" in self.paths:
            found["postgres"] = self.paths["postgres"].parent.name
        found["python"] = sys.version.split()[0]
        python = self.folder / "venv/bin/python"
        if python.exists():
            done = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True)
            wanted = {package for package in LIBRARIES.values()}
            found.update(line.split("==") for line in done.stdout.split() if line.split("==")[0] in wanted)
        return found
