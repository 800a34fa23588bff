//! The status codes.

use std::ffi::{CStr, c_char};

use deepram_pool::PoolError;

/// The outcome of a call. The numbers are stable.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The call has done its work.
    Ok = 0,
    /// An argument is invalid: a null pointer, a text that is not UTF-8, an option out of range.
    InvalidArgument = 1,
    /// A device or file operation failed.
    Io = 2,
    /// The file is no pool.
    NotAPool = 3,
    /// The pool has the format of another version of deepram.
    Version = 4,
    /// The device is shorter than the pool.
    Truncated = 5,
    /// The pool, or the data that were asked for, are damaged.
    Damaged = 6,
    /// The devices are not all devices of one pool.
    Mismatch = 7,
    /// The device is full.
    NoSpace = 8,
    /// The line log or a transaction log is full: sync, or truncate the log.
    LogFull = 9,
    /// No range of free addresses is long enough.
    NoAddressSpace = 10,
    /// The memory is not part of a persist region, or cannot become one.
    PersistRegion = 11,
    /// The address is not in allocated memory.
    NotAllocated = 12,
    /// The permissions of the memory forbid the access.
    Permission = 13,
    /// The address range leaves the pool.
    Address = 14,
    /// The pool has no state for this token.
    Token = 15,
    /// The pool cannot be mapped, or was opened without mapping.
    NotMapped = 16,
    /// The DRAM budget is too small.
    Budget = 17,
    /// The name of a root is unknown or invalid.
    Root = 18,
    /// The file exists already.
    Exists = 19,
    /// A new pool would destroy what the device holds.
    Holds = 20,
    /// The pool is open in another process, or the device is in use.
    Busy = 21,
    /// A memory controller cannot do this.
    InPlace = 22,
    /// The pool is closed.
    Closed = 23,
    /// The pool was opened by the process from which this one was forked.
    ForkedChild = 24,
    /// The pool has stopped; open it again.
    Stopped = 25,
    /// The pool is open for reading only.
    ReadOnly = 26,
    /// The buffer is too small for all results; the number of results is returned.
    BufferTooSmall = 27,
    /// deepram has a defect: a panic was stopped. Close the pool, and report the message.
    Panic = 28,
    /// An error without a code of its own; its message explains it.
    Other = 29,
}

impl Status {
    /// All codes with their names.
    const NAMES: [(Status, &'static CStr); 30] = [
        (Status::Ok, c"ok"),
        (Status::InvalidArgument, c"invalid argument"),
        (Status::Io, c"input or output failed"),
        (Status::NotAPool, c"not a pool"),
        (Status::Version, c"another format version"),
        (Status::Truncated, c"truncated"),
        (Status::Damaged, c"damaged"),
        (Status::Mismatch, c"devices do not match"),
        (Status::NoSpace, c"no space"),
        (Status::LogFull, c"log full"),
        (Status::NoAddressSpace, c"no address space"),
        (Status::PersistRegion, c"not a persist region"),
        (Status::NotAllocated, c"not allocated"),
        (Status::Permission, c"not permitted"),
        (Status::Address, c"address outside the pool"),
        (Status::Token, c"token not available"),
        (Status::NotMapped, c"not mapped"),
        (Status::Budget, c"DRAM budget too small"),
        (Status::Root, c"no such root"),
        (Status::Exists, c"exists already"),
        (Status::Holds, c"would be overwritten"),
        (Status::Busy, c"in use"),
        (Status::InPlace, c"not on a memory controller"),
        (Status::Closed, c"closed"),
        (Status::ForkedChild, c"forked child"),
        (Status::Stopped, c"stopped"),
        (Status::ReadOnly, c"read only"),
        (Status::BufferTooSmall, c"buffer too small"),
        (Status::Panic, c"panic"),
        (Status::Other, c"other error"),
    ];

    /// The code of an error of a pool.
    pub(crate) fn of(error: &PoolError) -> Self {
        match error {
            PoolError::Device { .. } | PoolError::Unreadable { .. } => Status::Io,
            PoolError::NotAPool { .. } => Status::NotAPool,
            PoolError::FutureVersion { .. } => Status::Version,
            PoolError::Truncated { .. } => Status::Truncated,
            PoolError::DamagedPool { .. }
            | PoolError::Inconsistent { .. }
            | PoolError::Damaged { .. }
            | PoolError::LogDamaged { .. }
            | PoolError::LineLogDamaged { .. } => Status::Damaged,
            PoolError::Mismatch(_) => Status::Mismatch,
            PoolError::NoSpace { .. } => Status::NoSpace,
            PoolError::LineLogFull { .. } | PoolError::TransactionLogFull { .. } => Status::LogFull,
            PoolError::NoAddressSpace { .. } => Status::NoAddressSpace,
            PoolError::PersistRegion { .. } => Status::PersistRegion,
            PoolError::NotAllocated { .. } => Status::NotAllocated,
            PoolError::Permission { .. } => Status::Permission,
            PoolError::Address(_) => Status::Address,
            PoolError::Token { .. } => Status::Token,
            PoolError::Watch(_) => Status::NotMapped,
            PoolError::Budget { .. } => Status::Budget,
            PoolError::Option { .. } => Status::InvalidArgument,
            PoolError::Root { .. } => Status::Root,
            PoolError::Exists { .. } => Status::Exists,
            PoolError::Holds { .. } => Status::Holds,
            PoolError::InUse { .. } | PoolError::Busy { .. } => Status::Busy,
            PoolError::Memory { .. }
            | PoolError::InPlace { .. }
            | PoolError::FlushMethod(_)
            | PoolError::DirtyPages(_) => Status::InPlace,
            PoolError::Closed => Status::Closed,
            PoolError::ForkedChild(_) => Status::ForkedChild,
            PoolError::Stopped { .. } => Status::Stopped,
            PoolError::ReadOnly => Status::ReadOnly,
            _ => Status::Other,
        }
    }
}

/// Returns the name of a status in a few words; "unknown status" for a number without a name. The text is static.
#[unsafe(no_mangle)]
pub extern "C" fn deepram_status_name(status: i32) -> *const c_char {
    let found = Status::NAMES.iter().find(|(code, _)| *code as i32 == status);
    found.map_or(c"unknown status", |(_, name)| *name).as_ptr()
}
