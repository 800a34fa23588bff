//! A write buffer under any [`WriteBuffer`] policy, at the place of a buffer of one memory, DRAM: adds the
//! valid sectors of the pages, and answers with the actions of the
//! [hybrid buffer](crate::hybrid_buffer).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{BufferAccess, Evicted, WriteBuffer};
use crate::hybrid_buffer::{BufferAction, BufferRead, BufferWrite, Memory};

/// The buffer; see the module.
///
/// 1. A clean page is whole. A dirty page of which not all sectors are valid stays so until it leaves or the
///    host has written the rest; if the host reads the rest, it comes from flash and is not kept.
/// 2. An eviction of an erase block appends several actions; so can a read, if its page enters the buffer.
pub struct SectorBuffer {
    pages: Box<dyn WriteBuffer + Send>,
    /// Valid sectors of each page that is not whole.
    partial: BTreeMap<u64, u32>,
    /// Number of the sectors that are not valid, of all those pages.
    missing: u64,
    /// The sectors of a whole page.
    full: u32,
    fetch_on_write: bool,
    evicted: Evicted,
}

impl SectorBuffer {
    /// A buffer of pages of `page_sectors` sectors (1 to 32) under the policy of `pages`. With
    /// `fetch_on_write` a write of a part of a page that is not in the buffer fetches the rest from flash.
    #[must_use]
    pub fn new(pages: Box<dyn WriteBuffer + Send>, page_sectors: u32, fetch_on_write: bool) -> Self {
        let full = u32::MAX >> (32 - page_sectors.clamp(1, 32));
        let evicted = Evicted::default();
        Self { pages, partial: BTreeMap::new(), missing: 0, full, fetch_on_write, evicted }
    }

    /// Records that the host writes these sectors of a page, and appends the actions that follow.
    pub fn write(&mut self, page: u64, sectors: u32, actions: &mut Vec<BufferAction>) -> BufferWrite {
        let access = self.pages.write(page, &mut self.evicted);
        self.leave(actions);
        let hit = access == BufferAccess::Hit;
        if hit {
            if let Some(valid) = self.take_partial(page) {
                self.set_valid(page, valid | sectors);
            }
        } else if self.fetch_on_write && sectors != self.full {
            actions.push(BufferAction::Fetch { to: Memory::Dram, sectors: self.full & !sectors });
        } else {
            self.set_valid(page, sectors);
        }
        actions.push(BufferAction::Write(Memory::Dram));
        if hit { BufferWrite::Hit(Memory::Dram) } else { BufferWrite::Filled(Memory::Dram) }
    }

    /// Records that the host reads these sectors of a page, and appends the actions that follow.
    pub fn read(&mut self, page: u64, sectors: u32, actions: &mut Vec<BufferAction>) -> BufferRead {
        let access = self.pages.read(page, &mut self.evicted);
        self.leave(actions);
        match access {
            BufferAccess::Hit => match self.valid(page) & sectors {
                0 => BufferRead::Miss,
                valid if valid == sectors => BufferRead::Hit(Memory::Dram),
                valid => BufferRead::Partial(Memory::Dram, valid),
            },
            BufferAccess::Filled => BufferRead::Filled(Memory::Dram),
            BufferAccess::Bypassed => BufferRead::Miss,
        }
    }

    /// Evicts one victim. Does nothing if the buffer is empty.
    pub fn evict(&mut self, actions: &mut Vec<BufferAction>) {
        self.pages.evict(&mut self.evicted);
        self.leave(actions);
    }

    /// Removes a page whose data are no longer needed. Returns false if the buffer does not hold it.
    pub fn discard(&mut self, page: u64) -> bool {
        self.take_partial(page);
        self.pages.discard(page).is_some()
    }

    /// True if the page is in the buffer.
    #[must_use]
    pub fn contains(&self, page: u64) -> bool {
        self.pages.state(page).is_some()
    }

    /// True if a write of this page would evict a victim, be it dirty or clean.
    #[must_use]
    pub fn write_evicts(&self, page: u64) -> bool {
        self.pages.len() >= self.pages.capacity() && self.pages.state(page).is_none()
    }

    /// Pages in the buffer.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// True if the buffer holds no page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Dirty pages in the buffer.
    #[must_use]
    pub fn dirty_pages(&self) -> usize {
        self.pages.dirty_len()
    }

    /// Valid sectors of the dirty pages.
    #[must_use]
    pub fn dirty_sectors(&self) -> u64 {
        self.pages.dirty_len() as u64 * u64::from(self.full.count_ones()) - self.missing
    }

    /// The valid sectors of a page in the buffer.
    fn valid(&self, page: u64) -> u32 {
        self.partial.get(&page).copied().unwrap_or(self.full)
    }

    /// Sets the valid sectors of a page that is not among the partial ones.
    fn set_valid(&mut self, page: u64, valid: u32) {
        if valid != self.full {
            self.missing += u64::from((self.full & !valid).count_ones());
            self.partial.insert(page, valid);
        }
    }

    /// Removes a page from the partial ones, and returns its valid sectors.
    fn take_partial(&mut self, page: u64) -> Option<u32> {
        let valid = self.partial.remove(&page)?;
        self.missing -= u64::from((self.full & !valid).count_ones());
        Some(valid)
    }

    /// Appends the actions for the pages that the policy has evicted.
    fn leave(&mut self, actions: &mut Vec<BufferAction>) {
        if self.evicted.is_empty() {
            return;
        }
        let mut evicted = core::mem::take(&mut self.evicted);
        for page in evicted.writes.drain(..) {
            let sectors = self.take_partial(page).unwrap_or(self.full);
            actions.push(BufferAction::Destage { page, sectors, from: Memory::Dram });
        }
        actions.extend(evicted.padding.drain(..).map(|page| BufferAction::Pad { page }));
        actions.extend(evicted.dropped.drain(..).map(|page| BufferAction::Drop { page }));
        self.evicted = evicted;
    }
}
