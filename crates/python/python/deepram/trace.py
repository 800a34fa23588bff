"""Traces: what they do to memory, and how large a cache would have to be."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from ._pool import Size, size_in_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Characterization", "Curve", "Requests", "characterize", "formats"]


class Requests:
    """Requests as columns of arrays, in place of a trace file.

    Args:
        offsets: first bytes, integers.
        lengths: bytes of each request, or one number for all.
        writes: whether each is a write, booleans; or one for all.
        times: arrival times in seconds from the start, if there are any.

    Raises:
        ValueError: columns differ in length, or have negative values.
    """

    def __init__(
        self,
        offsets: ArrayLike,
        lengths: ArrayLike = 4096,
        writes: ArrayLike = False,
        times: ArrayLike | None = None,
    ) -> None:
        first = np.asarray(offsets)
        if first.ndim != 1:
            raise ValueError(f"offsets: shape {first.shape}; a column has one dimension")
        self.offsets = _column("offsets", first, len(first))
        self.lengths = _column("lengths", np.asarray(lengths), len(first))
        write = np.broadcast_to(np.asarray(writes, bool), first.shape)
        self.operations: NDArray[np.uint8] = np.ascontiguousarray(write, np.uint8)
        self.times = None
        if times is not None:
            picoseconds = np.round(np.asarray(times, np.float64) * 1e12)
            self.times = _column("times", picoseconds.astype(np.int64), len(first))

    def __len__(self) -> int:
        return len(self.offsets)


def _column(name: str, values: NDArray[Any], length: int) -> NDArray[np.uint64]:
    if values.ndim > 0 and len(values) != length:
        raise ValueError(f"{name}: {len(values)} values for {length} requests")
    if values.dtype.kind not in "iu":
        raise ValueError(f"{name}: dtype {values.dtype} is no integer")
    if values.size > 0 and values.min() < 0:
        raise ValueError(f"{name}: {values.min()} is negative")
    return np.ascontiguousarray(np.broadcast_to(values, (length,)), np.uint64)


def source_of(source: Any, format: str | None = None, unit: int | None = None) -> Any:  # noqa: A002
    """Returns a source as the native module takes it."""
    if isinstance(source, Requests):
        times = None if source.times is None else source.times.tobytes()
        return (source.offsets.tobytes(), source.lengths.tobytes(), source.operations.tobytes(), times)
    if isinstance(source, os.PathLike) or format is not None or (isinstance(source, str) and os.path.exists(source)):
        return (os.fspath(source), format, unit)
    if isinstance(source, str):
        if os.sep in source and ":" not in source:
            raise FileNotFoundError(f"{source}: there is no such trace")
        return source
    raise TypeError(f"{type(source).__name__} is neither a trace file, nor a workload, nor Requests")


class Curve:
    """Hit ratios over the size of a cache, as arrays of equal length."""

    def __init__(self, sizes: NDArray[Any], hit_ratios: NDArray[np.float64], name: str, accesses: int | None) -> None:
        #: Sizes of the cache, bytes, ascending.
        self.bytes = sizes
        #: Share of the accesses that hit, 0 to 1.
        self.hit_ratio = hit_ratios
        #: Replacement policy.
        self.policy = name
        #: Accesses counted, if known.
        self.accesses = accesses

    @property
    def miss_ratio(self) -> NDArray[np.float64]:
        """Share of the accesses that miss, 0 to 1."""
        return 1.0 - self.hit_ratio

    def size_for(self, hit_ratio: float) -> int | None:
        """Returns the smallest size in bytes with at least this hit ratio; ``None`` if no size reaches it."""
        reached = np.flatnonzero(self.hit_ratio >= hit_ratio)
        return int(self.bytes[reached[0]]) if reached.size else None

    def __len__(self) -> int:
        return len(self.bytes)

    def __repr__(self) -> str:
        return f"<deepram.trace.Curve {self.policy}: {len(self)} sizes>"


class Characterization(Mapping[str, Any]):
    """What a trace does: a mapping, as ``deepram trace characterize --json`` prints it, and its curves."""

    def __init__(self, text: str, distances: tuple[bytes, int, int] | None) -> None:
        self._values: dict[str, Any] = json.loads(text)
        self._distances = distances

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def page_bytes(self) -> int:
        """Size of a page, bytes."""
        return int(self._values["page_bytes"])

    def miss_ratio_curve(self, operations: str = "all") -> Curve:
        """Returns the curve of an LRU cache: one point for each size at which the hit ratio changes.

        Args:
            operations: "all", "read" or "write": the accesses that count. All of them move pages in the cache.

        Returns:
            the curve; exact, or, of a sampled characterisation, its estimate at powers of two.
        """
        columns = {"all": (0, 1), "read": (0,), "write": (1,)}
        if operations not in columns:
            raise ValueError(f"operations: {operations!r} is unknown; give 'all', 'read' or 'write'")
        if self._distances is None:
            rows = [row for row in self._values["lru"] if row[operations] is not None]
            sizes = np.array([row["capacity_bytes"] for row in rows], np.uint64)
            return Curve(sizes, np.array([row[operations] for row in rows], np.float64), "lru", None)
        counts = np.frombuffer(self._distances[0], np.uint64).reshape(-1, 2)
        first = self._distances[1:]
        hits = counts[:, columns[operations]].sum(axis=1)
        accesses = int(hits.sum()) + sum(first[column] for column in columns[operations])
        pages = np.flatnonzero(hits) + 1
        ratios = np.cumsum(hits)[pages - 1] / max(accesses, 1)
        return Curve(pages.astype(np.uint64) * np.uint64(self.page_bytes), ratios, "lru", accesses)

    def policy_curves(self, operations: str = "all") -> dict[str, Curve]:
        """Returns the curves of the simulated policies, by name, at the cache sizes that were asked for."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self._values["policies"]:
            rows.setdefault(row["policy"], []).append(row)

        def curve(policy: str) -> Curve:
            sizes = np.array([row["capacity_bytes"] for row in rows[policy]], np.uint64)
            ratios = [np.nan if row[operations] is None else row[operations] for row in rows[policy]]
            return Curve(sizes, np.array(ratios, np.float64), policy, None)

        return {policy: curve(policy) for policy in rows}

    def __repr__(self) -> str:
        total = self._values["all"]
        return f"<deepram.trace.Characterization: {total['requests']} requests, {total['unique_pages']} pages>"


