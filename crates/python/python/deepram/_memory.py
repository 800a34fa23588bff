"""The memory of arrays, and the state that an open pool shares with them."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections import deque
from typing import Any, Literal

import numpy as np

from . import _catalogue, errors
from ._array import Array, make_stale
from ._catalogue import Entry
from ._native import NativePool, NativeView, mark_gone, unmark_gone

#: Bytes of a page, the unit of allocation.
PAGE = 65536

#: The open pools of this process, by the real paths of their files.
OPEN: weakref.WeakValueDictionary[tuple[str, ...], State] = weakref.WeakValueDictionary()


class Memory:
    """Memory of one array. NumPy arrays hold it as their base, so it lives as long as any view of the array."""

    __slots__ = ("__weakref__", "_gone", "address", "epoch", "name", "nbytes", "pointer", "state", "token", "view")

    def __init__(
        self, state: State, view: ViewState | None, place: tuple[int, int], name: str | None, epoch: int
    ) -> None:
        self.state = state
        self.view = view
        self.token = None if view is None else view.token
        self.address, self.nbytes = place
        self.name = name
        self.epoch = epoch
        #: Number of the guarded range, once a rollback has removed the array.
        self._gone: int | None = None
        source: NativePool | NativeView = state.native if view is None else view.native
        self.pointer = source.pointer(self.address, max(self.nbytes, 1))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.nbytes,),
            "data": (self.pointer, self.token is not None),
        }

    @property
    def label(self) -> str:
        return repr(self.name) if self.name else f"an unnamed array of {self.nbytes} bytes"

    def remove(self) -> None:
        """Keeps the addresses out of use after a rollback has freed them, as long as views exist."""
        self.state.out_of_use[self.address] = max(self.nbytes, 1)
        self._gone = mark_gone(self.pointer, -(-max(self.nbytes, 1) // PAGE) * PAGE)
        self.name = None

    def __del__(self) -> None:
        # Only notes what is to be freed: this may run at any moment, in any thread.
        state = getattr(self, "state", None)
        if state is not None and self.token is None and hasattr(self, "pointer"):
            state.released.append((self.address, max(self.nbytes, 1), self.name, self._gone))

    def array(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        order: Literal["C", "F"] | None = None,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
    ) -> Array:
        """Makes an array over this memory."""
        flat = np.asarray(self)
        return np.ndarray.__new__(Array, shape, dtype, flat, offset, strides, order)


class State:
    """An open pool, shared by the ``Pool`` object, its arrays and its views."""

    closed: bool
    native: NativePool

    def __init__(
        self, paths: tuple[str, ...], dram: int, mapping: str, listen: str | None = None
    ) -> None:
        key = tuple(os.path.realpath(path) for path in paths)
        if key in OPEN and not OPEN[key].closed:
            raise errors.BusyError(
                f"{', '.join(paths)} is open in this process already: use that Pool, or close it first. "
                "A pool stays open as long as one of its arrays is in use"
            )
        self.paths = key
        self.dram = dram
        self.pid = os.getpid()
        self.closed = True
        self.lock = threading.RLock()
        self.mapping = mapping
        self.native = open_native(paths, dram, mapping, listen)
        self.entries = _catalogue.read(self.native)
        self.changed = False
        self.memories: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()
        self.views: weakref.WeakValueDictionary[int, ViewState] = weakref.WeakValueDictionary()
        self.released: deque[tuple[int, int, str | None, int | None]] = deque()
        #: Ranges (address, bytes) of arrays that rollbacks have removed, as long as something may still refer to them.
        self.out_of_use: dict[int, int] = {}
        self.viewed_dram = 0
        self.returned_dram: deque[int] = deque()
        self.closed = False
        OPEN[key] = self

    def check(self) -> None:
        if self.closed:
            raise errors.ClosedError("the pool is closed")

    def tidy(self) -> None:
        """Frees the memory of unnamed arrays that are not in use any more, and takes back the DRAM of views."""
        while self.released:
            address, nbytes, name, gone = self.released.popleft()
            if gone is not None and not unmark_gone(gone):
                continue  # The addresses stay taken until the pool closes.
            if gone is not None:
                del self.out_of_use[address]
            if name is None and address not in self.memories:
                self.native.free(address, nbytes)
        while self.returned_dram:
            self.viewed_dram -= self.returned_dram.popleft()
            self.native.set_dram(self.dram - self.viewed_dram)

    def create(self, name: str | None, shape: tuple[int, ...], dtype: np.dtype[Any], order: Literal["C", "F"]) -> Array:
        with self.lock:
            self.check()
            description = _catalogue.describe(dtype)
            if name is not None and name in self.entries:
                raise ValueError(
                    f"the pool has an array {name!r} already: use pool[{name!r}], or del pool[{name!r}] first"
                )
            self.tidy()
            nbytes = dtype.itemsize
            for length in shape:
                nbytes *= length
            address = self.native.alloc(max(nbytes, 1), name is not None)
            try:
                epoch = self.native.open_epoch()
                memory = Memory(self, None, (address, nbytes), name, epoch)
            except BaseException:
                self.native.free(address, max(nbytes, 1))
                raise
            self.memories[address] = memory
            if name is not None:
                self.entries[name] = Entry(name, address, nbytes, description, shape, order, epoch)
                self.changed = True
            return memory.array(shape, dtype, order=order)

    def memory(self, entry: Entry) -> Memory:
        memory = self.memories.get(entry.address)
        if memory is None:
            memory = Memory(self, None, (entry.address, entry.nbytes), entry.name, entry.epoch)
            self.memories[entry.address] = memory
        return memory

    def open(self, name: str) -> Array:
        with self.lock:
            self.check()
            entry = find(self.entries, name)
            return self.memory(entry).array(entry.shape, entry.numpy_dtype, order=entry.order)

    def delete(self, name: str) -> None:
        with self.lock:
            self.check()
            self.tidy()
            entry = find(self.entries, name)
            length = max(entry.nbytes, 1)
            memory = self.memories.get(entry.address)
            if memory is None:
                self.native.free(entry.address, length)
            else:
                # Views keep the memory; it is freed with the last of them, and does not outlive the process.
                self.native.set_permanent(entry.address, length, False)
                memory.name = None
            del self.entries[name]
            self.changed = True

    def sync(self) -> int:
        with self.lock:
            self.check()
            self.tidy()
            self.write_catalogue()
            token = self.native.sync()
            self.end_views()
            return token

    def write_catalogue(self) -> None:
        if self.changed:
            _catalogue.write(self.native, self.entries)
            self.changed = False

    def end_views(self) -> None:
        """Makes arrays stale that view a token which is not kept any more."""
        if len(self.views) == 0:
            return
        kept = {token for token, *_ in self.native.history()}
        for token, view in list(self.views.items()):
            if token not in kept:
                view.end(errors.TokenError, f"token {token} is not kept any more")

    def rollback(self, token: int) -> None:
        with self.lock:
            self.check()
            self.tidy()
            then = _catalogue.read(self.native, token)
            memories = list(self.memories.values())
            removed = [memory for memory in memories if memory.epoch > token]
            shared = [
                memory.label
                for memory in removed
                if self.native.any_allocated_at(token, memory.address, max(memory.nbytes, 1))
            ]
            for address, nbytes in self.out_of_use.items():
                if self.native.any_allocated_at(token, address, nbytes):
                    shared.append(f"an array of {nbytes} bytes that an earlier rollback has removed")
            if shared:
                # The exception keeps this frame, which must not keep the arrays.
                del memories, removed
                raise BufferError(
                    f"the rollback to token {token} would give the memory of {', '.join(shared)} back to arrays that "
                    "were there before: delete all references to them first (or, if one was accessed after its removal, "
                    "close the pool and open it again)"
                )
            self.native.rollback(token)
            self.entries = then
            self.changed = False
            make_stale(
                [(memory.pointer, memory.pointer + max(memory.nbytes, 1)) for memory in removed],
                errors.StaleArrayError,
                f"the rollback to token {token} has removed the array, which was made later",
            )
            for memory in removed:
                del self.memories[memory.address]
                memory.remove()
            for address, nbytes in self.out_of_use.items():
                self.native.reserve(address, nbytes)
            names = {entry.address: entry.name for entry in then.values()}
            for address, memory in self.memories.items():
                memory.name = names.get(address)
            self.free_unused()
            self.end_views()

    def free_unused(self) -> None:
        """Frees temporary memory that a rollback has brought back for arrays that nobody has any more."""
        used = [(memory.address, max(memory.nbytes, 1)) for memory in self.memories.values()]
        used += self.out_of_use.items()
        pages = {page for address, nbytes in used for page in range(address, address + nbytes, PAGE)}
        for address, nbytes in self.native.temporary_ranges():
            for page in range(address, address + nbytes, PAGE):
                if page not in pages:
                    self.native.free(page, PAGE)

    def close(self, *, sync: bool) -> None:
        with self.lock:
            if self.closed or self.pid != os.getpid():
                self.closed = True
                return
            try:
                if sync:
                    self.tidy()
                    self.write_catalogue()
                    self.native.close()
                else:
                    self.native.abandon()
            finally:
                self.end()

    def end(self) -> None:
        if not self.closed:
            self.native.abandon()
        self.closed = True
        ranges = [self.native.mapped_range()] + [view.native.mapped_range() for view in self.views.values()]
        make_stale([span for span in ranges if span], errors.ClosedError, "the pool of the array is closed")

    def __del__(self) -> None:
        if getattr(self, "closed", True) or self.pid != os.getpid():
            return
        warnings.warn(f"pool {', '.join(self.paths)} was not closed", ResourceWarning, stacklevel=2, source=self)
        self.close(sync=True)


class ViewState:
    """The state of a token, shared by a ``View`` object and its arrays."""

    def __init__(self, state: State, token: int, dram: int) -> None:
        self.state = state
        self.token = token
        self.dram = 0
        self.ended: errors.PoolError | None = None
        self.entries = _catalogue.read(state.native, token)
        state.native.set_dram(state.dram - state.viewed_dram - dram)
        state.viewed_dram += dram
        self.dram = dram
        self.native = state.native.view(token, dram)
        self.memories: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()

    def open(self, name: str) -> Array:
        self.state.check()
        if self.ended is not None:
            raise type(self.ended)(str(self.ended))
        entry = find(self.entries, name)
        memory = self.memories.get(entry.address)
        if memory is None:
            memory = Memory(self.state, self, (entry.address, entry.nbytes), name, entry.epoch)
            self.memories[entry.address] = memory
        return memory.array(entry.shape, entry.numpy_dtype, order=entry.order)

    def end(self, kind: type[errors.PoolError], message: str) -> None:
        if self.ended is None:
            self.ended = kind(message)
            make_stale([self.native.mapped_range()], kind, message)

    def __del__(self) -> None:
        if getattr(self, "dram", 0):
            self.state.returned_dram.append(self.dram)


def find(entries: dict[str, Entry], name: str) -> Entry:
    """Returns the entry with this name.

    Raises:
        KeyError: there is none; the message lists what there is.
    """
    if name in entries:
        return entries[name]
    names = sorted(entries)
    there = ", ".join(repr(name) for name in names[:10]) or "none"
    there += ", ..." if len(names) > 10 else ""
    raise KeyError(f"no array {name!r}; there are: {there}")


def open_native(paths: tuple[str, ...], dram: int, mapping: str, listen: str | None) -> NativePool:
    """Opens the pool; with mapping "auto", in the way that this process may."""
    if mapping != "auto":
        return NativePool(list(paths), dram, mapping, listen)
    try:
        return NativePool(list(paths), dram, "full", listen)
    except errors.WatchError:
        native = NativePool(list(paths), dram, "user", listen)
    warnings.warn(
        "this process may not use userfaultfd for system calls: reading a file directly into an array of the pool, or "
        "writing an array to a file, fails with EFAULT ('Bad address') where elements are not in DRAM. Copy through "
        "ordinary memory, or enable userfaultfd by `sysctl vm.unprivileged_userfaultfd=1`. mapping=\"user\" says that "
        "you know",
        RuntimeWarning,
        stacklevel=4,
    )
    return native


def restore(
    paths: tuple[str, ...],
    dram: int,
    token: int | None,
    name: str,
    epoch: int,
    description: Any,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
) -> Array:
    """Finds a pickled array again, and opens its pool if it is not open in this process."""
    state = OPEN.get(paths)
    if state is None or state.closed:
        state = State(paths, dram, "auto")
    with state.lock:
        if token is None:
            entry = find(state.entries, name)
            memory = state.memory(entry)
        else:
            view = state.views.get(token) or open_view(state, token, None)
            view.open(name)
            entry = find(view.entries, name)
            memory = view.memories.get(entry.address) or Memory(
                state, view, (entry.address, entry.nbytes), name, entry.epoch
            )
    if entry.epoch != epoch:
        raise errors.StaleArrayError(f"the pickled array {name!r} is gone: another array has its name now")
    array = memory.array(shape, np.lib.format.descr_to_dtype(description), offset=offset, strides=strides)
    array.flags.writeable = writeable
    return array


def open_view(state: State, token: int, dram: int | None) -> ViewState:
    """Opens the state of a token, or returns it if it is open."""
    with state.lock:
        state.check()
        state.tidy()
        view = state.views.get(token)
        if view is None or view.ended is not None:
            view = ViewState(state, token, state.dram // 8 if dram is None else dram)
            state.views[token] = view
        return view
