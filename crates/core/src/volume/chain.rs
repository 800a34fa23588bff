//! Version chains: reading, changing and storing a page's chain (NVMM, Page Table Organization: the
//! write-update procedure; Use of the Bit Vector: coalescing of the longest chains).
//!
//! An operation copies the chain, newest entry first, changes the copy and stores it: the newest entry
//! at the page's index, the others in the upper region. An older entry keeps its index if it already had
//! one there. For a write this is the paper's procedure: copy the head to a free upper entry, replace
//! the head by the new mapping, and link the two.

use alloc::vec::Vec;

use super::{PlacedSegments, Volume, VolumeError};
use crate::bit_vector::BitVector;
use crate::page_table::{Entry, PageTable, Status};
use crate::placement::group;
use crate::units::{BlockId, PageId, Slot, Stamp};

/// An entry of a chain and its index in the page table; `None` for a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) at: Option<u32>,
    pub(super) entry: Entry,
}

/// A copy of a page's chain for an operation to change.
pub(super) struct Chain {
    page: PageId,
    before: Vec<Link>,
    pub(super) links: Vec<Link>,
    /// Slots that the operation makes live.
    pub(super) used: Vec<Slot>,
    /// Slots that the operation frees.
    pub(super) freed: Vec<Slot>,
}

impl Chain {
    /// Removes a segment from the entry at `position` and frees its slot.
    pub(super) fn take(&mut self, position: usize, size: crate::units::SegmentSize, segment: u8) {
        let entry = &mut self.links[position].entry;
        if let Some(slot) = entry.slot(size, segment) {
            self.freed.push(slot);
            *entry = entry.with_vector(entry.vector().without(size, segment));
        }
    }
}

/// Iterator over the entries of a chain, newest first.
pub(super) struct ChainEntries<'a> {
    table: &'a PageTable,
    page: PageId,
    next: Option<u32>,
    left: u32,
}

impl Iterator for ChainEntries<'_> {
    type Item = Result<Entry, VolumeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next.take()?;
        if self.left == 0 {
            return Some(Err(VolumeError::BrokenChain(self.page)));
        }
        self.left -= 1;
        match self.table.get(index) {
            Err(chunk) => Some(Err(VolumeError::NotLoaded(chunk))),
            Ok(entry) if !entry.in_use() => {
                // A free head means a page that was never used; any other free entry is a dangling link.
                (index != PageTable::head(self.page)).then_some(Err(VolumeError::BrokenChain(self.page)))
            }
            Ok(entry) => {
                self.next = Some(entry.previous()).filter(|&p| self.table.is_link(p));
                Some(Ok(entry))
            }
        }
    }
}

