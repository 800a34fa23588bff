"""Pools: memory for arrays in a file or on a block device, larger than the DRAM that it uses."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

import numpy as np

from . import errors
from ._array import Array, memory_of
from ._diff import Diff, changed_slices
from ._memory import OPEN, State, ViewState, open_view
from ._native import create_pool, is_pool, parse_size

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

#: A size in bytes: a number, or a text such as "8GiB" or "512MiB".
Size = Union[int, str]
#: A path, or the paths of all files of a pool that has several.
Paths = Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]
Shape = Union[int, Iterable[int]]

#: The least DRAM budget that is chosen without being given, bytes.
LEAST_DRAM = 64 << 20


class Token(NamedTuple):
    """A token of a pool's history, to which the pool can return."""

    #: The number that :meth:`Pool.sync` returned.
    token: int
    #: When the sync took place; ``None`` for the first, the empty pool.
    time: datetime | None
    #: Pages of 64 KiB changed between the previous token and this one.
    pages_changed: int
    #: Bytes written between the previous token and this one.
    bytes_written: int


class Pool(Mapping[str, Array]):
    """A pool of arrays, on a file or block device; a mapping from names to arrays.

    Opens the pool at ``path``, or creates it if the file does not exist and ``size`` is given. The arrays of the pool
    are loaded as they are used, and at most ``dram`` bytes of them are in memory. After a crash the pool is as at its
    last :meth:`sync`.

    Use it as a context manager: leaving the block closes the pool, which syncs it; leaving it by an exception abandons
    all changes since the last sync, as a crash would. A pool that is never closed is synced and closed when the
    interpreter ends, or when neither it nor one of its arrays is in use any more.

    Args:
        path: the pool's file or block device, or a list of all of its files.
        size: memory for arrays, in bytes or as text ("8GiB"). Needed to create a pool; for one that exists it must be
            the pool's size, or be left out.
        dram: DRAM budget, in bytes or as text: pages, tables and buffers together. The default is a quarter of the
            pool, at least 64 MiB and at most half of the memory that is free.
        flash: for a new pool, bytes of the file. The default is 2.4 times ``size``, and more for pools below 1 GiB: the
            state of the last token and an entirely new state fit side by side.
        keep: for a new pool, the number of newest tokens that are kept.
        segment: for a new pool, bytes that are read and written at once: 4096, 8192 or 16384.
        redundancy: for a new pool, (data, parity) columns such as (8, 1), from which damage is repaired.
        overwrite: for a new pool on a block device, whether known content there may be destroyed.
        mapping: "full" lets system calls use the pool's memory, which needs the right to use userfaultfd; "user" needs
            no right, but system calls on memory that is not in DRAM fail; "auto" takes the first that works.
        listen: an address, "unix:PATH" or "HOST:PORT" of this machine, at which the pool serves its statistics over HTTP
            while it is open, for Prometheus at /metrics. ``deepram top`` shows every open pool in any case.

    Raises:
        FileNotFoundError: the file does not exist and no size is given.
        ValueError: a size is no size, or not that of the pool.
        errors.BusyError: the pool is open already.
        errors.BudgetError: the DRAM budget is too small.
        errors.NotAPoolError: the file is not a pool; and other classes of :mod:`deepram.errors`.
    """

    def __init__(
        self,
        path: Paths,
        size: Size | None = None,
        dram: Size | None = None,
        *,
        flash: Size | None = None,
        keep: int = 8,
        segment: int = 4096,
        redundancy: tuple[int, int] | None = None,
        overwrite: bool = False,
        mapping: str = "auto",
        listen: str | None = None,
    ) -> None:
        paths = tuple(os.fspath(part) for part in ([path] if isinstance(path, (str, os.PathLike)) else path))
        wanted = None if size is None else size_in_bytes("size", size)
        budget = None if dram is None else size_in_bytes("dram", dram)
        made = False
        new: list[str] = []
        if not paths:
            raise ValueError("path: no file is given")
        if overwrite or not all(is_pool(part) for part in paths):
            if wanted is None:
                missing = next(part for part in paths if overwrite or not is_pool(part))
                raise FileNotFoundError(f"{missing}: there is no pool; give size=, such as size='8GiB', to create one")
            new = [part for part in paths if not is_pool(part)]
            create_pool(
                paths,
                wanted,
                flash=None if flash is None else size_in_bytes("flash", flash),
                segment=segment,
                keep=keep,
                redundancy=redundancy,
                overwrite=overwrite,
            )
            made = True
        if budget is None:
            budget = default_dram(paths, wanted)
        try:
            self._state = State(paths, budget, mapping, listen)
        except BaseException:
            for part in new:
                os.unlink(part)
            raise
        if not made and wanted is not None:
            self._check_size(wanted * len(paths))

    def _check_size(self, wanted: int) -> None:
        found = self._state.native.info()["size_bytes"]
        # Page 0 of each controller belongs to the pool.
        if abs(found - wanted) > (1 << 17) * len(self._state.paths):
            self._state.close(sync=False)
            raise ValueError(
                f"size: the pool {', '.join(self._state.paths)} exists and has {found} bytes, not {wanted}: leave size "
                "out"
            )

    # Arrays

    def zeros(self, shape: Shape, dtype: DTypeLike = float, name: str | None = None, order: Literal["C", "F"] = "C") -> Array:
        """Makes an array of zeros.

        Args:
            shape: the lengths of the dimensions, or one length.
            dtype: any dtype without Python objects.
            name: a name under which the array is found again, in this process and in later ones. An array without a
                name is temporary: its memory is free again when the last view of it is gone.
            order: "C" (rows) or "F" (columns).

        Returns:
            the array, a ``numpy.ndarray`` over memory of the pool. It takes whole pages of 64 KiB of the pool.

        Raises:
            ValueError: the name exists; a length is negative.
            TypeError: the dtype holds Python objects.
            errors.NoAddressSpaceError: the pool has no free memory of this size.
        """
        lengths = tuple(int(length) for length in ([shape] if isinstance(shape, (int, np.integer)) else shape))  # type: ignore[union-attr, list-item]
        if any(length < 0 for length in lengths):
            raise ValueError(f"shape: {lengths} has a negative length")
        if order not in ("C", "F"):
            raise ValueError(f"order: {order!r} is unknown; give 'C' or 'F'")
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError(f"name: {name!r} is no name; give a text that is not empty")
        return self._state.create(name, lengths, np.dtype(dtype), order)

    def empty(self, shape: Shape, dtype: DTypeLike = float, name: str | None = None, order: Literal["C", "F"] = "C") -> Array:
        """Makes an array whose elements the caller will set; the same as :meth:`zeros`, which costs nothing here."""
        return self.zeros(shape, dtype, name, order)

    def full(
        self, shape: Shape, value: Any, dtype: DTypeLike | None = None, name: str | None = None, order: Literal["C", "F"] = "C"
    ) -> Array:
        """Makes an array that is filled with a value; its dtype is that of the value unless given."""
        array = self.zeros(shape, np.asarray(value).dtype if dtype is None else dtype, name, order)
        array[...] = value
        return array

    def array(self, data: ArrayLike, dtype: DTypeLike | None = None, name: str | None = None) -> Array:
        """Copies an array, or anything that NumPy makes one of, into the pool.

        Args:
            data: the elements.
            dtype: the dtype; that of ``data`` unless given.
            name: as for :meth:`zeros`.

        Raises:
            As :meth:`zeros`.
        """
        source = np.asarray(data)
        order: Literal["C", "F"] = "F" if source.flags.f_contiguous and not source.flags.c_contiguous else "C"
        array = self.zeros(source.shape, source.dtype if dtype is None else dtype, name, order)
        array[...] = source
        return array

    def __getitem__(self, name: str) -> Array:
        """Returns the array with this name; ``KeyError`` if there is none."""
        return self._state.open(name)

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        """Copies elements into the array with this name, or makes it: ``pool["x"] += 1`` and ``pool["x"] = data``.

        Raises:
            ValueError: the array exists with another shape.
        """
        if name not in self:
            self.array(value, name=name)
            return
        array = self[name]
        if isinstance(value, Array) and memory_of(value) is memory_of(array) and value.shape == array.shape:
            if value.strides == array.strides and value.ctypes.data == array.ctypes.data:
                return
        source = np.asarray(value)
        if source.shape not in (array.shape, ()):
            raise ValueError(
                f"pool[{name!r}] has shape {array.shape}, not {source.shape}: assign to a part of it, or del it first"
            )
        array[...] = source

    def __delitem__(self, name: str) -> None:
        """Removes an array from the pool; ``KeyError`` if there is none.

        Its memory is free when no view of it is left. Tokens from before the deletion keep the array.
        """
        self._state.delete(name)

    def __contains__(self, name: object) -> bool:
        self._state.check()
        return name in self._state.entries

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names, in the order in which the arrays were made."""
        self._state.check()
        return iter(list(self._state.entries))

    def __len__(self) -> int:
        self._state.check()
        return len(self._state.entries)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    # Tokens

    def sync(self) -> int:
        """Makes all arrays durable, and returns the token of this state.

        Only segments (4 KiB) that changed since the last sync are written. Other threads may go on computing; the
        state is that of one moment.

        Raises:
            errors.NoSpaceError, errors.DeviceError: nothing has become durable, and no data is lost.
        """
        return self._state.sync()

    def rollback(self, token: int) -> None:
        """Returns all arrays to their state at a token; later tokens are gone.

        Arrays that exist at the token show its elements, in all of their views. Arrays that were made later are gone:
        every use raises :class:`errors.StaleArrayError`. No other thread may use arrays of the pool during the call.

        Raises:
            errors.TokenError: the token never existed or is not kept any more; nothing has changed.
            BufferError: an array that is still in use was made where the token has another one. The message names it.
        """
        self._state.rollback(int(token))

    def history(self) -> list[Token]:
        """Returns the tokens that are kept, oldest first."""
        self._state.check()
        segment = self._state.native.info()["segment_bytes"]
        return [
            Token(token, datetime.fromtimestamp(wall / 1e9, timezone.utc) if wall else None, pages, segments * segment)
            for token, wall, pages, segments in self._state.native.history()
        ]

    def keep(self, tokens: int) -> None:
        """Changes the number of newest tokens that are kept from now on."""
        self._state.check()
        if tokens < 1:
            raise ValueError(f"tokens: {tokens}; at least one is kept")
        self._state.native.keep(tokens)

    def drop(self, token: int) -> None:
        """Gives a token up, so that the flash of its versions becomes free; not the last one."""
        with self._state.lock:
            self._state.check()
            self._state.native.drop_token(int(token))
            self._state.end_views()

    def at(self, token: int, dram: Size | None = None) -> View:
        """Returns the arrays as they were at a token, for reading, beside the live ones.

        Their elements are loaded as they are used. The view's DRAM is taken from the pool's budget.

        Args:
            token: a token of :meth:`history`.
            dram: DRAM of the view; an eighth of the pool's budget unless given.

        Raises:
            errors.TokenError: the token never existed or is not kept any more.
            errors.BudgetError, errors.OptionError: the DRAM does not suffice for both.
        """
        return View(open_view(self._state, int(token), None if dram is None else size_in_bytes("dram", dram)))

    def diff(self, a: int, b: int | None = None) -> Diff:
        """Returns what has changed between two tokens, or between a token and now.

        Args:
            a: a token.
            b: another token; now, unless given.

        Returns:
            a mapping from the names of changed arrays to lists of index slices: ``array[slices]`` for each of them are
            all changed elements, rounded up to segments (4 KiB) and, in arrays of several dimensions, to rows. Its
            ``added`` and ``removed`` name arrays that exist at one of the two only.

        Raises:
            errors.TokenError: a token never existed or is not kept any more.
        """
        with self._state.lock:
            self._state.check()
            return changed_slices(self._state, int(a), None if b is None else int(b))

    # The pool

    def stats(self) -> dict[str, int]:
        """Returns counters since the pool was opened, such as ``bytes_written``, and gauges such as ``dram_bytes``."""
        return self._state.native.stats()

    def info(self) -> dict[str, Any]:
        """Returns properties and usage: ``size_bytes``, ``allocated_bytes``, ``flash_room_bytes`` and others."""
        self._state.check()
        return self._state.native.info()

    def take_errors(self) -> list[str]:
        """Returns, and clears, why accesses to elements or background writes have failed."""
        return self._state.native.take_errors()

    @property
    def dram(self) -> int:
        """The DRAM budget in bytes, views included. Assign to change it."""
        return self._state.dram

    @dram.setter
    def dram(self, dram: Size) -> None:
        budget = size_in_bytes("dram", dram)
        with self._state.lock:
            self._state.check()
            self._state.tidy()
            self._state.native.set_dram(budget - self._state.viewed_dram)
            self._state.dram = budget

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the pool."""
        return self._state.paths

    @property
    def closed(self) -> bool:
        """Whether the pool is closed."""
        return self._state.closed

    def close(self) -> None:
        """Syncs and closes the pool. Arrays that are still in use are stale: every use raises ``errors.ClosedError``.

        Raises:
            As :meth:`sync`: the pool is then closed at its last token.
        """
        self._state.close(sync=True)

    def abandon(self) -> None:
        """Closes the pool without a sync, as a crash would leave it: at its last token."""
        self._state.close(sync=False)

    def __enter__(self) -> Pool:
        self._state.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state.close(sync=kind is None)

    def __repr__(self) -> str:
        state = self._state
        paths = ", ".join(repr(path) for path in state.paths)
        return f"<deepram.Pool {paths}: " + ("closed>" if state.closed else f"{len(state.entries)} arrays>")


