"""The child process of :func:`deepram.run`: calls the pickled function and pickles what it returned or raised."""

from __future__ import annotations

import multiprocessing.spawn
import os
import pickle
import sys
import traceback
from pathlib import Path


def main(task: str, result: str) -> None:
    from ._run import _pickler

    pickler = _pickler()
    trace = ""
    try:
        with open(task, "rb") as file:
            # The search path is needed before the function can be found.
            multiprocessing.spawn.prepare(pickle.load(file))
            function, args, kwargs = pickle.load(file)
        succeeded, value = True, function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  (whatever it is, the parent raises it)
        succeeded, value, trace = False, error, traceback.format_exc()
    try:
        text = pickler.dumps((succeeded, value, trace))
        pickle.loads(text)
    except Exception as error:  # noqa: BLE001
        from .errors import RunError

        problem = RunError(f"the result cannot be sent back: {type(value).__name__}: {value!r:.200}: {error}")
        text = pickle.dumps((False, problem, trace))
    Path(result + ".new").write_bytes(text)
    os.replace(result + ".new", result)


if __name__ == "__main__":
    main(*sys.argv[1:])
