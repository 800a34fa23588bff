"""Arrays over the memory of a pool, and what becomes of them when that memory is gone."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import errors

if TYPE_CHECKING:
    from ._memory import Memory

#: NumPy 1 does not say when a result is a scalar.
_NUMPY_1 = np.__version__.startswith("1.")


class Array(np.ndarray):
    """A ``numpy.ndarray`` whose elements are in a pool: no copy, no limit by DRAM.

    :meth:`Pool.zeros` and its relatives make such arrays, and slices and other views of them are of this class. It is
    NumPy's own class in all operations; results of arithmetic are plain ``numpy.ndarray`` in ordinary memory.

    When the pool is closed, or rolled back to a token from before the array was made, the array and its views become
    :class:`StaleArray`, and every use raises. An array keeps its pool open as long as nobody closes it.

    Pickling an array that has a name, or a view of it, stores where it is and not its elements: unpickling opens the
    pool again where it is not open. An array without a name is pickled by value.
    """

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:
            return array
        if return_scalar or (_NUMPY_1 and array.shape == ()):
            return array[()]
        return array.view(np.ndarray) if isinstance(array, Array) else array

    def __reduce_ex__(self, protocol: Any) -> Any:
        reference = _reference(self)
        if reference is not None:
            return reference
        return np.asarray(self).__reduce_ex__(protocol)

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)


def memory_of(array: Any) -> Memory | None:
    """Returns the pool memory that an array views, or ``None`` if it views none."""
    from ._memory import Memory

    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, Memory) else None


def span_of(array: np.ndarray, memory: Memory) -> tuple[int, int]:
    """Returns the bytes of its memory that an array covers, as (first, end)."""
    first = end = array.__array_interface__["data"][0]
    if array.size == 0:
        return first - memory.pointer, first - memory.pointer
    for length, stride in zip(array.shape, array.strides):
        if stride < 0:
            first += (length - 1) * stride
        else:
            end += (length - 1) * stride
    return first - memory.pointer, end + array.itemsize - memory.pointer


def _reference(array: Array) -> Any:
    memory = memory_of(array)
    if memory is None or memory.name is None:
        return None
    from ._memory import restore

    offset = array.__array_interface__["data"][0] - memory.pointer
    dtype = np.lib.format.dtype_to_descr(array.dtype)
    where = (memory.state.paths, memory.state.dram, memory.token, memory.name, memory.epoch)
    return restore, (*where, dtype, offset, array.shape, array.strides, bool(array.flags.writeable))


class StaleArray(Array):
    """An array whose memory is gone: its pool is closed, or a rollback has removed it. Every use raises."""

    _problem: tuple[type[errors.PoolError], str]

    def __array_finalize__(self, other: Any) -> None:
        if type(other) is StaleArray:
            other._raise()

    def _raise(self, *_: Any, **__: Any) -> NoReturn:
        kind, message = self.__dict__.get("_problem", (errors.ClosedError, "the pool of the array is closed"))
        raise kind(message)

    def __repr__(self) -> str:
        kind, message = self.__dict__.get("_problem", (errors.ClosedError, "the pool of the array is closed"))
        return f"<stale deepram array: {message}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __array_ufunc__(self, *_: Any, **__: Any) -> NoReturn:
        self._raise()

    def __array_function__(self, *_: Any, **__: Any) -> NoReturn:
        self._raise()

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._raise()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self._raise()


#: Attributes that do not touch the elements.
_HARMLESS = {
    "base", "ctypes", "data", "device", "dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides",
}  # fmt: skip


def _seal() -> None:
    """Replaces everything in which ``numpy.ndarray`` touches elements by a method that raises."""

    def method(name: str) -> Any:
        def use(self: StaleArray, *_: Any, **__: Any) -> NoReturn:
            self._raise()

        use.__name__ = name
        return use

    kept = {
        "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class__", "__getattribute__", "__setattr__",
        "__delattr__", "__doc__", "__dir__", "__sizeof__", "__hash__", "__class_getitem__", "__array_finalize__",
        "__array_priority__", "__repr__", "__str__", "__format__", "__array_interface__", "__array_struct__",
        "__getstate__", "__reduce__",
    }  # fmt: skip
    for name, attribute in vars(np.ndarray).items():
        if name in kept or name in _HARMLESS or name in vars(StaleArray):
            continue
        if callable(attribute):
            setattr(StaleArray, name, method(name))
        else:
            setattr(StaleArray, name, property(method(name)))


_seal()


def make_stale(ranges: list[tuple[int, int]], kind: type[errors.PoolError], message: str) -> int:
    """Turns the arrays whose elements are in these address ranges (first, end) into stale ones; returns their number.

    The arrays need no register: every array of a Python class is known to the garbage collector.
    """
    found = 0
    for thing in gc.get_objects():
        if type(thing) is Array:
            pointer = thing.__array_interface__["data"][0]
            if any(first <= pointer < end for first, end in ranges):
                thing.__class__ = StaleArray
                vars(thing)["_problem"] = (kind, message)
                found += 1
    return found
