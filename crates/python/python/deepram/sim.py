"""Simulated memory systems: what a hierarchy would give, before anyone buys it.

>>> import deepram
>>> result = deepram.sim.run("ssd", "zipf:theta=0.99,span=64MiB,count=2k,read=0.7", depth=4)
>>> result["requests"]
2000
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _native
from ._pool import Size
from ._sweep import Sweep, sweep
from .trace import Requests, source_of

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
    preset: str | None = None,
    config: str | os.PathLike[str] | None = None,
    set: Mapping[str, Any] | Iterable[str] = (),  # noqa: A002
    seed: int | None = None,
    threads: int | None = None,
    depth: int | None = None,
    think: str | None = None,
    closed: bool = False,
    requests: int | str | None = None,
    warm_up: int | str | None = None,
    wrap: bool = False,
    object_slots: int | str | None = None,
    dram: Size | None = None,
    persist: str | Iterable[str] = (),
    precondition: str | None = None,
    filled: float | None = None,
    suspend: bool = False,
    interval: str | None = None,
    processor: str | None = None,
    cores: int | None = None,
    gap: int | None = None,
    clients: int | None = None,
    logging: str | None = None,
    work: str | None = None,
    log_lock: str | None = None,
    prefetch: str | int | None = None,
    memory: str | None = None,
    software: str | None = None,
    drive: str | None = None,
    swap: bool = False,
) -> Result:
    """Simulates a system under a workload or a trace, as ``deepram sim`` does.

    Options have the names, the defaults and the checks of the command, whose help explains each. A note that the command would
    print, about unusual requests, becomes a warning.

    Args:
        system: one of :func:`systems`, such as "nvmm", "flatflash" or "ssd".
        workload: a generated workload, such as "zipf:theta=0.99,span=1GiB,count=1M"; :func:`workloads` lists them.
        trace: a trace file instead, or :class:`Requests` of arrays.
        format: the trace's format; recognised by its content unless given.
        preset: the device, as ``deepram media list`` prints; the system's default unless given.
        config: a TOML file with presets of your own.
        set: other values for figures of the preset: {"nand.read": "30us"}. :func:`settings` lists the keys.
        seed: seed of all random numbers, 1 unless given: equal seeds give equal results.
        threads: threads that issue requests without arrival times; 1 unless given.
        depth: outstanding requests of each thread; 1 unless given.
        think: time between a completion and the thread's next request, such as "5us"; none unless given.
        closed: whether arrival times are ignored.
        requests: most requests, such as 1000 or "2.5M"; all unless given.
        warm_up: requests at the start that the result excludes; none unless given.
        wrap: whether addresses beyond the device wrap around.
        object_slots: places of 4 KiB over which the objects of an object trace are spread.
        dram: DRAM in front of the flash, for systems that have it: bytes or text.
        persist: address ranges that a flush makes durable, such as "0..1GiB".
        precondition: state of a drive before the run: "empty" (unless given), "sequential" or "steady".
        filled: the share of its pages that are then written, 0 to 1; all unless given.
        suspend: whether reads suspend programs and erases.
        interval: length of the intervals of :meth:`Result.intervals`, such as "1ms".
        processor: preset of a processor whose threads use the system as their memory.
        cores: its cores; those of the preset unless given.
        gap: instructions between two references of a generated workload on a processor; 4 unless given.
        clients: clients of a database (the workloads tpcc, tpcb and tatp); requests then count transactions.
        logging: their logs: "central" or "own".
        work: processor time of a client before each access, such as "10us".
        log_lock: time that a record holds the lock of the central log, such as "1us".
        prefetch: prefetch of nvmm on a miss: "none", "streams", or a number of blocks.
        memory: preset of the DRAM of ssd-paging.
        software: preset of the operating system of ssd-paging.
        drive: preset of the SSD of ssd-buffer and pmem.
        swap: whether the pages of ssd-paging are anonymous memory in swap instead of a mapped file.

    Returns:
        the result.

    Raises:
        errors.SimError: an option is invalid, does not fit the system or the others, or the device runs full. Options are
            checked where ``deepram sim`` checks them.
        errors.TraceError: the workload or the trace cannot be read.
        FileNotFoundError: the trace does not exist.
    """
    arrays = source_of(trace) if isinstance(trace, Requests) else None
    given = {
        "workload": workload,
        "trace": trace if arrays is None else None,
        "format": format,
        "preset": preset,
        "seed": seed,
        "threads": threads,
        "depth": depth,
        "think": think,
        "closed": closed or None,
        "requests": requests,
        "warm-up": warm_up,
        "wrap": wrap or None,
        "object-slots": object_slots,
        "dram": dram,
        "persist": ",".join([persist] if isinstance(persist, str) else persist) or None,
        "precondition": precondition,
        "filled": filled,
        "suspend": suspend or None,
        "interval": interval,
        "processor": processor,
        "cores": cores,
        "gap": gap,
        "clients": clients,
        "logging": logging,
        "work": work,
        "log-lock": log_lock,
        "prefetch": prefetch,
        "memory": memory,
        "software": software,
        "drive": drive,
        "swap": swap or None,
    }
    options = [(name, _text(value)) for name, value in given.items() if value is not None]
    overrides = [f"{key}={value}" for key, value in set.items()] if isinstance(set, Mapping) else list(set)
    path = None if config is None else os.fspath(config)
    text, table, notes = _native.simulate(system, options, overrides, path, arrays)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return Result(text, table)


def _text(value: Any) -> str:
    """Returns an option's value as the command line would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


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
