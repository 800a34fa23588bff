//! Checking a whole volume against itself.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::{Volume, VolumeError};
use crate::page_table::PageTable;
use crate::units::{BlockId, PageId, Slot};

/// Something that contradicts something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem(pub String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// More of one chain say nothing new.
const PROBLEMS_A_PAGE: usize = 8;

impl Volume {
    /// Checks every chain, every slot and every count against each other. Loads must have been
    /// done: needs the whole table.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`].
    pub fn check(&self) -> Result<Vec<Problem>, VolumeError> {
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
                // To follow the others as well could take as long as there are pages times entries.
                problems.push(Problem(alloc::format!(
                    "page {page}: its chain shares entries with another, or loops; the check ends here"
                )));
                return Ok(problems);
            }
            let allocated = self.table.get(PageTable::head(page))?.status().allocated();
            if allocated != self.is_allocated(page) {
                problems.push(Problem(alloc::format!(
                    "page {page}: allocated is {allocated} in the table, not so in the map"
                )));
            }
        }
        if upper != u64::from(self.table.upper_used()) {
            let counted = self.table.upper_used();
            problems.push(Problem(alloc::format!(
                "{upper} upper entries are reached by chains, {counted} are counted"
            )));
        }
        for (block, &live) in live.iter().enumerate() {
            let info = self.blocks.info(BlockId(block as u32));
            let tables =
                info.state == crate::ftl::blocks::State::Meta || self.holds_tables(BlockId(block as u32));
            if !tables && u32::from(info.live) != live {
                problems.push(Problem(alloc::format!(
                    "block {block}: {live} live slots in chains, {} counted",
                    info.live
                )));
            }
        }
        Ok(problems)
    }

    /// Whether a block's live slots may be those of the driver (table chunks): sealed blocks of
    /// that kind are closed ones whose live slots no chain reaches at all.
    fn holds_tables(&self, block: BlockId) -> bool {
        self.blocks.is_driver_owned(block)
    }

    fn check_chain(
        &self,
        page: PageId,
        problems: &mut Vec<Problem>,
        mut claim: impl FnMut(Slot) -> Option<PageId>,
    ) -> u32 {
        let size = self.config.segment;
        let mut entries = 0;
        let mut last = None;
        let mut versions = 0_u32;
        let most = problems.len() + PROBLEMS_A_PAGE;
        let mut tell = |text: String| {
            if problems.len() < most {
                problems.push(Problem(alloc::format!("page {page}: {text}")));
            }
        };
        for entry in self.walk(page) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    tell(alloc::format!("{error}"));
                    break;
                }
            };
            entries += 1;
            if last.is_some_and(|newer| newer < entry.stamp()) {
                tell(alloc::format!("stamp {} stands below a smaller one", entry.stamp()));
            }
            if entry.stamp() > self.journal.open_stamp {
                tell(alloc::format!("stamp {} has not come yet", entry.stamp()));
            }
            last = Some(entry.stamp());
            for (_, distance) in entry.vector().iter(size) {
                versions += 1;
                let slot = Slot(entry.start().0 + u64::from(distance));
                let first = self.block_of(entry.start());
                if first != self.block_of(slot) {
                    tell(alloc::format!("slot {slot} lies in another block than its entry's start"));
                }
                if let Some(other) = claim(slot) {
                    tell(alloc::format!("slot {slot} belongs to page {other} as well"));
                }
            }
        }
        let bound = versions + self.journal.tokens.len() as u32 + 1;
        if self.journal.to_prune.is_empty() && entries > bound {
            tell(alloc::format!(
                "{entries} entries for {versions} live versions and {} tokens",
                self.journal.tokens.len()
            ));
        }
        entries
    }
}
