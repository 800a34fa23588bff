"""Functions in a child process whose memory is paged to a swap file (``deepram run``)."""

from __future__ import annotations

import json
import multiprocessing.spawn
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import errors
from ._pool import Size, size_in_bytes


class Run:
    """The outcome of a function that ran with paged memory; :func:`run` makes it.

    Attributes:
        value: what the function returned.
        stats: the counters of paging, by name: bytes, counts, and nanoseconds, as their names say.
    """

    def __init__(self, value: Any, stats: dict[str, Any]) -> None:
        self.value = value
        self.stats = stats

    def __repr__(self) -> str:
        return f"<deepram.Run: {type(self.value).__name__}, {len(self.stats)} statistics>"


def command() -> str:
    """Returns the path of the ``deepram`` command: that of the variable DEEPRAM, or the first on the PATH.

    Raises:
        errors.RunError: there is none.
    """
    found = os.environ.get("DEEPRAM") or shutil.which("deepram")
    if not found:
        raise errors.RunError(
            "the deepram command is not on the PATH: install it by `make install PREFIX=$HOME/.local` in deepram's "
            "sources, or set the environment variable DEEPRAM to its path"
        )
    return found


def _pickler() -> Any:
    try:
        import cloudpickle

        return cloudpickle
    except ImportError:
        return pickle


def run(
    function: Callable[..., Any],
    *args: Any,
    dram: Size = "512MiB",
    store: str | os.PathLike[str] | None = None,
    policy: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    **kwargs: Any,
) -> Run:
    """Calls a function in a child process that has more memory than DRAM.

    The child's memory beyond ``dram`` is in a swap file. The function, its arguments and its result are pickled; with
    the package ``cloudpickle`` installed, also functions of a notebook and lambdas can run.

    Args:
        function: what to call.
        args, kwargs: its arguments.
        dram: DRAM of the child, at least 16 MiB, in bytes or as text.
        store: folder of the swap file, on a fast drive; /var/tmp unless given.
        policy: replacement policy.
        timeout: seconds after which the child is killed.
        env: the child's environment; that of this process unless given.

    Returns:
        the value and the statistics of paging.

    Raises:
        Exception: the exception that the function raised, with the child's traceback as its cause.
        errors.RunError: the command is missing, memory cannot be paged here, or the child was killed.
        subprocess.TimeoutExpired: the time is over.
    """
    options = ["--dram", str(size_in_bytes("dram", dram))]
    if store is not None:
        options += ["--store", os.fspath(store)]
    if policy is not None:
        options += ["--policy", policy]
    return call(function, args, kwargs, options, timeout=timeout, env=env)


def call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: list[str],
    *,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    show_output: bool = False,
) -> Run:
    """Calls a function under ``deepram run`` with these options.

    With ``show_output``, what the child prints is printed here, for a notebook.
    """
    with tempfile.TemporaryDirectory(prefix="deepram-run-") as folder:
        task, result = Path(folder, "task"), Path(folder, "result")
        task.write_bytes(_task(function, args, kwargs))
        arguments = [command(), "run", *options, "--stats=json", "--"]
        arguments += [sys.executable, "-m", "deepram._child", str(task), str(result)]
        environment = dict(os.environ if env is None else env)
        # The child must find this package before it can read the task's search path.
        package = str(Path(__file__).parent.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
        done = subprocess.run(
            arguments,
            env=environment,
            stdout=subprocess.PIPE if show_output else None,
            stderr=subprocess.PIPE,
            timeout=timeout,
            check=False,
        )
        if show_output:
            print(done.stdout.decode(errors="replace"), end="")
        text, stats = _split(done.stderr.decode(errors="replace"))
        if text.strip():
            print(text, file=sys.stderr, end="" if text.endswith("\n") else "\n")
        if not result.exists():
            last = text.strip().splitlines()[-1:] or ["it printed nothing"]
            raise errors.RunError(f"the child ended with status {done.returncode} and without a result: {last[0]}")
        succeeded, value, trace = pickle.loads(result.read_bytes())
    if not succeeded:
        raise value from errors.RunError(f"in the child with paged memory:\n{trace}")
    return Run(value, stats)


def _task(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Pickles how to prepare the child, and the call."""
    pickler = _pickler()
    preparation = multiprocessing.spawn.get_preparation_data("deepram")
    unused = ["authkey", "start_method", "log_to_stderr", "name"]
    if pickler is not pickle:
        # Functions of the main module are sent by value.
        unused += ["init_main_from_name", "init_main_from_path"]
    for key in unused:
        preparation.pop(key, None)
    try:
        return pickle.dumps(preparation) + pickler.dumps((function, args, kwargs))  # type: ignore[no-any-return]
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        advice = "; `pip install cloudpickle` lets lambdas and functions of a notebook run" if pickler is pickle else ""
        raise errors.RunError(f"the function or its arguments cannot be sent to the child: {error}{advice}") from error


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """Splits the child's standard error into its own text and the statistics, which come last."""
    start = 0 if text.startswith("{") else text.rfind("\n{\n") + 1
    try:
        stats = json.loads(text[start:])
    except ValueError:
        lines = text.rstrip("\n").splitlines()
        try:
            return "\n".join(lines[:-1]), json.loads(lines[-1])
        except (ValueError, IndexError):
            return text, {}
    return text[:start], stats
