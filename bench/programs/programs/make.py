"""`configure` and `make -j2` of memcached: hundreds of short processes, and compilers that exceed the DRAM."""

import shutil

from harness.work import job

NAME, NEEDS, DRAM, ROOM = "make", ["memcached-tests", "make", "gcc"], 1 / 2, 20


def prepare(work):
    folder = work.folder / "memcached"
    shutil.copytree(work.path("memcached-tests"), folder, symlinks=True)
    for path in folder.glob("*"):
        if path.suffix == ".o" or path.name in ("memcached", "memcached-debug", "config.cache", "config.status", "config.h"):
            path.unlink()


def run(work, run_mode):
    folder = run_mode.folder / "memcached"
    shutil.copytree(work.folder / "memcached", folder, symlinks=True)
    options = "-q --disable-dependency-tracking --disable-docs CFLAGS='-O2'"
    headers = f"CPPFLAGS=-I{work.tools.root}/usr/include LDFLAGS=-L{work.tools.root}/usr/lib/$(uname -m)-linux-gnu"
    script = f"./configure {options} {headers} >configured 2>&1 && make -s -j2 memcached >made 2>&1 && cat config.h"
    # The linked program contains all of the object files.
    return job(run_mode, ["/bin/sh", "-c", script], work.settings.patience, [folder / "memcached"], cwd=folder)
