"""Batches of rows, and hints about future accesses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import errors
from ._array import StaleArray, memory_of, span_of
from ._memory import Memory
from ._native import segment_digests

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def gather(array: np.ndarray, indices: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Copies rows of an array: ``array[indices]``, with many device reads in flight at once.

    Rows that are not in DRAM are read without driving others out of it.

    Args:
        array: an array of a pool, or a slice of one, whose rows ``array[i]`` are contiguous.
        indices: integers of any shape, from ``-len(array)`` to ``len(array) - 1``.
        out: a C-contiguous array of the result's shape and dtype to copy into.

    Returns:
        a ``numpy.ndarray`` in ordinary memory, of shape ``indices.shape + array.shape[1:]``.

    Raises:
        IndexError: an index is outside of the array.
        TypeError: the array is not in a pool, or indices are no integers.
        ValueError: rows are not contiguous, or ``out`` does not fit.
        errors.DamagedError, errors.UnreadableError: a row cannot be read.
    """
    memory, rows, shape = _rows(array, indices)
    shape = shape + array.shape[1:]
    if out is None:
        out = np.empty(shape, array.dtype)
    elif out.shape != shape or out.dtype != array.dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out: it must be a writable C-contiguous array of shape {shape} and dtype {array.dtype}")
    row = _row_bytes(array)
    if memory.token is not None:
        np.take(np.asarray(array), rows.reshape(shape[: len(shape) - array.ndim + 1]), axis=0, out=out)
    elif rows.size > 0 and row > 0:
        first = memory.address + span_of(array[:1], memory)[0]
        memory.state.native.gather(first, (_stride(array), row), rows.ctypes.data, rows.size, out.ctypes.data)
    return out


def scatter(array: np.ndarray, indices: ArrayLike, values: ArrayLike) -> None:
    """Copies values to rows of an array: ``array[indices] = values``, with many device reads in flight at once.

    Args:
        array: a writable array of a pool, as for :func:`gather`.
        indices: integers; of rows that are given twice the last value counts.
        values: what NumPy can broadcast to shape ``indices.shape + array.shape[1:]``.

    Raises:
        As :func:`gather`, and :class:`errors.NoSpaceError`: some of the rows may then have their values.
    """
    memory, rows, shape = _rows(array, indices)
    if memory.token is not None or not array.flags.writeable:
        raise ValueError("array: it is read-only")
    source = np.ascontiguousarray(np.broadcast_to(np.asarray(values, array.dtype), shape + array.shape[1:]))
    row = _row_bytes(array)
    if rows.size > 0 and row > 0:
        first = memory.address + span_of(array[:1], memory)[0]
        memory.state.native.scatter(first, (_stride(array), row), rows.ctypes.data, rows.size, source.ctypes.data)


#: Bytes compared at a time by :func:`update`.
_COMPARED = 16 << 20
#: Bytes of a segment, the unit in which a pool writes, at its smallest.
_SEGMENT = 4096


def update(array: np.ndarray, values: ArrayLike) -> int:
    """Copies values into an array, and stores only where they differ: the next sync writes only what has changed.

    Args:
        array: a writable array of a pool.
        values: what NumPy can broadcast to the array's shape.

    Returns:
        the number of bytes stored, in whole segments of 4 KiB for contiguous arrays.

    Raises:
        TypeError: the array is not in a pool.
        ValueError: the array is read-only, or the shapes do not fit.
    """
    memory = _memory(array)
    if memory.token is not None or not array.flags.writeable:
        raise ValueError("array: it is read-only")
    source = np.broadcast_to(np.asarray(values, array.dtype), array.shape)
    if not array.flags.c_contiguous:
        if array.ndim < 2:
            differing = _differs(np.asarray(array), source)
            array[differing] = source[differing]
            return int(differing.sum()) * array.itemsize
        return sum(update(array[at : at + 1][0], source[at]) for at in range(len(array)))
    target = np.asarray(array).reshape(-1).view(np.uint8)
    new = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
    stored = 0
    # Blocks begin where segments do.
    start = -((memory.address + span_of(array, memory)[0]) % _SEGMENT) if array.size else 0
    for first in range(start, len(target), _COMPARED):
        at, end = max(first, 0), min(first + _COMPARED, len(target))
        borders = np.unique(np.arange(first, end + _SEGMENT, _SEGMENT).clip(at, end))
        if borders.size > 1:
            changed = np.add.reduceat(target[at:end] != new[at:end], borders[:-1] - at, dtype=np.int64) > 0
            stored += _store_segments(target, new, borders, changed)
    return stored


def _store_segments(
    target: NDArray[Any], new: NDArray[Any], borders: NDArray[np.int64], changed: NDArray[np.bool_]
) -> int:
    """Stores the changed ones of the segments between these borders, neighbours together; returns their bytes."""
    stored = 0
    edges = np.flatnonzero(np.diff(np.concatenate(([False], changed, [False])).astype(np.int8)))
    for first, end in zip(edges[::2], edges[1::2]):
        part = slice(int(borders[first]), int(borders[end]))
        target[part] = new[part]
        stored += part.stop - part.start
    return stored


