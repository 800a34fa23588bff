"""Fixtures of the tests of the Python package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import deepram


@pytest.fixture
def folder(tmp_path):
    """A folder on a disk, for pools."""
    return tmp_path


@pytest.fixture
def path(folder):
    return folder / "data.pool"


@pytest.fixture
def pool(path):
    """A pool of 64 MiB in 32 MiB of DRAM."""
    with deepram.Pool(path, size="64MiB", dram="32MiB") as pool:
        yield pool
        if not pool.closed:
            assert pool.take_errors() == []


def in_child(source: str, *arguments: object, kill: bool = False) -> str:
    """Runs Python source in a child process, and returns what it printed. With ``kill``, it must end by SIGKILL."""
    environment = dict(os.environ, PYTHONPATH=str(Path(deepram.__file__).parent.parent), PYTHONFAULTHANDLER="1")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == (-9 if kill else 0), f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