impl Volume {
    pub(super) fn chain_entries(&self, page: PageId) -> ChainEntries<'_> {
        // A longer chain must loop. While pages are queued for pruning, a valid chain can have far more
        // entries than the live tokens need.
        let left = self.table.upper_used() + 1;
        ChainEntries { table: &self.table, page, next: Some(PageTable::head(page)), left }
    }

    pub(super) fn chain(&self, page: PageId) -> Result<Chain, VolumeError> {
        self.check_page(page)?;
        let mut links = Vec::new();
        let mut at = PageTable::head(page);
        for entry in self.chain_entries(page) {
            let entry = entry?;
            links.push(Link { at: Some(at), entry });
            at = entry.previous();
        }
        Ok(Chain { page, before: links.clone(), links, used: Vec::new(), freed: Vec::new() })
    }

    /// Stores a changed chain and updates all counts. An error is returned before anything changes.
    pub(super) fn store(&mut self, mut chain: Chain) -> Result<(), VolumeError> {
        let head = PageTable::head(chain.page);
        drop_trailing_tombstones(&mut chain.links);
        // The newest entry takes the head's index, so an older entry that was there moves to the upper
        // region.
        let mut vacated: Vec<u32> = chain
            .before
            .iter()
            .filter_map(|link| link.at)
            .filter(|&at| at != head && !chain.links.iter().skip(1).any(|l| l.at == Some(at)))
            .collect();
        let new_in_upper =
            chain.links.iter().skip(1).filter(|link| link.at.is_none_or(|at| at == head)).count() as u32;
        let needed = new_in_upper.saturating_sub(vacated.len() as u32);
        if needed > self.table.free_upper_entries() {
            if let Some(chunk) = self.table.unloaded_with_free_entries() {
                return Err(VolumeError::NotLoaded(chunk));
            }
            return Err(VolumeError::TableFull { needed, limit: self.table.upper_limit() });
        }
        self.check_counts(&chain)?;

        // From the oldest to the newest, because each entry stores the index of the next older one.
        let mut previous = 0;
        for position in (0..chain.links.len()).rev() {
            let Link { at, entry } = chain.links[position];
            let entry = entry.with_previous(previous);
            let index = match at {
                _ if position == 0 => head,
                Some(at) if at != head => at,
                _ => match vacated.pop() {
                    Some(index) => index,
                    None => {
                        let Some(index) = self.table.allocate_upper(entry) else {
                            debug_assert!(false, "free entries were checked above");
                            return Err(VolumeError::TableFull { needed, limit: self.table.upper_limit() });
                        };
                        index
                    }
                },
            };
            if self.table.get(index) != Ok(entry) {
                self.table.set(index, entry);
            }
            previous = index;
        }
        if chain.links.is_empty() && !chain.before.is_empty() {
            self.table.set(head, Entry::default());
        }
        for index in vacated {
            self.table.free_upper(index);
        }
        self.update_counts(&chain)
    }

    /// Checks that the block counts allow the slots that an operation uses and frees.
    fn check_counts(&self, chain: &Chain) -> Result<(), VolumeError> {
        let mut changes: Vec<(BlockId, u16, u16)> = Vec::new();
        let used = chain.used.iter().map(|&slot| (slot, 1, 0));
        for (slot, used, freed) in used.chain(chain.freed.iter().map(|&slot| (slot, 0, 1))) {
            let block = self.block_of(slot);
            match changes.iter_mut().find(|(b, ..)| *b == block) {
                Some(change) => {
                    change.1 += used;
                    change.2 = change.2.saturating_add(freed);
                }
                None => changes.push((block, used, freed)),
            }
        }
        for (block, used, freed) in changes {
            self.blocks.check_live(block, used, freed)?;
        }
        Ok(())
    }

    /// Updates the allocation bitmap, the chain length and the block counts after a chain was stored.
    fn update_counts(&mut self, chain: &Chain) -> Result<(), VolumeError> {
        let page = chain.page.0;
        let allocated = chain.links.first().is_some_and(|l| l.entry.status().allocated());
        let word = &mut self.allocated[page as usize / 64];
        let bit = 1 << (page % 64);
        *word = if allocated { *word | bit } else { *word & !bit };
        let length = chain.links.len().min(u8::MAX.into()) as u8;
        self.lengths[page as usize] = length;
        self.longest = self.longest.max(length);
        for &slot in &chain.used {
            self.blocks.add_live(self.block_of(slot), 1)?;
        }
        for &slot in &chain.freed {
            self.blocks.sub_live(self.block_of(slot), 1)?;
        }
        Ok(())
    }

    /// Checks that `placed` has distinct segments in distinct slots of one block; returns the entries
    /// for them.
    fn versions(&self, placed: &[(u8, Slot)]) -> Result<Vec<(Slot, BitVector)>, VolumeError> {
        let size = self.config.segment;
        let slots = u64::from(self.config.slots_per_block);
        let Some(&(_, first)) = placed.first() else { return Ok(Vec::new()) };
        let block = self.block_of(first);
        let block_start = Slot(u64::from(block.0) * slots);
        let total = u64::from(self.config.blocks) * slots;
        let mut segments = 0_u32;
        for &(segment, slot) in placed {
            if segment >= size.per_page() {
                return Err(VolumeError::NoSegment { segment, per_page: size.per_page() });
            }
            let inside = slot.0 < total && self.block_of(slot) == block;
            let reachable = slot.0 >= block_start.0 + u64::from(segment);
            let twice = segments >> segment & 1 == 1 || placed.iter().filter(|(_, s)| *s == slot).count() > 1;
            if !inside || !reachable || twice {
                return Err(VolumeError::BadPlacement { slot });
            }
            segments |= 1 << segment;
        }
        Ok(group(size, block_start, placed)
            .into_iter()
            .map(|(start, bits)| (start, BitVector(bits)))
            .collect())
    }

    /// Records that segments of a page were written, in the open epoch, to slots of one block (NVMM,
    /// Page Table Organization: the write-update procedure).
    ///
    /// # Errors
    /// [`VolumeError::NotAllocated`], [`VolumeError::BadPlacement`], [`VolumeError::TableFull`],
    /// [`VolumeError::NotLoaded`], [`VolumeError::NoPage`], [`VolumeError::NoSegment`].
    pub fn apply(&mut self, page: PageId, placed: &[(u8, Slot)]) -> Result<(), VolumeError> {
        let versions = self.versions(placed)?;
        let mut chain = self.chain(page)?;
        let open = self.journal.open_stamp;
        let Some(status) = chain.links.first().map(|l| l.entry.status()).filter(|s| s.allocated()) else {
            return Err(VolumeError::NotAllocated(page));
        };
        if placed.is_empty() {
            return Ok(());
        }
        // No token will ever see a version that is superseded in the epoch that wrote it: free it now.
        let size = self.config.segment;
        for position in 0..chain.links.len() {
            let entry = chain.links[position].entry;
            if entry.stamp() != open || entry.is_tombstone() {
                break;
            }
            for &(segment, _) in placed {
                chain.take(position, size, segment);
            }
        }
        let first_of_epoch = chain.links.first().is_none_or(|l| l.entry.stamp() != open);
        chain
            .links
            .retain(|l| l.entry.stamp() != open || l.entry.is_tombstone() || !l.entry.vector().is_empty());
        for (start, vector) in versions {
            let entry = Entry::new(start, 0, vector, open, status);
            chain.links.insert(0, Link { at: None, entry });
        }
        chain.used.extend(placed.iter().map(|&(_, slot)| slot));
        self.store(chain)?;
        self.note_change(page, first_of_epoch);
        self.journal.open_segments = self.journal.open_segments.saturating_add(placed.len() as u64);
        Ok(())
    }

    /// Records that reclamation moved versions to other slots: of each segment its newest version with a
    /// stamp of at most `stamp`. The moved versions get `stamp`, so no live token may be between their
    /// old stamp and `stamp`.
    ///
    /// When a log is replayed, a moved version may have been pruned already. The segment then has no
    /// version up to `stamp`, or only an older one that a token before `stamp` sees. The older version
    /// stays in its slot, and the new slot stays dead, because no token needs it.
    ///
    /// # Errors
    /// As [`Volume::apply`]; [`VolumeError::NoVersion`] if `stamp` is newer than the open epoch's.
    pub fn relocate(&mut self, page: PageId, stamp: Stamp, placed: &[(u8, Slot)]) -> Result<(), VolumeError> {
        self.versions(placed)?;
        let mut chain = self.chain(page)?;
        let size = self.config.segment;
        if stamp > self.journal.open_stamp {
            let segment = placed.first().map_or(0, |&(segment, _)| segment);
            return Err(VolumeError::NoVersion { page, segment });
        }
        let mut moved = Vec::with_capacity(placed.len());
        for &(segment, slot) in placed {
            let source = chain
                .links
                .iter()
                .take_while(|l| l.entry.stamp() > stamp || !l.entry.is_tombstone())
                .position(|l| l.entry.stamp() <= stamp && l.entry.slot(size, segment).is_some());
            let Some(source) = source else { continue };
            if !self.journal.any_token_sees(chain.links[source].entry.stamp(), stamp) {
                chain.take(source, size, segment);
                moved.push((segment, slot));
            }
        }
        if moved.is_empty() {
            return Ok(());
        }
        let Some(position) = chain.links.iter().position(|l| l.entry.stamp() <= stamp) else {
            return Ok(());
        };
        let status = chain.links[position].entry.status();
        for (start, vector) in self.versions(&moved)? {
            let entry = Entry::new(start, 0, vector, stamp, status);
            chain.links.insert(position, Link { at: None, entry });
        }
        chain.used.extend(moved.iter().map(|&(_, slot)| slot));
        self.drop_unseen_entries(&mut chain.links);
        self.store(chain)
    }

    /// Sets a page's status (the paper's `setperms`). A page that does not exist is created; a status
    /// that is not allocated deletes the page.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`], [`VolumeError::NoPage`], [`VolumeError::TableFull`].
    pub fn set_status(&mut self, page: PageId, status: Status) -> Result<(), VolumeError> {
        let mut chain = self.chain(page)?;
        if !status.allocated() {
            let allocated = chain.links.first().is_some_and(|l| l.entry.status().allocated());
            return if allocated { self.delete(page) } else { Ok(()) };
        }
        let open = self.journal.open_stamp;
        let head = chain.links.first().map(|l| l.entry);
        let first_of_epoch = head.is_none_or(|h| h.stamp() != open);
        match head {
            Some(head) if !first_of_epoch && !head.is_tombstone() => {
                for link in
                    chain.links.iter_mut().take_while(|l| l.entry.stamp() == open && !l.entry.is_tombstone())
                {
                    link.entry = link.entry.with_status(status);
                }
            }
            Some(head) if head.status() == status => return Ok(()),
            _ => {
                let entry = Entry::new(Slot(0), 0, BitVector::default(), open, status);
                chain.links.insert(0, Link { at: None, entry });
                self.drop_unseen_entries(&mut chain.links);
            }
        }
        self.store(chain)?;
        self.note_change(page, first_of_epoch);
        Ok(())
    }

    /// Deletes a page. Versions that tokens see stay until these tokens are dropped.
    ///
    /// # Errors
    /// [`VolumeError::NotAllocated`], [`VolumeError::NotLoaded`], [`VolumeError::NoPage`],
    /// [`VolumeError::TableFull`].
    pub fn delete(&mut self, page: PageId) -> Result<(), VolumeError> {
        let mut chain = self.chain(page)?;
        let open = self.journal.open_stamp;
        if !chain.links.first().is_some_and(|l| l.entry.status().allocated()) {
            return Err(VolumeError::NotAllocated(page));
        }
        let first_of_epoch = chain.links[0].entry.stamp() != open;
        let size = self.config.segment;
        let unsynced = chain.links.iter().take_while(|l| l.entry.stamp() == open).count();
        for link in chain.links.drain(..unsynced) {
            let slots =
                link.entry.vector().iter(size).map(|(_, d)| Slot(link.entry.start().0 + u64::from(d)));
            chain.freed.extend(slots);
        }
        if !chain.links.is_empty() {
            let entry = Entry::new(Slot(0), 0, BitVector::default(), open, Status::default());
            chain.links.insert(0, Link { at: None, entry });
        }
        self.store(chain)?;
        self.note_change(page, first_of_epoch);
        Ok(())
    }

    fn note_change(&mut self, page: PageId, first_of_epoch: bool) {
        if first_of_epoch {
            self.journal.record_change(page.0);
        }
    }

    /// Prunes a page's chain: removes every version that neither a token nor the current page needs; see
    /// [`crate::journal`] for the rule.
    pub(super) fn prune(&mut self, page: PageId) -> Result<(), VolumeError> {
        let mut chain = self.chain(page)?;
        let size = self.config.segment;
        // For each segment the stamp of the next newer version; `None` at the current version.
        let mut newer = [None; 16];
        for position in 0..chain.links.len() {
            let entry = chain.links[position].entry;
            if entry.is_tombstone() {
                newer = [Some(entry.stamp()); 16];
                continue;
            }
            for (segment, _) in entry.vector().iter(size) {
                let newer = &mut newer[usize::from(segment)];
                if newer.is_some_and(|until| !self.journal.any_token_sees(entry.stamp(), until)) {
                    chain.take(position, size, segment);
                }
                *newer = Some(entry.stamp());
            }
        }
        self.drop_unseen_entries(&mut chain.links);
        if chain.links == chain.before {
            return Ok(());
        }
        self.store(chain)
    }

    /// Drops entries without segments that are not the newest entry in any visible state: neither in a
    /// token's nor, for the first entry, in the open epoch's.
    ///
    /// An unseen tombstone stays if it hides a segment between it and the next older tombstone. An entry
    /// with a status only is merged into the next older entry if that one is unseen: it takes over the
    /// status.
    fn drop_unseen_entries(&self, links: &mut Vec<Link>) {
        let mut kept: Vec<Link> = Vec::with_capacity(links.len());
        for (position, link) in links.iter().enumerate() {
            let mut link = *link;
            let seen = kept
                .last()
                .is_none_or(|newer| self.journal.any_token_sees(link.entry.stamp(), newer.entry.stamp()));
            if link.entry.is_tombstone() {
                let mut hidden = links[position + 1..].iter().take_while(|l| !l.entry.is_tombstone());
                if !seen && hidden.all(|l| l.entry.vector().is_empty()) {
                    continue;
                }
            } else if !seen {
                if link.entry.vector().is_empty() {
                    continue;
                }
                let bare =
                    kept.pop_if(|newer| newer.entry.vector().is_empty() && !newer.entry.is_tombstone());
                if let Some(bare) = bare {
                    link.entry = link.entry.with_status(bare.entry.status());
                }
            }
            kept.push(link);
        }
        *links = kept;
    }

    /// The page with the longest known chain, and the chain's length in entries (NVMM, end of Use of the
    /// Bit Vector: the longest chains are reclaimed first).
    #[must_use]
    pub fn longest_chain(&mut self) -> Option<(PageId, u32)> {
        let mut best: Option<(usize, u8)> = None;
        for (page, &length) in self.lengths.iter().enumerate() {
            if length > best.map_or(0, |(_, l)| l) {
                best = Some((page, length));
                if length == self.longest {
                    break;
                }
            }
        }
        self.longest = best.map_or(0, |(_, length)| length);
        best.map(|(page, length)| (PageId(page as u32), u32::from(length)))
    }

    /// The plan for coalescing a page's chain to the shortest one that its tokens allow. For each
    /// interval between live tokens it has the segments to write together to new slots of one block, and
    /// their new stamp, oldest interval first. Intervals with a single entry are omitted.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn coalesce_plan(&self, page: PageId) -> Result<Vec<(Stamp, PlacedSegments)>, VolumeError> {
        let size = self.config.segment;
        let mut plan: Vec<(Stamp, usize, PlacedSegments)> = Vec::new();
        let mut interval = None;
        for entry in self.chain_entries(page) {
            let entry = entry?;
            // A tombstone separates the versions above it from those below it.
            if entry.is_tombstone() {
                interval = None;
                continue;
            }
            let this = self.journal.renumbered(entry.stamp());
            if interval != Some(this) {
                plan.push((entry.stamp(), 0, Vec::new()));
                interval = Some(this);
            }
            let Some((_, entries, segments)) = plan.last_mut() else { continue };
            *entries += usize::from(!entry.vector().is_empty());
            for (segment, distance) in entry.vector().iter(size) {
                if !segments.iter().any(|(s, _)| *s == segment) {
                    segments.push((segment, Slot(entry.start().0 + u64::from(distance))));
                }
            }
        }
        let mut plan: Vec<_> = plan
            .into_iter()
            .filter(|(_, entries, _)| *entries > 1)
            .map(|(stamp, _, mut segments)| {
                segments.sort_unstable();
                (stamp, segments)
            })
            .collect();
        plan.reverse();
        Ok(plan)
    }
}

/// Removes tombstones at the end of a chain: they hide no older entry.
fn drop_trailing_tombstones(links: &mut Vec<Link>) {
    while links.last().is_some_and(|l| l.entry.is_tombstone()) {
        links.pop();
    }
}
