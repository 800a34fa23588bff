"""Sweeps on the cores of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import _native
from .errors import SimError

#: Points that are handed out and not finished, for each worker.
AHEAD = 4


class Sweep:
    """The results of a sweep: a sequence of points in the order of the grid, each a dictionary.

    A point has ``point`` (its number), ``axes`` (the values), ``status`` ("done" or "failed"), and ``result`` or ``error``.
    """

    def __init__(self, folder: Path, points: int, known: int, failed: int, objectives: list[str], front: list[int]):
        #: The folder with ``results.jsonl``, ``results.parquet`` and the journal.
        self.folder = folder
        #: The number of points.
        self.points = points
        #: Points that an earlier sweep of the same folder had computed.
        self.known = known
        #: Points whose simulation failed.
        self.failed = failed
        #: The figures of the Pareto front, those to minimize first.
        self.objectives = objectives
        #: The numbers of the points on the Pareto front.
        self.front = front

    def __len__(self) -> int:
        return self.points

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with open(self.folder / "results.jsonl", encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def frame(self, library: str = "pandas") -> Any:
        """Returns one row for each point: its number, the axes, and the figures of its result with dotted keys.

        Args:
            library: "pandas" or "polars".
        """
        from .sim import Result, _frame

        rows = []
        for point in self:
            result = Result(json.dumps(point["result"]), "").flat() if "result" in point else {"error": point["error"]}
            rows.append({"point": point["point"], **point["axes"], **result})
        return _frame(rows, library)

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}, points={self.points}, failed={self.failed}, front={self.front})"


def sweep(
    spec: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    client: Any = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Simulates every point of a grid, as ``deepram sweep`` does, here or on a Dask cluster.

    Every finished point is durable at once in a journal in ``out``. A sweep that was killed goes on where it stopped. The
    bytes of the results depend only on the specification, its inputs and the version of deepram.

    Args:
        spec: the specification, a TOML file.
        out: folder of the journal and the results; the name of the file with the ending ".results" unless given.
        client: a ``dask.distributed.Client``. The workers need the same version of deepram, and the input files at the same
            paths. The points of a worker that dies are computed by another one.
        jobs: simultaneous simulations without a client; one for each processor unless given.
        progress: called with the number of finished points and of all points, after each point.

    Returns:
        the results.

    Raises:
        errors.SimError: the specification is wrong; another sweep uses the folder; a worker has another version of deepram
            or other input files.
        ValueError: ``jobs`` is less than 1, or given with a client.
    """
    if jobs is not None and (client is not None or jobs < 1):
        raise ValueError(f"jobs: {jobs}; give at least 1, and none with a client, whose workers are the jobs")
    file = Path(spec)
    source = (str(file), file.read_text(encoding="utf-8"), str(file.resolve().parent))
    grid = _grid(*source)
    folder = Path(out) if out is not None else file.with_suffix(".results")
    journal = _native.NativeJournal(str(folder))
    missing: dict[str, int] = {}
    for point in range(len(grid)):
        key = grid.key(point)
        if key not in journal:
            missing.setdefault(key, point)
    known = len(grid) - len(missing)
    done = known
    finished = _finished_here(source, missing, jobs) if client is None else _finished_there(client, source, missing)
    for key, outcome in finished:
        if key not in missing:
            raise SimError(
                "a worker computed a point of another sweep: it has another version of deepram or other input files than this "
                "process"
            )
        journal.append(key, outcome)
        done += 1
        if progress is not None:
            progress(done, len(grid))
    failed, _, objectives, front = journal.write(grid)
    return Sweep(folder, len(grid), known, failed, objectives, front)


@functools.lru_cache(maxsize=4)
def _grid(file: str, text: str, folder: str) -> _native.NativeSweep:
    return _native.NativeSweep(file, text, folder)


def _compute(source: tuple[str, str, str], point: int) -> tuple[str, str]:
    """Computes a point on a worker. Returns its key, by which the caller sees that the worker is of its version."""
    grid = _grid(*source)
    return grid.key(point), grid.outcome(point)


def _finished_here(
    source: tuple[str, str, str], missing: dict[str, int], jobs: int | None
) -> Iterator[tuple[str, str]]:
    jobs = jobs or len(os.sched_getaffinity(0))
    points = iter(missing.values())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_compute, source, point) for point in itertools.islice(points, jobs * AHEAD)}
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            waiting |= {pool.submit(_compute, source, point) for point in itertools.islice(points, len(done))}
            for future in done:
                yield future.result()


def _finished_there(client: Any, source: tuple[str, str, str], missing: dict[str, int]) -> Iterator[tuple[str, str]]:
    from dask.distributed import as_completed

    def submit(point: int) -> Any:
        # A point is computed anew even if the cluster remembers it: the journal is the only memory.
        return client.submit(_compute, source, point, pure=False, retries=10)

    points = iter(missing.values())
    cores = sum(client.ncores().values())
    first = [submit(point) for point in itertools.islice(points, max(cores, 1) * AHEAD)]
    waiting: Any = as_completed(first)  # type: ignore[no-untyped-call]
    for future in waiting:
        yield future.result()
        for point in itertools.islice(points, 1):
            waiting.add(submit(point))
