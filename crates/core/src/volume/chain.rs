//! Version chains: reading one, changing it, storing it back.
//!
//! A change works on a copy of the chain, newest first, and is then stored: the first entry goes
//! to the page's index, the others to entries of the upper region, each where it was if it was
//! there before. For a write-update that is the paper's procedure: copy the head to a free upper
//! entry, put the new mapping in its place, link the two.

use alloc::vec::Vec;

use super::{Placed, Volume, VolumeError};
use crate::bit_vector::BitVector;
use crate::page_table::{Entry, PageTable, Status};
use crate::placement::group;
use crate::units::{BlockId, PageId, Slot, Stamp};

/// An entry of a chain with the index at which it stands; `None` for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) at: Option<u32>,
    pub(super) entry: Entry,
}

/// A chain being changed.
pub(super) struct Chain {
    page: PageId,
    before: Vec<Link>,
    pub(super) links: Vec<Link>,
    /// Slots that the change makes live, and those that it frees.
    pub(super) used: Vec<Slot>,
    pub(super) freed: Vec<Slot>,
}

impl Chain {
    /// Takes a segment out of the entry at `position`.
    pub(super) fn take(&mut self, position: usize, size: crate::units::SegmentSize, segment: u8) {
        let entry = &mut self.links[position].entry;
        if let Some(slot) = entry.slot(size, segment) {
            self.freed.push(slot);
            *entry = entry.with_vector(entry.vector().without(size, segment));
        }
    }
}

/// Entries of a chain, newest first.
pub(super) struct Walk<'a> {
    table: &'a PageTable,
    page: PageId,
    next: Option<u32>,
    left: u32,
}

