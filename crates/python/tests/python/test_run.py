"""Functions and cells in a child process with paged memory. They need the deepram command in DEEPRAM or on the PATH."""

from __future__ import annotations

import os
import shutil
import threading

import numpy as np
import pytest

import deepram
from deepram import errors

needs_command = pytest.mark.skipif(
    not (os.environ.get("DEEPRAM") or shutil.which("deepram")), reason="the deepram command is not there"
)


def large(bytes_: int, value: int) -> int:
    array = np.full(bytes_, value, np.uint8)
    return int(array[::4096].sum())


def failing() -> None:
    raise KeyError("wrong")


def killed() -> None:
    os.kill(os.getpid(), 9)


def unpicklable() -> object:
    return threading.Lock()


@needs_command
def test_a_function_runs_in_less_dram_than_it_needs():
    run = deepram.run(large, 128 << 20, value=3, dram="32MiB")
    assert run.value == 3 * (128 << 8)
    assert run.stats["dram_peak_bytes"] <= 40 << 20 and run.stats["bytes_written"] > 60 << 20
    assert "int" in repr(run)


@needs_command
def test_an_exception_of_the_function_is_raised_here():
    with pytest.raises(KeyError, match="wrong") as raised:
        deepram.run(failing, dram="64MiB")
    assert "in failing" in str(raised.value.__cause__)


@needs_command
@pytest.mark.parametrize(
    ("function", "part"), [(killed, "without a result"), (unpicklable, "cannot be sent back")]
)
def test_a_child_without_a_result_is_an_error(function, part):
    with pytest.raises(errors.RunError, match=part):
        deepram.run(function, dram="64MiB")


def test_a_missing_command_is_named(monkeypatch):
    monkeypatch.delenv("DEEPRAM", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(errors.RunError, match="make install"):
        deepram.run(large, 1, 1)


def test_wrong_options_of_run_are_refused():
    with pytest.raises(ValueError, match="dram"):
        deepram.run(large, 1, 1, dram="lots")


@needs_command
def test_the_cell_magic_brings_names_back_and_shows_statistics(capsys):
    IPython = pytest.importorskip("IPython")
    shell = IPython.core.interactiveshell.InteractiveShell.instance()
    shell.run_line_magic("load_ext", "deepram")
    shell.user_ns.update(np=np, n=64 << 20)
    shell.run_cell_magic("deepram", "--dram 32MiB --out total", "a = np.ones(n, 'u1')\nprint('hello')\ntotal = int(a.sum())\ntotal")
    printed = capsys.readouterr().out
    assert shell.user_ns["total"] == 64 << 20
    assert "hello" in printed and str(64 << 20) in printed and "swap file" in printed
    with pytest.raises(ValueError, match="usage"):
        shell.run_cell_magic("deepram", "--bogus", "1")
