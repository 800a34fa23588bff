//! What can go wrong, told so that the reader knows what to do.

use std::io;
use std::path::PathBuf;

use deepram_core::{Addr, AddrError, Bytes, Epoch, VolumeError};

use crate::format::FormatError;
use crate::process::ForkedChild;
use crate::region::WatchError;

/// Any failure of a pool operation. Unless an error says otherwise the pool stays usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A device failed.
    #[error("{device}: {operation} failed: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// What was being done.
        operation: &'static str,
        /// The device's own error.
        source: io::Error,
    },
    /// A device failed to give a segment.
    #[error("{device}: reading the segment at address {address} failed: {source}")]
    Unreadable {
        /// The device's name.
        device: String,
        /// Address of the segment in the pool.
        address: Addr,
        /// The device's own error.
        source: io::Error,
    },
    /// The file is no pool.
    #[error(
        "{device} is not a deepram pool: it does not start with the pool header (create one with `deepram pool create`)"
    )]
    NotAPool {
        /// The device's name.
        device: String,
    },
    /// Another version of deepram wrote the file.
    #[error(
        "{device} has pool format {found}, this deepram reads format {known}: open it with the deepram that made it"
    )]
    FutureVersion {
        /// The device's name.
        device: String,
        /// Version found.
        found: u32,
        /// Version known.
        known: u32,
    },
    /// The file is shorter than its header says.
    #[error("{device} is truncated: the pool needs {needed}, the device has {have}")]
    Truncated {
        /// The device's name.
        device: String,
        /// Bytes needed.
        needed: Bytes,
        /// Bytes there.
        have: Bytes,
    },
    /// A structure of the pool is damaged beyond what its second copy can mend.
    #[error("{device} is damaged: {what}: {source}")]
    DamagedPool {
        /// The device's name.
        device: String,
        /// What is damaged.
        what: &'static str,
        /// How it shows.
        source: FormatError,
    },
    /// A structure is intact but contradicts another.
    #[error("{device} is damaged: {what}")]
    Inconsistent {
        /// The device's name.
        device: String,
        /// What contradicts what.
        what: String,
    },
    /// A segment fails its checksum.
    #[error(
        "{device}: the segment at address {address} written in epoch {epoch} is damaged: its checksum does not match (page {page}, device offset {offset})"
    )]
    Damaged {
        /// The device's name.
        device: String,
        /// Address of the segment in the pool.
        address: Addr,
        /// Its page.
        page: u32,
        /// Epoch that wrote it.
        epoch: Epoch,
        /// Where on the device.
        offset: u64,
    },
    /// The devices do not belong together.
    #[error("the devices do not make up one pool: {0}")]
    Mismatch(String),
    /// The device is full of data that is needed.
    #[error(
        "{device} is full: {needed} are needed, {available} are available; free pages, drop tokens, or sync (which gives up the versions of older tokens)"
    )]
    NoSpace {
        /// The device's name.
        device: String,
        /// Bytes needed.
        needed: Bytes,
        /// Bytes available.
        available: Bytes,
    },
    /// A part of the log that was durable is damaged: tokens that were given out are lost.
    #[error(
        "{device}: batch {batch} of the log is damaged, which was durable: {}; token {kept} is the last that can be recovered: open the pool at it (`deepram pool check --repair` does), which gives up what came later",
        lost_tokens(*kept, *lost)
    )]
    LogDamaged {
        /// The device's name.
        device: String,
        /// Number of the damaged batch.
        batch: u64,
        /// The newest token found behind the damage.
        lost: Option<Epoch>,
        /// The last token before it.
        kept: Epoch,
    },
    /// A record of the line log that was durable is damaged: persisted bytes are lost.
    #[error(
        "{device}: record {record} of the line log is damaged, which was durable: the bytes that it and later records persisted since token {kept} are lost; open the pool at that token (`deepram pool check --repair` does), which keeps the records before it"
    )]
    LineLogDamaged {
        /// The device's name.
        device: String,
        /// Number of the damaged record.
        record: u64,
        /// The last token.
        kept: Epoch,
    },
    /// More lines were persisted since the last token than the line log holds.
    #[error(
        "{device}: the line log of {ring} is full, {lines} lines wait to be kept: sync, which puts all that was persisted into pages, or create the pool with more flash"
    )]
    LineLogFull {
        /// The device's name.
        device: String,
        /// Lines that are to be written.
        lines: u64,
        /// Bytes of the log.
        ring: Bytes,
    },
    /// A transaction does not fit into what is free of its log.
    #[error("the transaction log {name:?} is full: {needed} are needed, {free} are free; truncate it")]
    TransactionLogFull {
        /// The log's name.
        name: String,
        /// Bytes of slots needed.
        needed: Bytes,
        /// Bytes of free slots.
        free: Bytes,
    },
    /// No run of free pages is long enough.
    #[error(
        "no {needed} of contiguous address space is free on controller {controller}, which has {total} in all"
    )]
    NoAddressSpace {
        /// Bytes needed.
        needed: Bytes,
        /// The controller.
        controller: u32,
        /// Its size.
        total: Bytes,
    },
    /// Memory cannot be part of a persist region, or is not part of one.
    #[error("{address}: {problem}")]
    PersistRegion {
        /// The first address of which this holds.
        address: Addr,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
    /// The address is not in an allocated page.
    #[error("{address} is not in allocated memory of this pool")]
    NotAllocated {
        /// The address.
        address: Addr,
    },
    /// The page's permissions forbid the access.
    #[error("{address} may not be {what}: its page is {permissions}")]
    Permission {
        /// The address.
        address: Addr,
        /// "read" or "written".
        what: &'static str,
        /// What the page allows.
        permissions: &'static str,
    },
    /// The address leaves the pool.
    #[error(transparent)]
    Address(#[from] AddrError),
    /// The token's state is not there to return to.
    #[error("token {token} cannot be rolled back to: {why}")]
    Token {
        /// The token.
        token: Epoch,
        /// Whether it was reclaimed or never given.
        why: String,
    },
    /// Mapped access cannot be had.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The DRAM budget is too small.
    #[error(
        "a DRAM budget of {given} is too small for this pool: its tables and buffers take {tables}, the least is {least}"
    )]
    Budget {
        /// The budget.
        given: Bytes,
        /// What tables and buffers take.
        tables: Bytes,
        /// The least budget that works.
        least: Bytes,
    },
    /// An option has no meaning or contradicts another.
    #[error("{option}: {problem}")]
    Option {
        /// Which option.
        option: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A root's name is unknown, taken, or too long.
    #[error("root {name:?}: {problem}")]
    Root {
        /// The name.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The file exists already.
    #[error("{} exists already: a pool is created in a new file or on a block device", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A device holds something that would be lost.
    #[error(
        "{device} holds {what}, which a new pool would destroy: give another device, or ask for that (`--force`, CreateOptions::overwrite)"
    )]
    Holds {
        /// The device's name.
        device: String,
        /// What it holds, with an article.
        what: String,
    },
    /// A block device is in use.
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
    /// The pool's tables refused an operation.
    #[error("{device}: {source}")]
    Volume {
        /// The device's name.
        device: String,
        /// The refusal.
        source: VolumeError,
    },
    /// The pool was closed through another handle.
    #[error("the pool is closed")]
    Closed,
    /// The pool was opened by another process, from which this one was forked.
    #[error(transparent)]
    ForkedChild(#[from] ForkedChild),
    /// The pool cannot go on: see the message.
    #[error("the pool has stopped: {why}; close it and open it again: it is at its last token then")]
    Stopped {
        /// Why.
        why: String,
    },
    /// The pool was opened for reading only.
    #[error("the pool is open for reading only")]
    ReadOnly,
}

/// The result of a pool operation.
pub type Result<T> = std::result::Result<T, PoolError>;

fn lost_tokens(kept: Epoch, lost: Option<Epoch>) -> String {
    match lost {
        Some(lost) if lost.0 > kept.0 + 1 => format!("tokens {} to {lost} are lost", kept.0 + 1),
        Some(lost) if lost > kept => format!("token {lost} is lost"),
        _ => format!("what followed token {kept} is lost"),
    }
}