class View(Mapping[str, Array]):
    """The arrays of a pool as they were at a token; :meth:`Pool.at` makes it. The arrays are read-only."""

    def __init__(self, state: ViewState) -> None:
        self._state = state

    @property
    def token(self) -> int:
        """The token."""
        return self._state.token

    def __getitem__(self, name: str) -> Array:
        """Returns the array with this name; ``KeyError`` if there is none."""
        return self._state.open(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.entries)

    def __len__(self) -> int:
        return len(self._state.entries)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def take_errors(self) -> list[str]:
        """Returns, and clears, why accesses to elements have failed."""
        return self._state.native.take_errors()

    def __repr__(self) -> str:
        return f"<deepram.View of token {self.token}: {len(self)} arrays>"


def size_in_bytes(option: str, size: Size) -> int:
    """Returns a size in bytes.

    Raises:
        ValueError: the size is no size, or not positive.
    """
    if isinstance(size, str):
        try:
            size = parse_size(size)
        except ValueError as error:
            raise ValueError(f"{option}: {error}") from None
    if not isinstance(size, (int, np.integer)):
        raise TypeError(f"{option}: {size!r} is no size; give bytes, or a text such as '8GiB'")
    if size <= 0:
        raise ValueError(f"{option}: {size} is no size; it must be positive")
    return int(size)


def default_dram(paths: tuple[str, ...], size: int | None) -> int:
    """Returns the DRAM budget of a pool for which none is given."""
    # A pool takes 2.4 times its memory on a file.
    memory = size * len(paths) if size is not None else sum(os.path.getsize(path) for path in paths) / 2.4
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(LEAST_DRAM, min(int(memory / 4), free // 2))


@atexit.register
def _close_all() -> None:
    for state in list(OPEN.values()):
        try:
            state.close(sync=True)
        except errors.PoolError as error:
            print(f"deepram: closing {', '.join(state.paths)}: {error}")
