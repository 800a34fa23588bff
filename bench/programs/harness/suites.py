"""Fetches the test suites: Redis' and memcached's from Debian's source packages, CPython's from the installed Python."""

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
#: Commands that Redis' tests expect in `src`; Debian's packages provide them.
REDIS = ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb", "redis-sentinel")


def source(tools, package):
    """Fetches a source package with a separate apt configuration, so that the machine's stays unchanged; returns the folder."""
    from .tools import call

    top = tools.folder / "source" / package
    done = top / "done"
    if not done.exists():
        shutil.rmtree(top, ignore_errors=True)
        (top / "lists/partial").mkdir(parents=True)
        tools.say(f"Debian's source package {package}")
        for needed in ("apt-get", "dpkg-source"):
            if not shutil.which(needed):
                raise OSError(f"{needed} is missing: apt-get install dpkg-dev")
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "sid")
        entries = [f"deb-src [signed-by={KEYS}] http://deb.debian.org/debian {codename} main"]
        if codename != "sid":
            entries.append(f"deb-src [signed-by={KEYS}] http://deb.debian.org/debian-security {codename}-security main")
        (top / "sources.list").write_text("\n".join(entries) + "\n")
        options = ["-q", "-o", f"Dir::Etc::SourceList={top}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
                   "-o", f"Dir::State::Lists={top}/lists", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]
        call(["apt-get", *options, "update"])
        call(["apt-get", *options, "source", package], cwd=top)
        shutil.rmtree(top / "lists")
        done.touch()
    return next(path for path in sorted(top.glob(f"{package}-*")) if path.is_dir())


def redis(tools):
    """Returns the folder of Redis' sources, with Debian's programs where the tests expect them."""
    folder = source(tools, "redis")
    for name in REDIS:
        link = folder / "src" / name
        program = tools.find(name)
        if program and not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(program.absolute())
    return folder


def memcached(tools):
    """Configures and builds memcached's sources, since the tests need its debug build; returns the folder."""
    from .tools import call

    folder = source(tools, "memcached")
    if not (folder / "built").exists():
        root = tools.root if Path("/usr/include/event2/event.h").exists() else tools.unpack("libevent-dev")
        libraries = root / "usr/lib" / f"{os.uname().machine}-linux-gnu"
        tools.say("memcached: building")
        options = [f"CPPFLAGS=-I{root}/usr/include", f"LDFLAGS=-L{libraries} -Wl,-rpath,{libraries}", "CFLAGS=-O2"]
        call(["./configure", "-q", "--disable-dependency-tracking", "--disable-docs", *options], cwd=folder)
        call(["make", "-j2"], cwd=folder)
        (folder / "built").touch()
    return folder


def cpython(tools):
    """Returns a folder for PYTHONPATH from which Python imports `test.test_threading`."""
    if importlib.util.find_spec("test.test_threading"):
        return Path(importlib.util.find_spec("test").origin).parent.parent
    # Debian has the tests in a separate package, and some modules of the package `test` with Python itself.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = tools.folder / "cpython"
    if not (folder / "test/test_threading.py").exists():
        tests = tools.unpack(f"lib{version}-testsuite") / "usr/lib" / version / "test"
        shutil.copytree(tests, folder / "test", dirs_exist_ok=True)
        own = importlib.util.find_spec("test")
        if own:
            shutil.copytree(Path(own.origin).parent, folder / "test", dirs_exist_ok=True)
    return folder


#: Test suites by tool name, and the functions that fetch them.
ALL = {"redis-tests": redis, "memcached-tests": memcached, "cpython-tests": cpython}
