"""The catalogue of a pool's arrays: names, shapes, dtypes and places, kept in the pool itself.

The catalogue is a JSON text in memory of the pool, behind the root ``deepram.arrays``. A sync makes it durable together
with the elements of the arrays, and a rollback returns both.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from . import errors
from ._native import NativePool

#: The root of the catalogue.
ROOT = "deepram.arrays"
#: Version of the catalogue's text.
FORMAT = 1
#: Bytes before the text: its length.
HEADER = 8


@dataclass(frozen=True)
class Entry:
    """One array with a name."""

    name: str
    #: Pool address of the first element.
    address: int
    #: Bytes of all elements together.
    nbytes: int
    dtype: Any
    shape: tuple[int, ...]
    #: Memory layout: "C" or "F".
    order: Literal["C", "F"]
    #: The epoch in which the array was made: it is in the state of this token and of later ones.
    epoch: int

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return dtype_from(self.dtype)

    def is_same(self, other: Entry | None) -> bool:
        """Whether both are the same array, at different tokens."""
        return other is not None and (self.address, self.epoch) == (other.address, other.epoch)


def dtype_from(description: Any) -> np.dtype[Any]:
    """Returns the dtype of a description in JSON, where tuples have become lists."""

    def tuples(part: Any) -> Any:
        if not isinstance(part, list):
            return part
        return [
            tuple([field[0], tuples(field[1]), *[tuple(shape) for shape in field[2:]]])
            if isinstance(field, list)
            else field
            for field in part
        ]

    return np.lib.format.descr_to_dtype(tuples(description))


def describe(dtype: np.dtype[Any]) -> Any:
    """Returns a description of a dtype that JSON can hold.

    Raises:
        TypeError: the dtype holds Python objects, or has no description.
    """
    if dtype.hasobject:
        raise TypeError(
            f"dtype {dtype} holds Python objects, which live in this process alone: use numbers, fixed strings or "
            "structures"
        )
    description = np.lib.format.dtype_to_descr(dtype)
    if dtype_from(json.loads(json.dumps(description))) != dtype:
        raise TypeError(f"dtype {dtype} cannot be described in the pool: use numbers, fixed strings or structures")
    return description


def read(native: NativePool, token: int | None = None) -> dict[str, Entry]:
    """Reads the catalogue, now or as it was at a token."""
    roots = native.roots() if token is None else native.roots_at(token)
    found = [(address, length) for name, address, length in roots if name == ROOT]
    if not found:
        return {}
    address, capacity = found[0]

    def get(at: int, length: int) -> bytes:
        return native.read(at, length) if token is None else native.read_at(token, at, length)

    length = int.from_bytes(get(address, HEADER), "little")
    if length > capacity - HEADER:
        raise errors.InconsistentError(f"the pool's catalogue of arrays claims {length} bytes of {capacity}")
    catalogue = json.loads(get(address + HEADER, length) or b"{}")
    if catalogue.get("format", FORMAT) != FORMAT:
        raise errors.FutureVersionError(
            f"the pool's catalogue of arrays has format {catalogue['format']}, this deepram reads {FORMAT}: "
            "open the pool with the deepram that made it"
        )
    entries = [Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in catalogue.get("arrays", [])]
    return {entry.name: entry for entry in entries}


def write(native: NativePool, entries: dict[str, Entry]) -> None:
    """Writes the catalogue; it is durable at the next sync."""
    catalogue = {"format": FORMAT, "arrays": [asdict(entry) for entry in entries.values()]}
    text = json.dumps(catalogue).encode()
    found = [(address, length) for name, address, length in native.roots() if name == ROOT]
    address, capacity = found[0] if found else (0, 0)
    if capacity < HEADER + len(text):
        old, capacity = (address, capacity), 2 * (HEADER + len(text))
        capacity = -(-capacity // 65536) * 65536
        address = native.alloc(capacity, True)
        native.set_root(ROOT, address, capacity)
        if found:
            native.free(*old)
    native.write(address, len(text).to_bytes(HEADER, "little") + text)