def characterize(
    source: str | os.PathLike[str] | Requests,
    *,
    format: str | None = None,  # noqa: A002
    unit: Size | None = None,
    page: Size = "8KiB",
    window: int = 1000,
    policies: Iterable[str] = (),
    cache_sizes: Iterable[Size] = ("1MiB", "4MiB", "16MiB", "64MiB", "256MiB", "1GiB"),
    sample: float | None = None,
    sample_pages: int | None = None,
    limit: int = 0,
    seed: int = 1,
) -> Characterization:
    """Characterises a trace: mix, footprint, spatial classes, working sets, and hit ratios over cache sizes.

    Args:
        source: a trace file (plain, gzip or zstd), a generated workload such as "zipf:span=1GiB,count=1M", or
            :class:`Requests` of arrays.
        format: the trace's format; recognised by its content unless given. :func:`formats` lists them.
        unit: size of the address unit of a format that counts in sectors or blocks.
        page: size of a page.
        window: the shortest window of the working sets, in requests.
        policies: replacement policies to simulate, such as ["lru", "arc", "s3fifo"].
        cache_sizes: sizes of the simulated caches.
        sample: estimate from this share of the pages, 0 to 1.
        sample_pages: estimate from at most this many pages.
        limit: most records; 0 for all.
        seed: seed of a generated workload.

    Raises:
        errors.TraceError: the trace or the workload cannot be read.
        ValueError: an option is invalid.
        FileNotFoundError: the trace does not exist.
    """
    unit_bytes = None if unit is None else size_in_bytes("unit", unit)
    text, distances = _native.characterize(
        source_of(source, format, unit_bytes),
        page=size_in_bytes("page", page),
        window=window,
        policies=list(policies),
        cache_sizes=sorted({size_in_bytes("cache_sizes", size) for size in cache_sizes}),
        sample=sample,
        sample_pages=sample_pages,
        limit=limit,
        seed=seed,
    )
    return Characterization(text, distances)


def formats() -> dict[str, str]:
    """Returns the trace formats: names, and the form of a record."""
    return dict(_native.trace_formats())
