"""Arrays larger than DRAM that survive a crash and can be rolled back; simulated memory hierarchies; traces.

>>> import deepram
>>> with deepram.Pool("data.pool", size="64MiB", dram="64MiB") as pool:
...     table = pool.zeros((1000, 256), "float32", name="table")
...     token = pool.sync()  # durable from here on
...     table[7] = 42
...     pool.rollback(token)
...     float(table[7].sum())
0.0

:class:`Pool` keeps arrays in a file, with a bound on DRAM; :func:`gather` and its relatives work on many rows at once;
:func:`run` calls a function with more memory than there is DRAM; :mod:`deepram.sim`, :mod:`deepram.trace` and
:mod:`deepram.plot` simulate memory systems, characterise traces and draw the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors, plot, sim, trace
from ._array import Array
from ._batch import evict, gather, pin, prefetch, scatter, unpin, update
from ._diff import Diff
from ._pool import Pool, Token, View
from ._run import Run, run

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = [
    "Array",
    "Diff",
    "Pool",
    "Run",
    "Token",
    "View",
    "errors",
    "evict",
    "gather",
    "pin",
    "plot",
    "prefetch",
    "run",
    "scatter",
    "sim",
    "trace",
    "unpin",
    "update",
]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Loads the cell magic ``%%deepram``; IPython calls it for ``%load_ext deepram``."""
    from ._magic import load_ipython_extension as load

    load(shell)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("deepram")
        except PackageNotFoundError:
            return "0.0.0"
    raise AttributeError(f"module 'deepram' has no attribute {name!r}")
