"""PyTorch over pools: datasets whose batches are gathered, and checkpoints that write only what changed.

Not imported by ``import deepram``; it needs the package ``torch``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ._array import Array
from ._batch import Copied, gather, update
from ._pool import Pool

__all__ = ["Checkpoint", "Dataset", "tensor"]

#: Tensors of at most this many bytes share one array, because each array takes pages of 64 KiB.
SMALL = 4096
#: Version of the description of a checkpoint.
FORMAT = 1


def tensor(array: Array) -> torch.Tensor:
    """Returns a tensor over the memory of an array of a pool, without a copy.

    The tensor of a read-only array (of :meth:`deepram.Pool.at`) must not be stored to. After the pool is closed, an
    access raises shortly afterwards.
    """
    return torch.from_numpy(np.asarray(array))


class Dataset(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """A map-style dataset over arrays of a pool: an item is the row of each array, as tensors.

    ``torch.utils.data.DataLoader`` asks for the rows of a batch at once, which keeps many reads of the device in flight.
    Use ``num_workers=0``: processes that the loader forks have no access to the pool.

    Args:
        arrays: arrays of equal length along the first axis, such as features and targets.
        transform: is called with the tensors of an item, and returns the item.

    Raises:
        ValueError: the arrays differ in length, or there is none.
    """

    def __init__(self, *arrays: Array, transform: Callable[..., Any] | None = None) -> None:
        if not arrays or any(len(array) != len(arrays[0]) for array in arrays):
            lengths = [len(array) for array in arrays]
            raise ValueError(f"arrays: lengths {lengths}; give at least one array, all of the same length")
        self.arrays = arrays
        self.transform = transform

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Returns the items of a batch."""
        rows = [torch.from_numpy(gather(array, np.asarray(indices, np.int64))) for array in self.arrays]
        items = zip(*rows)
        if self.transform is not None:
            return [self.transform(*item) for item in items]
        return [item[0] if len(item) == 1 else item for item in items]


class Checkpoint:
    """Checkpoints of objects with a ``state_dict``, such as models and optimisers, in a pool.

    A checkpoint writes the segments (4 KiB) that differ from the one before, and is durable when :meth:`save` returns. The
    first one compares the state with that in the pool; the others compare digests (XXH3, 128 bits) of the segments, 16
    bytes each, which the object keeps in memory.

    The tokens are those of the pool: :meth:`deepram.Pool.rollback` and then :meth:`load` return to an earlier one.

    Args:
        pool: the pool; it must have room for the state.
        objects: the objects, by names of your choice: ``Checkpoint(pool, model=model, optimizer=optimizer)``.
        prefix: the arrays are named ``prefix/object/tensor``.

    Raises:
        TypeError: an object has no ``state_dict``.
    """

    def __init__(self, pool: Pool, *, prefix: str = "checkpoint", **objects: Any) -> None:
        for name, thing in objects.items():
            if not hasattr(thing, "state_dict") or not hasattr(thing, "load_state_dict"):
                raise TypeError(f"{name}: {type(thing).__name__} has no state_dict; give models, optimisers or schedulers")
        self.pool = pool
        self.prefix = prefix
        self.objects = objects
        self._copied: dict[str, Copied] = {}

    @property
    def exists(self) -> bool:
        """Whether the pool has a checkpoint."""
        return f"{self.prefix}/description" in self.pool

    def save(self, **values: Any) -> int:
        """Stores the state of all objects and returns the token.

        Args:
            values: numbers, texts and lists of them to keep beside it, such as ``step=100``; :meth:`load` returns them.

        Raises:
            TypeError: a state or a value cannot be stored.
            errors.NoSpaceError, errors.NoAddressSpaceError: the pool is full; the last checkpoint is intact.
        """
        writer = _Writer(self.pool, self.prefix, self._copied)
        states = {name: writer.describe(name, thing.state_dict()) for name, thing in self.objects.items()}
        description = {"format": FORMAT, "objects": states, "values": writer.describe("values", values)}
        writer.store_bytes("small", bytes(writer.small))
        writer.store_bytes("description", json.dumps(description).encode())
        token = self.pool.sync()
        for copied in self._copied.values():
            copied.synced(token)
        return token

    def load(self) -> dict[str, Any]:
        """Loads the state of the last checkpoint into all objects, and returns the values kept beside it.

        Raises:
            KeyError: the pool has no checkpoint, or none of one of the objects.
        """
        if not self.exists:
            raise KeyError(f"the pool has no checkpoint {self.prefix!r}")
        reader = _Reader(self.pool, self.prefix)
        description = json.loads(reader.load_bytes("description"))
        if description["format"] != FORMAT:
            raise ValueError(f"the checkpoint has format {description['format']}; this deepram reads {FORMAT}")
        for name, thing in self.objects.items():
            if name not in description["objects"]:
                there = ", ".join(description["objects"])
                raise KeyError(f"the checkpoint {self.prefix!r} has no object {name!r}; it has: {there}")
            thing.load_state_dict(reader.restore(description["objects"][name]))
        values: dict[str, Any] = reader.restore(description["values"])
        return values


