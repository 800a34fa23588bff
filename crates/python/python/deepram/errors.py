"""Exceptions of the package.

Each error of a pool has a class of its own below :class:`PoolError`, named after the variant of ``PoolError`` in the
Rust crate ``deepram-pool``, and derives from the built-in exception that Python code expects for it. The message says
what was wrong, where, and what would be right.
"""

from __future__ import annotations


class DeepramError(Exception):
    """Base class of all exceptions of this package."""


class SimError(DeepramError, ValueError):
    """A simulation cannot run: its configuration or workload is invalid, or the simulated device is full."""


class TraceError(DeepramError, ValueError):
    """A trace or a workload cannot be read."""


class RunError(DeepramError, RuntimeError):
    """A program with paged memory cannot be started, or its child process ended without a result."""


class PoolError(DeepramError):
    """Base class of the errors of pools."""


class DeviceError(PoolError, OSError):
    """A device operation failed."""


class UnreadableError(PoolError, OSError):
    """A device could not read a segment."""


class NotAPoolError(PoolError, ValueError):
    """The file is not a pool."""


class FutureVersionError(PoolError, ValueError):
    """The pool has the format of another version of deepram."""


class TruncatedError(PoolError, OSError):
    """The file is shorter than the pool in it."""


class DamagedPoolError(PoolError, OSError):
    """A structure of the pool is damaged."""


class InconsistentError(PoolError, OSError):
    """Structures of the pool contradict each other."""


class DamagedError(PoolError, OSError):
    """A segment fails its checksum; damaged bytes are never returned as data."""


class MismatchError(PoolError, ValueError):
    """The files are not the complete set of files of one pool."""


class NoSpaceError(PoolError, OSError):
    """The live data and the kept tokens fill the device."""


class LogDamagedError(PoolError, OSError):
    """A durable part of the log is damaged: tokens are lost."""


class LineLogDamagedError(PoolError, OSError):
    """A durable record of the line log is damaged."""


class LineLogFullError(PoolError, OSError):
    """More lines were persisted since the last token than the line log can hold."""


class TransactionLogFullError(PoolError, OSError):
    """A transaction does not fit into its log."""


class NoAddressSpaceError(PoolError, MemoryError):
    """The pool has no free memory of this size left."""


class PersistRegionError(PoolError, ValueError):
    """The memory is, or is not, part of a persist region."""


class NotAllocatedError(PoolError, LookupError):
    """The address is outside of allocated memory."""


class PermissionError(PoolError, OSError):  # noqa: A001  (named after the variant)
    """The permissions of the page forbid the access."""


class AddressError(PoolError, ValueError):
    """The address range leaves the pool."""


class TokenError(PoolError, LookupError):
    """The state of a token is not available: it never existed, or it was given up."""

    def __init__(self, message: str = "memory of a token was accessed that cannot be read") -> None:
        super().__init__(message)


class WatchError(PoolError, OSError):
    """The pool cannot be mapped."""


class BudgetError(PoolError, ValueError):
    """The DRAM budget is too small."""


class OptionError(PoolError, ValueError):
    """An option is out of range or contradicts another option."""


class RootError(PoolError, LookupError):
    """The name of a root is unknown, taken or invalid."""


class ExistsError(PoolError, FileExistsError):
    """The file exists already."""


class HoldsError(PoolError, FileExistsError):
    """A new pool would destroy the content of the device."""


class InUseError(PoolError, OSError):
    """The block device is in use."""


class BusyError(PoolError, BlockingIOError):
    """Another process, or another object of this process, has the pool open."""


class VolumeError(PoolError, ValueError):
    """The pool's tables refused the operation."""


class MemoryError_(PoolError, ValueError):
    """The file cannot be a memory controller (the variant ``Memory``)."""


class InPlaceError(PoolError, ValueError):
    """Memory whose stores are made in place cannot do what journaled memory can."""


class FlushMethodError(PoolError, ValueError):
    """The processor lacks the flush method of the options."""


class DirtyPagesError(PoolError, OSError):
    """Dirty pages cannot be found."""


class ClosedError(PoolError, ValueError):
    """The pool is closed; raised by its methods, and by every use of an array whose memory was in it."""

    def __init__(self, message: str = "the memory of an array was accessed whose pool is closed") -> None:
        super().__init__(message)


class ForkedChildError(PoolError, RuntimeError):
    """The pool was opened by a process that this process was forked from."""

    def __init__(
        self, message: str = "the memory of a pool was accessed that the parent process has open, not this one"
    ) -> None:
        super().__init__(message)


class StoppedError(PoolError, RuntimeError):
    """The pool has stopped for the reason in the message; close it and open it again."""


class ReadOnlyError(PoolError, OSError):
    """The pool is open for reading only."""


class StaleArrayError(PoolError, ValueError):
    """The array does not exist any more: a rollback went to a token from before the array was made."""

    def __init__(self, message: str = "the memory of an array was accessed that a rollback has removed") -> None:
        super().__init__(message)
