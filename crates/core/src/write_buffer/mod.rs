//! Policies of a drive's write buffer: which pages a full buffer evicts. One file a policy, behind one
//! trait, [`WriteBuffer`].
//!
//! | policy | reads | victim |
//! |---|---|---|
//! | [`Lru`] | option | the least recently used page |
//! | [`Cflru`] | kept | the least recently used clean page of a window at the old end, or else the oldest page |
//! | [`LruWsr`] | kept | as LRU, but a dirty page that was used since its last chance gets another |
//! | [`CcfLru`] | kept | clean pages used once, then pages that lost their second chance |
//! | [`Fab`] | kept | all pages of the erase block that has the most pages in the buffer |
//! | [`Bplru`] | not kept | all pages of the least recently written erase block, padded to the whole block |
//!
//! A policy is a pure state machine. The driver reports each page that the host writes or reads, performs
//! the flash operations of the [`Evicted`] pages, and keeps the data. [`PageBuffer`] is the buffer of the
//! policies that evict single pages, [`BlockBuffer`] of those that evict erase blocks; a policy's own file
//! holds only its decisions. [`SectorBuffer`] adds the valid sectors of each page.
//!
//! The erase blocks are logical: page `n` belongs to block `n / pages_per_block`. A page-mapped drive
//! programs the pages of one logical block anywhere; the policies that evict blocks were made for drives
//! that map blocks.

use alloc::vec::Vec;

mod block_buffer;
mod page_buffer;
mod sector_buffer;

pub mod bplru;
pub mod ccf_lru;
pub mod cflru;
pub mod fab;
pub mod lru;
pub mod lru_wsr;
pub mod policy;

pub use block_buffer::{BlockBuffer, BlockPolicy};
pub use bplru::Bplru;
pub use ccf_lru::CcfLru;
pub use cflru::Cflru;
pub use fab::Fab;
pub use lru::Lru;
pub use lru_wsr::LruWsr;
pub use page_buffer::{PageBuffer, PagePolicy};
pub use policy::WriteBufferPolicy;
pub use sector_buffer::SectorBuffer;

/// The sizes and options of a write buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteBufferOptions {
    /// The largest number of pages in the buffer; 0 counts as 1.
    pub capacity_pages: usize,
    /// Pages of an erase block; 0 counts as 1. Used by [`Fab`] and [`Bplru`].
    pub pages_per_block: u32,
    /// True if a page that is read from flash enters the buffer; `None`: as the policy's publication says.
    pub keep_reads: Option<bool>,
    /// [`Cflru`]: pages of the clean-first window, at most the capacity; `None`: half of the capacity.
    pub clean_first_pages: Option<usize>,
    /// [`Bplru`]: whether a victim is padded to the whole block.
    pub padding: bool,
}

impl WriteBufferOptions {
    /// A buffer of `capacity_pages` pages in front of blocks of `pages_per_block` pages, with the options of
    /// each policy's publication.
    #[must_use]
    pub fn new(capacity_pages: usize, pages_per_block: u32) -> Self {
        Self { capacity_pages, pages_per_block, keep_reads: None, clean_first_pages: None, padding: true }
    }
}

/// The outcome of [`WriteBuffer::write`] and [`WriteBuffer::read`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferAccess {
    /// The page was in the buffer.
    Hit,
    /// The page was not in the buffer and is now. A page that was read is clean: the driver reads it from
    /// flash and stores it in the buffer.
    Filled,
    /// The page that was read is not in the buffer and does not enter it: the driver reads it from flash.
    Bypassed,
}

/// The state of a page in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// Flash has the same data.
    Clean,
    /// Only the buffer has the newest data.
    Dirty,
}

/// Pages that left the buffer, in the order of departure; pages of one victim block ascend.
///
/// The buffer appends; the driver clears the lists when it has started the work ([`Evicted::clear`]).
/// Flash writes are `writes.len() + padding.len()`, flash reads for padding `padding.len()`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Pages to write to flash from the buffer.
    pub writes: Vec<u64>,
    /// Pages that were not in the buffer: to be read from flash and written there again, together with the
    /// other pages of their block.
    pub padding: Vec<u64>,
    /// Clean pages that left without a flash operation.
    pub dropped: Vec<u64>,
}

impl Evicted {
    /// Empties the lists and keeps their memory.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.padding.clear();
        self.dropped.clear();
    }

    /// True if no page left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.padding.is_empty() && self.dropped.is_empty()
    }
}

/// A write buffer of a drive under one policy. Pages are logical page numbers.
///
/// [`WriteBuffer::write`] and [`WriteBuffer::read`] make room first: if the buffer is full and the page is
/// to enter it, the victim is appended to `evicted`. The page itself is then in the buffer.
///
/// A buffer allocates memory up to its capacity, and takes O(log capacity) time for an access, averaged over
/// the accesses; the time of an eviction also grows with the number of evicted pages.
pub trait WriteBuffer {
    /// Records that the host writes the page. The page is dirty afterwards. Never [`BufferAccess::Bypassed`].
    fn write(&mut self, page: u64, evicted: &mut Evicted) -> BufferAccess;

    /// Records that the host reads the page.
    fn read(&mut self, page: u64, evicted: &mut Evicted) -> BufferAccess;

    /// Evicts one victim, a page or a block's pages; nothing if the buffer is empty.
    fn evict(&mut self, evicted: &mut Evicted);

    /// Removes a page whose data are no longer needed (a trim); returns its state before.
    fn discard(&mut self, page: u64) -> Option<PageState>;

    /// The state of a page; `None` if it is not in the buffer.
    fn state(&self, page: u64) -> Option<PageState>;

    /// Number of pages in the buffer.
    fn len(&self) -> usize;

    /// Number of dirty pages in the buffer.
    fn dirty_len(&self) -> usize;

    /// The largest number of pages in the buffer.
    fn capacity(&self) -> usize;

    /// Memory of the buffer's tables, in bytes.
    fn memory_bytes(&self) -> usize;

    /// True if the buffer has no page.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
