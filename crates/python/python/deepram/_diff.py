"""What has changed between two states of a pool, per array."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from . import _catalogue

if TYPE_CHECKING:
    from ._memory import State

#: Slices that index an array.
Index = tuple[slice, ...]


class Diff(Mapping[str, list[Index]]):
    """The changed parts of arrays, by name, as index slices; :meth:`Pool.diff` makes it."""

    def __init__(self, changes: dict[str, list[Index]], added: list[str], removed: list[str]) -> None:
        self._changes = changes
        #: Names of arrays that exist only at the later of the two states.
        self.added = added
        #: Names of arrays that exist only at the earlier one, or that were made anew since.
        self.removed = removed

    def __getitem__(self, name: str) -> list[Index]:
        return self._changes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __repr__(self) -> str:
        return f"Diff({self._changes}, added={self.added}, removed={self.removed})"


def changed_slices(state: State, a: int, b: int | None) -> Diff:
    first, second = (a, b) if b is None or a <= b else (b, a)
    before = _catalogue.read(state.native, first)
    after = dict(state.entries) if second is None else _catalogue.read(state.native, second)
    changes = {}
    for name, entry in after.items():
        if not entry.is_same(before.get(name)):
            continue
        size = entry.numpy_dtype.itemsize
        found: list[Index] = []
        if entry.nbytes > 0:
            for start, end in state.native.changed_between(first, second, entry.address, entry.nbytes):
                shape = entry.shape if entry.order == "C" else entry.shape[::-1]
                for index in slices(start // size, -(-end // size), shape):
                    index = index if entry.order == "C" else index[::-1]
                    if not found or not covers(found[-1], index):
                        found.append(index)
        if found:
            changes[name] = merged(found)
    added = [name for name, entry in after.items() if not entry.is_same(before.get(name))]
    removed = [name for name, entry in before.items() if not entry.is_same(after.get(name))]
    return Diff(changes, added, removed)


def slices(start: int, end: int, shape: tuple[int, ...]) -> Iterator[Index]:
    """Yields index slices that cover the elements from ``start`` to ``end``, counted in memory order."""
    if not shape:
        yield ()
        return
    row = 1
    for length in shape[1:]:
        row *= length
    first, last = start // row, -(-end // row)
    if last - first == 1 and len(shape) > 1:
        for inner in slices(start - first * row, end - first * row, shape[1:]):
            yield (slice(first, last), *inner)
    else:
        yield (slice(first, last), *(slice(0, length) for length in shape[1:]))


def covers(outer: Index, inner: Index) -> bool:
    return all(a.start <= b.start and b.stop <= a.stop for a, b in zip(outer, inner))


def merged(found: list[Index]) -> list[Index]:
    """Joins neighbours along the first axis of whole rows."""
    result: list[Index] = []
    for index in found:
        if result and index and result[-1][1:] == index[1:] and index[0].start <= result[-1][0].stop:
            joined = slice(result[-1][0].start, max(index[0].stop, result[-1][0].stop))
            result[-1] = (joined, *index[1:])
        else:
            result.append(index)
    return result