impl Iterator for Walk<'_> {
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
                // An empty head is a page never touched; elsewhere a link leads nowhere.
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
    pub(super) fn walk(&self, page: PageId) -> Walk<'_> {
        // A longer chain would have to loop. While pages wait to be pruned, a sound one can have
        // far more entries than the live tokens need.
        let left = self.table.upper_used() + 1;
        Walk { table: &self.table, page, next: Some(PageTable::head(page)), left }
    }

    pub(super) fn chain(&self, page: PageId) -> Result<Chain, VolumeError> {
        self.check_page(page)?;
        let mut links = Vec::new();
        let mut at = PageTable::head(page);
        for entry in self.walk(page) {
            let entry = entry?;
            links.push(Link { at: Some(at), entry });
            at = entry.previous();
        }
        Ok(Chain { page, before: links.clone(), links, used: Vec::new(), freed: Vec::new() })
    }

    /// Stores a changed chain. Fails before anything has changed.
    pub(super) fn store(&mut self, mut chain: Chain) -> Result<(), VolumeError> {
        let head = PageTable::head(chain.page);
        drop_unneeded_tail(&mut chain.links);
        // The first entry stands at the head, so whatever stood there and is older now moves.
        let mut vacated: Vec<u32> = chain
            .before
            .iter()
            .filter_map(|link| link.at)
            .filter(|&at| at != head && !chain.links.iter().skip(1).any(|l| l.at == Some(at)))
            .collect();
        let homeless =
            chain.links.iter().skip(1).filter(|link| link.at.is_none_or(|at| at == head)).count() as u32;
        let needed = homeless.saturating_sub(vacated.len() as u32);
        if needed > self.table.upper_at_hand() {
            if let Some(chunk) = self.table.unloaded_with_room() {
                return Err(VolumeError::NotLoaded(chunk));
            }
            return Err(VolumeError::TableFull { needed, limit: self.table.upper_limit() });
        }
        self.check_counts(&chain)?;

        // From the oldest: each needs to know where its predecessor stands.
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
                        let Some(index) = self.table.take_upper(entry) else {
                            debug_assert!(false, "room was checked");
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
        self.settle(&chain)
    }

    /// Whether the blocks can count the slots that a change uses and frees.
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

    /// Brings what depends on a chain up to date.
    fn settle(&mut self, chain: &Chain) -> Result<(), VolumeError> {
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

    /// Checks that `placed` are distinct segments in distinct slots of one block, and groups them
    /// into versions.
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

    /// Records that segments of a page were written in the open epoch, to slots of one block
    /// (NVMM, Page Table Organization: the write-update procedure).
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
        // Superseded in the epoch that wrote them: no token will ever see them.
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

    /// Records that versions were moved to other slots: for each segment its newest version that
    /// is not younger than `stamp`. The moved versions carry `stamp` from then on, so no live
    /// token may lie between theirs and it.
    ///
    /// What was moved may have been pruned since, when a log is replayed and pruning is ahead of
    /// where it was. All that is left then is gone or an older version, which a token before
    /// `stamp` sees: it stays where it is, and the new slot stays dead, as nobody needs it.
    ///
    /// # Errors
    /// As [`Volume::apply`]; [`VolumeError::NoVersion`] if the stamp has not come yet.
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
            if !self.journal.sees(chain.links[source].entry.stamp(), stamp) {
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
        self.tidy(&mut chain.links);
        self.store(chain)
    }

    /// Gives a page a status; an untouched page comes into being. A status that says the page is
    /// not allocated deletes it.
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
                self.tidy(&mut chain.links);
            }
        }
        self.store(chain)?;
        self.note_change(page, first_of_epoch);
        Ok(())
    }

    /// Deletes a page. What tokens see of it stays until they are given up.
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
            self.journal.note(page.0);
        }
    }

    /// Removes what nobody needs of a page's chain; see the journal for who needs a version.
    pub(super) fn prune(&mut self, page: PageId) -> Result<(), VolumeError> {
        let mut chain = self.chain(page)?;
        let size = self.config.segment;
        // For each segment the stamp of the next newer version; `None` before the current one.
        let mut newer = [None; 16];
        for position in 0..chain.links.len() {
            let entry = chain.links[position].entry;
            if entry.is_tombstone() {
                newer = [Some(entry.stamp()); 16];
                continue;
            }
            for (segment, _) in entry.vector().iter(size) {
                let newer = &mut newer[usize::from(segment)];
                if newer.is_some_and(|until| !self.journal.sees(entry.stamp(), until)) {
                    chain.take(position, size, segment);
                }
                *newer = Some(entry.stamp());
            }
        }
        self.tidy(&mut chain.links);
        if chain.links == chain.before {
            return Ok(());
        }
        self.store(chain)
    }

    /// Drops entries that hold nothing and that nobody sees as the newest: neither a token nor,
    /// for the first one, the open epoch.
    ///
    /// A tombstone that nobody sees stays if there is something between it and the next older one
    /// that it hides. An entry that says no more than a status goes if that can be said by the
    /// next older one, because nobody sees that.
    fn tidy(&self, links: &mut Vec<Link>) {
        let mut kept: Vec<Link> = Vec::with_capacity(links.len());
        for (position, link) in links.iter().enumerate() {
            let mut link = *link;
            let seen =
                kept.last().is_none_or(|newer| self.journal.sees(link.entry.stamp(), newer.entry.stamp()));
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

    /// The longest chain that is known and how many entries it has (NVMM: blocks are freed from
    /// the longest chains first).
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

    /// What to bring together so that a page's chain becomes as short as its tokens allow: for
    /// each interval between live tokens the segments to be written to one new place, with the
    /// stamp they get there, oldest interval first. Intervals that are one entry already are not
    /// named.
    ///
    /// # Errors
    /// As [`Volume::lookup`].
    pub fn coalesce_plan(&self, page: PageId) -> Result<Vec<(Stamp, Placed)>, VolumeError> {
        let size = self.config.segment;
        let mut plan: Vec<(Stamp, usize, Placed)> = Vec::new();
        let mut interval = None;
        for entry in self.walk(page) {
            let entry = entry?;
            // A tombstone parts what is above it from what is below.
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

/// Tombstones with nothing below them hide nothing.
fn drop_unneeded_tail(links: &mut Vec<Link>) {
    while links.last().is_some_and(|l| l.entry.is_tombstone()) {
        links.pop();
    }
}