class Copied:
    """The contents that an array of a pool was given last, as digests of its segments.

    The next contents are compared with the digests, so that the array itself, which may be on flash, is not read. The
    digests are used only as long as the pool says that nothing else has changed the array.
    """

    def __init__(self) -> None:
        self._address: int | None = None
        self._digests: NDArray[np.uint64] = np.empty((0, 2), np.uint64)
        self._token = -1

    def update(self, array: np.ndarray, values: NDArray[np.uint8]) -> int:
        """Copies values into a whole array of bytes, as :func:`update` does; returns the number of bytes stored."""
        digests = np.frombuffer(segment_digests(values.ctypes.data, values.size, _SEGMENT), np.uint64).reshape(-1, 2)
        address = _memory(array).address
        is_known = self._is_known(array, address)
        # A failure in the midst leaves an array of which nothing is known.
        self._address = None
        if is_known:
            borders = np.append(np.arange(0, values.size, _SEGMENT), values.size)
            changed = (digests != self._digests).any(axis=1)
            stored = _store_segments(np.asarray(array), values, borders, changed)
        else:
            stored = update(array, values)
        self._address, self._digests = address, digests
        return stored

    def synced(self, token: int) -> None:
        """Records the token of the sync that has made the last contents durable."""
        self._token = token

    def _is_known(self, array: np.ndarray, address: int) -> bool:
        if self._address != address or len(self._digests) != -(-array.size // _SEGMENT):
            return False
        try:
            return not _memory(array).state.native.changed_between(self._token, None, address, array.size)
        except errors.TokenError:
            return False


def _differs(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    # Elements that are no numbers, such as NaN, differ from themselves.
    return np.asarray(one != other)


def prefetch(array: np.ndarray, indices: ArrayLike | None = None) -> None:
    """Loads an array, or some of its rows, into DRAM in the background, as far as DRAM is free.

    Args:
        array: an array of a pool, or a view of one.
        indices: the rows that will be needed; all, unless given.

    Raises:
        TypeError, IndexError: as :func:`gather`.
    """
    if indices is None:
        memory = _memory(array)
        first, end = span_of(array, memory)
        if memory.token is None and end > first:
            memory.state.native.will_need(memory.address + first, end - first)
        return
    memory, rows, _ = _rows(array, indices)
    if memory.token is not None or rows.size == 0 or _row_bytes(array) == 0:
        return
    rows = np.unique(rows)
    first = memory.address + span_of(array[:1], memory)[0]
    # Rows that follow each other are one range.
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    for run in np.split(rows, breaks):
        length = int(run[-1] - run[0]) * _stride(array) + _row_bytes(array)
        memory.state.native.will_need(first + int(run[0]) * _stride(array), length)


def evict(array: np.ndarray) -> None:
    """Takes an array, or the part that a slice covers, out of DRAM: it will not be used for a while.

    Changed elements are written to the pool's file first; only a sync makes them durable.
    """
    memory = _memory(array)
    first, end = span_of(array, memory)
    if memory.token is None and end > first:
        memory.state.native.evict(memory.address + first, end - first)


def pin(array: np.ndarray) -> None:
    """Keeps an array, or the part that a slice covers, in DRAM until :func:`unpin`.

    Raises:
        errors.OptionError: more than half of the DRAM would be pinned.
    """
    _pin(array, True)


def unpin(array: np.ndarray) -> None:
    """Ends :func:`pin`."""
    _pin(array, False)


def _pin(array: np.ndarray, pinned: bool) -> None:
    memory = _memory(array)
    if memory.token is not None:
        raise ValueError("array: it views an older token; only live arrays can be pinned")
    first, end = span_of(array, memory)
    if end > first:
        memory.state.native.pin(memory.address + first, end - first, pinned)


def _memory(array: Any) -> Memory:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"array: {type(array).__name__} is no array of a pool; Pool.array copies one into a pool")
    if isinstance(array, StaleArray):
        array._raise()
    memory = memory_of(array)
    if memory is None:
        raise TypeError("array: its elements are not in a pool; Pool.array copies them into one")
    memory.state.check()
    return memory


def _stride(array: np.ndarray) -> int:
    return int(array.strides[0])


def _row_bytes(array: np.ndarray) -> int:
    return int(array.dtype.itemsize * np.prod(array.shape[1:], dtype=np.int64))


def _rows(array: np.ndarray, indices: ArrayLike) -> tuple[Memory, NDArray[np.int64], tuple[int, ...]]:
    memory = _memory(array)
    if array.ndim == 0:
        raise ValueError("array: it has no rows, because it has no dimension")
    if array.size > 0 and not array[:1].flags.c_contiguous:
        raise ValueError("array: its rows are not contiguous; gather from an array in C order, or index with []")
    if array.strides[0] < 0:
        raise ValueError("array: its rows are in reverse order; gather from the array itself")
    numbers = np.asarray(indices)
    if numbers.size == 0:
        numbers = numbers.astype(np.int64)
    if numbers.dtype.kind not in "iu":
        raise TypeError(f"indices: dtype {numbers.dtype} is no integer")
    shape = numbers.shape
    rows = np.ascontiguousarray(numbers.reshape(-1), dtype=np.int64)
    length = len(array)
    outside = (rows < -length) | (rows >= length)
    if outside.any():
        raise IndexError(f"index {rows[outside][0]} is out of bounds for {length} rows")
    return memory, np.where(rows < 0, rows + length, rows), shape