def _bytes_of(value: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    flat = value.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)


class _Writer:
    """Stores tensors, and describes a state in terms that JSON has."""

    def __init__(self, pool: Pool, prefix: str, copied: dict[str, Copied]) -> None:
        self.pool = pool
        self.prefix = prefix
        self.copied = copied
        self.small = bytearray()

    def describe(self, path: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(path, value)
        if isinstance(value, dict):
            pairs = [[self.describe(path, key), self.describe(f"{path}/{key}", inner)] for key, inner in value.items()]
            return {"dict": pairs}
        if isinstance(value, (list, tuple)):
            inner = [self.describe(f"{path}/{at}", part) for at, part in enumerate(value)]
            return {"list" if isinstance(value, list) else "tuple": inner}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"value": value}
        raise TypeError(f"{path}: a {type(value).__name__} cannot be kept in a checkpoint; numbers, texts and tensors can")

    def _tensor(self, path: str, value: torch.Tensor) -> Any:
        elements = _bytes_of(value)
        described = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
        if len(elements) <= SMALL:
            described["small"] = [len(self.small), len(elements)]
            self.small += elements.tobytes()
        else:
            described["array"] = path
            self._store(path, elements)
        return {"tensor": described}

    def _store(self, path: str, elements: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        name = f"{self.prefix}/{path}"
        if name in self.pool and self.pool[name].shape != elements.shape:
            del self.pool[name]
        home = self.pool[name] if name in self.pool else self.pool.empty(elements.shape, np.uint8, name)
        self.copied.setdefault(path, Copied()).update(home, elements)

    def store_bytes(self, name: str, text: bytes) -> None:
        # The length comes first, so that a shorter text fits in the array of a longer one.
        need = len(text) + 8
        full = f"{self.prefix}/{name}"
        if full in self.pool and len(self.pool[full]) < need:
            del self.pool[full]
        if full not in self.pool:
            self.pool.zeros(2 * need, np.uint8, full)
        update(self.pool[full][:need], np.frombuffer(len(text).to_bytes(8, "little") + text, np.uint8))


class _Reader:
    """Restores a state from its description."""

    def __init__(self, pool: Pool, prefix: str) -> None:
        self.pool = pool
        self.prefix = prefix
        self.small = self.load_bytes("small")

    def load_bytes(self, name: str) -> bytes:
        array = self.pool[f"{self.prefix}/{name}"]
        length = int.from_bytes(array[:8].tobytes(), "little")
        return array[8 : 8 + length].tobytes()

    def restore(self, described: Any) -> Any:
        ((kind, value),) = described.items()
        if kind == "tensor":
            return self._tensor(value)
        if kind == "dict":
            return {self.restore(key): self.restore(inner) for key, inner in value}
        if kind in ("list", "tuple"):
            parts: Iterator[Any] = (self.restore(part) for part in value)
            return list(parts) if kind == "list" else tuple(parts)
        return value

    def _tensor(self, described: dict[str, Any]) -> torch.Tensor:
        if "array" in described:
            elements = np.array(self.pool[f"{self.prefix}/{described['array']}"], copy=True)
        else:
            start, length = described["small"]
            elements = np.frombuffer(self.small[start : start + length], np.uint8).copy()
        dtype = getattr(torch, described["dtype"])
        if elements.size == 0:
            return torch.empty(described["shape"], dtype=dtype)
        return torch.from_numpy(elements).view(dtype).reshape(described["shape"])
