"""Simulated memory systems: what a hierarchy would give, before anyone buys it.

>>> import deepram
>>> result = deepram.sim.run("ssd", "zipf:theta=0.99,span=64MiB,count=2k,read=0.7", depth=4)
>>> result["requests"]
2000
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._pool import Size, size_in_bytes
from ._sweep import Sweep, sweep
from .trace import Columns, Requests, source_of

if TYPE_CHECKING:
    import pandas

__all__ = ["Result", "Requests", "Sweep", "frame", "run", "settings", "sweep", "systems", "workloads"]


class Result(Mapping[str, Any]):
    """The result of a simulation: a mapping, as ``deepram sim --json`` prints it.

    Units are in the keys (``latency.mean_ns``, ``energy.total_nj``). A dotted key goes into inner mappings:
    ``result["latency.p99_ns"]``.
    """

    def __init__(self, text: str, table: str) -> None:
        self._values: dict[str, Any] = json.loads(text)
        #: The result as text, byte for byte the same for the same configuration and seed.
        self.json = text
        #: The result as a table for people.
        self.table = table

    def __getitem__(self, key: str) -> Any:
        value: Any = self._values
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                raise KeyError(f"{key!r} is not in the result; there are: {', '.join(sorted(self.flat()))}")
            value = value[part]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def flat(self) -> dict[str, Any]:
        """Returns all numbers and texts of the result, with dotted keys; lists are left out."""
        found: dict[str, Any] = {}

        def add(prefix: str, value: Any) -> None:
            if isinstance(value, dict):
                for name, inner in value.items():
                    add(f"{prefix}.{name}" if prefix else name, inner)
            elif not isinstance(value, list):
                found[prefix] = value

        add("", self._values)
        return found

    def frame(self, library: str = "pandas") -> Any:
        """Returns the result as a data frame of one row, whose columns are the dotted keys.

        Args:
            library: "pandas" or "polars".
        """
        return frame([self], library)

    def intervals(self, library: str = "pandas") -> Any:
        """Returns the time series of a run with ``interval``, as a data frame with one row for each interval."""
        return _frame(self._values.get("intervals", []), library)

    def __repr__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.table)}</pre>"


def run(
    system: str,
    workload: str | None = None,
    *,
    trace: str | os.PathLike[str] | Requests | None = None,
    format: str | None = None,  # noqa: A002
    preset: str = "",
    config: str | os.PathLike[str] | None = None,
    set: Mapping[str, Any] | Iterable[str] = (),  # noqa: A002
    seed: int = 1,
    threads: int = 1,
    depth: int = 1,
    think: str = "0",
    closed: bool = False,
    requests: int = 0,
    warm_up: int = 0,
    wrap: bool = False,
    dram: Size | None = None,
    precondition: str | None = None,
    filled: float = 1.0,
    interval: str | None = None,
    processor: str | None = None,
    cores: int | None = None,
    gap: int = 4,
) -> Result:
    """Simulates a system under a workload or a trace, as ``deepram sim`` does.

    Args:
        system: one of :func:`systems`, such as "nvmm", "flatflash" or "ssd".
        workload: a generated workload, such as "zipf:theta=0.99,span=1GiB,count=1M"; :func:`workloads` lists them.
        trace: a trace file instead, or :class:`Requests` of arrays.
        format: the trace's format; recognised by its content unless given.
        preset: the device, as ``deepram media list`` prints; the system's default unless given.
        config: a TOML file with presets of your own.
        set: other values for figures of the preset: {"nand.read": "30us"}. :func:`settings` lists the keys.
        seed: seed of all random numbers: equal seeds give equal results.
        threads: threads that issue requests without arrival times.
        depth: outstanding requests of each thread.
        think: time between a completion and the thread's next request, such as "5us".
        closed: whether arrival times are ignored.
        requests: most requests; 0 for all.
        warm_up: requests at the start that the result excludes.
        wrap: whether addresses beyond the device wrap around.
        dram: DRAM in front of the flash, for systems that have it: bytes or text.
        precondition: state of a drive before the run: "empty", "sequential" or "steady".
        filled: the share of its pages that are then written, 0 to 1.
        interval: length of the intervals of :meth:`Result.intervals`, such as "1ms".
        processor: preset of a processor whose threads use the system as their memory.
        cores: its cores.
        gap: instructions between two references of a generated workload on a processor.

    Returns:
        the result.

    Raises:
        errors.SimError: the configuration is invalid, or the device runs full.
        errors.TraceError: the workload or the trace cannot be read.
        ValueError: an option is invalid.
    """
    if (workload is None) == (trace is None):
        raise ValueError("give a workload or a trace, and not both")
    overrides = [f"{key}={value}" for key, value in set.items()] if isinstance(set, Mapping) else list(set)
    keys = [text.split("=")[0].strip() for text in overrides]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"set: {twice} is given twice")
    name = workload if workload is not None else ("arrays" if isinstance(trace, Columns) else os.fspath(trace))  # type: ignore[arg-type]
    options = {
        "preset": preset,
        "config": None if config is None else os.fspath(config),
        "set": overrides,
        "seed": seed,
        "threads": threads,
        "depth": depth,
        "think": think,
        "closed": closed,
        "requests": requests,
        "warm_up": warm_up,
        "wrap": wrap,
        "dram": None if dram is None else size_in_bytes("dram", dram),
        "precondition": precondition,
        "filled": filled,
        "interval": interval,
        "processor": processor,
        "cores": cores,
        "gap": gap,
        "name": name,
    }
    for option in ("threads", "depth"):
        if options[option] < 1:  # type: ignore[operator]
            raise ValueError(f"{option}: {options[option]}; at least 1")
    text, table = _native.simulate(system, source_of(workload if workload is not None else trace, format), options)
    return Result(text, table)


def frame(results: Iterable[Result], library: str = "pandas") -> Any:
    """Returns results as a data frame with one row each, whose columns are the dotted keys.

    Args:
        results: results of :func:`run`.
        library: "pandas" or "polars".
    """
    return _frame([result.flat() for result in results], library)


def _frame(rows: list[dict[str, Any]], library: str) -> Any:
    if library == "pandas":
        import pandas

        return pandas.DataFrame(rows)
    if library == "polars":
        import polars

        return polars.DataFrame(rows, infer_schema_length=None)
    raise ValueError(f"library: {library!r} is unknown; give 'pandas' or 'polars'")


def systems() -> list[str]:
    """Returns the names of the systems."""
    return _native.systems()


def settings(system: str) -> str:
    """Returns the keys of ``set`` for a system, a line each, with units and meanings."""
    return _native.system_settings(system)


def workloads() -> str:
    """Returns the list of generated workloads with their keys."""
    return _native.workload_help()
