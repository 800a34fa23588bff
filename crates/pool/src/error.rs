//! Errors of pool operations. Each message says what was wrong, where, and what to do about it.

use std::io;
use std::path::PathBuf;

use deepram_core::{Addr, AddrError, Bytes, Epoch, VolumeError};

use crate::format::FormatError;
use crate::process::ForkedChild;
use crate::region::WatchError;

/// Failure of a pool operation. The pool stays usable unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A device operation failed.
    #[error("{device}: {operation} failed: {source}")]
    Device {
        /// Name of the device.
        device: String,
        /// The operation.
        operation: &'static str,
        /// Error of the device.
        source: io::Error,
    },
    /// A device could not read a segment.
    #[error("{device}: reading the segment at address {address} failed: {source}")]
    Unreadable {
        /// Name of the device.
        device: String,
        /// Address of the segment in the pool.
        address: Addr,
        /// Error of the device.
        source: io::Error,
    },
    /// The file does not start with the header of a pool.
    #[error(
        "{device} is not a deepram pool: it does not start with the pool header (create one with `deepram pool create`)"
    )]
    NotAPool {
        /// Name of the device.
        device: String,
    },
    /// The pool has the format of another version of deepram.
    #[error(
        "{device} has pool format {found}, but this deepram reads format {known}: open the pool with the deepram that made it"
    )]
    FutureVersion {
        /// Name of the device.
        device: String,
        /// Format version of the pool.
        found: u32,
        /// Format version that this library reads.
        known: u32,
    },
    /// The device is shorter than the pool's header says.
    #[error("{device} is truncated: the pool needs {needed}, but the device has {have}")]
    Truncated {
        /// Name of the device.
        device: String,
        /// Bytes that the pool needs.
        needed: Bytes,
        /// Bytes that the device has.
        have: Bytes,
    },
    /// A structure of the pool is damaged, and its second copy is too, or it has none.
    #[error("{device} is damaged: {what}: {source}")]
    DamagedPool {
        /// Name of the device.
        device: String,
        /// The damaged structure.
        what: &'static str,
        /// How the damage shows.
        source: FormatError,
    },
    /// A structure passes its checksum but contradicts another structure.
    #[error("{device} is damaged: {what}")]
    Inconsistent {
        /// Name of the device.
        device: String,
        /// The contradiction.
        what: String,
    },
    /// A segment fails its checksum.
    #[error(
        "{device}: the segment at address {address} written in epoch {epoch} is damaged: its checksum does not match (page {page}, device offset {offset})"
    )]
    Damaged {
        /// Name of the device.
        device: String,
        /// Address of the segment in the pool.
        address: Addr,
        /// Page of the segment.
        page: u32,
        /// Epoch in which the segment was written.
        epoch: Epoch,
        /// Offset of the segment on the device, in bytes.
        offset: u64,
    },
    /// The devices are not the complete set of devices of one pool.
    #[error("the devices do not make up one pool: {0}")]
    Mismatch(String),
    /// The live data and the kept tokens fill the device.
    #[error(
        "{device} is full: {needed} are needed, {available} are available; free pages, drop tokens, or sync, which gives up the versions of older tokens"
    )]
    NoSpace {
        /// Name of the device.
        device: String,
        /// Bytes needed.
        needed: Bytes,
        /// Bytes available.
        available: Bytes,
    },
    /// A durable part of the log is damaged: tokens that syncs returned are lost.
    #[error(
        "{device}: batch {batch} of the log is damaged although it was durable: {}; the last token that can be recovered is {kept}: open the pool at this token (`deepram pool check --repair` does that), which discards everything after it",
        lost_tokens(*kept, *lost)
    )]
    LogDamaged {
        /// Name of the device.
        device: String,
        /// Number of the damaged batch.
        batch: u64,
        /// The newest token found after the damage.
        lost: Option<Epoch>,
        /// The last token before the damage.
        kept: Epoch,
    },
    /// A durable record of the line log is damaged: persisted bytes are lost.
    #[error(
        "{device}: record {record} of the line log is damaged although it was durable: the bytes that this and later records persisted since token {kept} are lost; open the pool at that token (`deepram pool check --repair` does that), which keeps the earlier records"
    )]
    LineLogDamaged {
        /// Name of the device.
        device: String,
        /// Number of the damaged record.
        record: u64,
        /// The last token.
        kept: Epoch,
    },
    /// More lines were persisted since the last token than the line log can hold.
    #[error(
        "{device}: the line log of {ring} is full, and {lines} lines wait to be written: sync, which moves all persisted bytes into pages, or create the pool with more flash"
    )]
    LineLogFull {
        /// Name of the device.
        device: String,
        /// Lines that wait to be written.
        lines: u64,
        /// Size of the line log.
        ring: Bytes,
    },
    /// A transaction does not fit into the free slots of its log.
    #[error("the transaction log {name:?} is full: {needed} are needed, {free} are free; truncate it")]
    TransactionLogFull {
        /// Name of the transaction log.
        name: String,
        /// Bytes of slots that the transaction needs.
        needed: Bytes,
        /// Bytes of free slots.
        free: Bytes,
    },
    /// No contiguous range of free pages is long enough.
    #[error("controller {controller} has no {needed} of contiguous free address space ({total} in total)")]
    NoAddressSpace {
        /// Bytes needed.
        needed: Bytes,
        /// Number of the controller.
        controller: u32,
        /// Virtual memory of the controller.
        total: Bytes,
    },
    /// The memory cannot become part of a persist region, or is not part of one.
    #[error("{address}: {problem}")]
    PersistRegion {
        /// The first such address.
        address: Addr,
        /// The problem and the remedy.
        problem: &'static str,
    },
    /// The address is outside allocated memory.
    #[error("{address} is not in allocated memory of this pool")]
    NotAllocated {
        /// The address.
        address: Addr,
    },
    /// The permissions of the page forbid the access.
    #[error("{address} cannot be {what}: its page is {permissions}")]
    Permission {
        /// The address.
        address: Addr,
        /// "read" or "written".
        what: &'static str,
        /// The permissions of the page.
        permissions: &'static str,
    },
    /// The address range leaves the pool.
    #[error(transparent)]
    Address(#[from] AddrError),
    /// The pool has no state for this token.
    #[error("the state of token {token} is not available: {why}")]
    Token {
        /// The token.
        token: Epoch,
        /// Whether the token was reclaimed or never existed.
        why: String,
    },
    /// The pool cannot be mapped.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The DRAM budget is too small.
    #[error(
        "a DRAM budget of {given} is too small for this pool: its tables and buffers take {tables}, and the least budget is {least}"
    )]
    Budget {
        /// The budget.
        given: Bytes,
        /// Bytes that tables and buffers take.
        tables: Bytes,
        /// The smallest budget that works.
        least: Bytes,
    },
    /// An option is out of range or contradicts another option.
    #[error("{option}: {problem}")]
    Option {
        /// Name of the option.
        option: &'static str,
        /// The problem and the remedy.
        problem: String,
    },
    /// The name of a root is unknown, taken or invalid.
    #[error("root {name:?}: {problem}")]
    Root {
        /// The name.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// The file exists already.
    #[error("{} exists already: a pool is created in a new file or on a block device", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A new pool would destroy the content of the device.
    #[error(
        "{device} holds {what}, which a new pool would destroy: choose another device, or allow the overwrite (`--force`, CreateOptions::overwrite)"
    )]
    Holds {
        /// Name of the device.
        device: String,
        /// The content, with its article.
        what: String,
    },
    /// The block device is in use.
    #[error(
        "{} is in use: it is mounted, part of a volume or RAID, used for swapping, or open as a pool", path.display()
    )]
    InUse {
        /// The block device.
        path: PathBuf,
    },
    /// Another process has the pool open.
    #[error("{} is open as a pool in another process", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The pool's tables refused the operation.
    #[error("{device}: {source}")]
    Volume {
        /// Name of the device.
        device: String,
        /// Error of the tables.
        source: VolumeError,
    },
    /// The file cannot be a memory controller.
    #[error("{device} cannot be a memory controller: {problem}")]
    Memory {
        /// Name of the file.
        device: String,
        /// The problem and the remedy.
        problem: String,
    },
    /// Memory whose stores are made in place cannot do what journaled memory can.
    #[error("{address} is on a memory controller, whose stores are made in place: {problem}")]
    InPlace {
        /// The address.
        address: Addr,
        /// What cannot be done, and the remedy.
        problem: &'static str,
    },
    /// The processor lacks the flush method of the options.
    #[error(transparent)]
    FlushMethod(#[from] deepram_linux::flush::NotAvailable),
    /// Dirty pages cannot be found.
    #[error(transparent)]
    DirtyPages(#[from] deepram_linux::dirty::DirtyError),
    /// The pool is closed.
    #[error("the pool is closed")]
    Closed,
    /// The pool was opened by a process that this process was forked from.
    #[error(transparent)]
    ForkedChild(#[from] ForkedChild),
    /// The pool has stopped for the reason in the message: its state in memory is not known to be right, or page
    /// faults cannot be handled.
    #[error("the pool has stopped: {why}; close it and open it again, which returns to its last token")]
    Stopped {
        /// The reason.
        why: String,
    },
    /// The pool is open for reading only.
    #[error("the pool is open for reading only")]
    ReadOnly,
}

/// Result of a pool operation.
pub type Result<T> = std::result::Result<T, PoolError>;

fn lost_tokens(kept: Epoch, lost: Option<Epoch>) -> String {
    match lost {
        Some(lost) if lost.0 > kept.0 + 1 => format!("tokens {} to {lost} are lost", kept.0 + 1),
        Some(lost) if lost > kept => format!("token {lost} is lost"),
        _ => format!("everything after token {kept} is lost"),
    }
}
