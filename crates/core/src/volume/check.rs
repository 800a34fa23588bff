//! The consistency check of a whole volume: chains, slots and counts against each other.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{Volume, VolumeError};
use crate::page_table::PageTable;
use crate::units::{BlockId, PageId, Slot};

/// A contradiction between two parts of a volume, as a message that names page, slot or block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inconsistency(pub String);

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Further contradictions in one page's chain are not reported.
const MAX_REPORTS_PER_PAGE: usize = 8;

impl Volume {
    /// Checks all chains, slots and counts against each other; returns every contradiction. The whole
    /// page table must be loaded.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`].
    pub fn check(&self) -> Result<Vec<Inconsistency>, VolumeError> {
        if let Some(chunk) = self.table.unloaded().next() {
            return Err(VolumeError::NotLoaded(chunk));
        }
        let mut problems = Vec::new();
        let mut owners: BTreeMap<Slot, PageId> = BTreeMap::new();
        let mut live = vec![0_u32; self.config.blocks as usize];
        let mut upper = 0_u64;
        for page in (0..self.config.pages).map(PageId) {
            let entries = self.check_chain(page, &mut problems, |slot| {
                live[self.block_of(slot).0 as usize] += 1;
                owners.insert(slot, page)
            });
            upper += u64::from(entries.saturating_sub(1));
            if upper > u64::from(self.table.upper_used()) {
                // Following the remaining chains could take time proportional to pages times entries.
                problems.push(Inconsistency(alloc::format!(
                    "page {page}: its chain loops or shares entries with another page's; the check ends here"
                )));
                return Ok(problems);
            }
            let allocated = self.table.get(PageTable::head(page))?.status().allocated();
            if allocated != self.is_allocated(page) {
                problems.push(Inconsistency(alloc::format!(
                    "page {page}: allocated is {allocated} in the page table, {} in the bitmap",
                    !allocated
                )));
            }
        }
        if upper != u64::from(self.table.upper_used()) {
            let counted = self.table.upper_used();
            problems.push(Inconsistency(alloc::format!(
                "chains contain {upper} entries of the upper region, but {counted} are counted as in use"
            )));
        }
        for (block, &live) in live.iter().enumerate() {
            let info = self.blocks.info(BlockId(block as u32));
            let tables = info.state == crate::ftl::blocks::BlockState::Meta
                || self.holds_tables(BlockId(block as u32));
            if !tables && u32::from(info.live) != live {
                problems.push(Inconsistency(alloc::format!(
                    "block {block}: chains refer to {live} live slots, but {} are counted",
                    info.live
                )));
            }
        }
        Ok(problems)
    }

    /// True if the driver counts the block's live slots (table chunks or the log), which no chain refers
    /// to.
    fn holds_tables(&self, block: BlockId) -> bool {
        self.blocks.is_driver_owned(block)
    }

    fn check_chain(
        &self,
        page: PageId,
        problems: &mut Vec<Inconsistency>,
        mut claim: impl FnMut(Slot) -> Option<PageId>,
    ) -> u32 {
        let size = self.config.segment;
        let mut entries = 0;
        let mut last = None;
        let mut versions = 0_u32;
        let most = problems.len() + MAX_REPORTS_PER_PAGE;
        let mut report = |text: String| {
            if problems.len() < most {
                problems.push(Inconsistency(alloc::format!("page {page}: {text}")));
            }
        };
        for entry in self.chain_entries(page) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    report(alloc::format!("{error}"));
                    break;
                }
            };
            entries += 1;
            if last.is_some_and(|newer| newer < entry.stamp()) {
                report(alloc::format!("stamp {} is older in the chain than a smaller stamp", entry.stamp()));
            }
            if entry.stamp() > self.journal.open_stamp {
                report(alloc::format!("stamp {} is newer than the open epoch's", entry.stamp()));
            }
            last = Some(entry.stamp());
            for (_, distance) in entry.vector().iter(size) {
                versions += 1;
                let slot = Slot(entry.start().0 + u64::from(distance));
                let first = self.block_of(entry.start());
                if first != self.block_of(slot) {
                    report(alloc::format!("slot {slot} is not in the block of its entry's starting slot"));
                }
                if let Some(other) = claim(slot) {
                    report(alloc::format!("slot {slot} also belongs to page {other}"));
                }
            }
        }
        let bound = versions + self.journal.tokens.len() as u32 + 1;
        if self.journal.to_prune.is_empty() && entries > bound {
            report(alloc::format!(
                "the chain has {entries} entries for {versions} live versions and {} tokens, which is too long",
                self.journal.tokens.len()
            ));
        }
        entries
    }
}
