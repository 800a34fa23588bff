//! Sync, rollback, giving tokens up, numbering stamps anew.

use alloc::vec::Vec;

use super::{Volume, VolumeError};
use crate::page_table::{ChunkId, PageTable};
use crate::units::{Epoch, PageId, Slot};

/// What a rollback did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackReport {
    /// The token that is current again.
    pub token: Epoch,
    /// The epoch that is open now.
    pub open: Epoch,
    /// Pages whose newest version changed.
    pub pages: u32,
}

impl Volume {
    /// Closes the open epoch: its number is the token for the state as it is now.
    ///
    /// # Errors
    /// [`VolumeError::StampsExhausted`] until [`Volume::renumber`] has run.
    pub fn close_epoch(&mut self, wall_ns: u64) -> Result<Epoch, VolumeError> {
        if self.journal.exhausted() {
            return Err(VolumeError::StampsExhausted);
        }
        Ok(self.journal.close(wall_ns))
    }

    /// The oldest token, if the retention no longer covers it.
    #[must_use]
    pub fn expired(&self) -> Option<Epoch> {
        self.journal.expired()
    }

    /// Gives a token up. Its versions go when [`Volume::prune_step`] gets to their pages.
    ///
    /// # Errors
    /// [`VolumeError::LastToken`]; [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`].
    pub fn drop_token(&mut self, token: Epoch) -> Result<(), VolumeError> {
        let position = self.live(token)?;
        if position + 1 == self.journal.tokens.len() {
            return Err(VolumeError::LastToken(token));
        }
        self.journal.drop_at(position);
        Ok(())
    }

    /// Prunes up to `most` pages of those that wait for it; returns how many still wait.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`]: pages before that one are done.
    pub fn prune_step(&mut self, most: usize) -> Result<usize, VolumeError> {
        for _ in 0..most {
            let Some(&page) = self.journal.to_prune.last() else { break };
            self.prune(PageId(page))?;
            self.journal.to_prune.pop();
        }
        Ok(self.journal.to_prune.len())
    }

    /// Pages waiting to be pruned.
    #[must_use]
    pub fn prune_left(&self) -> usize {
        self.journal.to_prune.len()
    }

    /// Pages that changed since a token, in order.
    ///
    /// # Errors
    /// [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`].
    pub fn changed_since(&self, token: Epoch) -> Result<Vec<PageId>, VolumeError> {
        let position = self.live(token)?;
        Ok(self.journal.changed_since(position).into_iter().map(PageId).collect())
    }

    /// Which segments of a page have changed since a token (bit by segment), and whether its status
    /// has: what a cache above must forget when it is rolled back.
    ///
    /// # Errors
    /// [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`], [`VolumeError::NotLoaded`].
    pub fn changed_segments(&self, token: Epoch, page: PageId) -> Result<(u16, bool), VolumeError> {
        let stamp = self.journal.tokens[self.live(token)?].stamp;
        let mut segments = 0;
        let mut status = None;
        for entry in self.walk(page) {
            let entry = entry?;
            let first = *status.get_or_insert(entry.status());
            if entry.stamp() <= stamp {
                return Ok((segments, entry.status() != first));
            }
            if entry.is_tombstone() {
                return Ok((u16::MAX, true));
            }
            for (segment, _) in entry.vector().iter(self.config.segment) {
                segments |= 1 << segment;
            }
        }
        // It was not there.
        Ok((u16::MAX, true))
    }

    /// Returns to a token's state. Younger tokens are gone; numbers are not reused.
    ///
    /// # Errors
    /// [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`], [`VolumeError::NotLoaded`].
    pub fn rollback(&mut self, token: Epoch) -> Result<RollbackReport, VolumeError> {
        let position = self.live(token)?;
        let pages = self.pop_since(position)?;
        self.journal.roll_back(position);
        Ok(RollbackReport { token, open: self.journal.open, pages })
    }

    /// Takes back what the open epoch did; its number stays open. What recovery does with changes
    /// that no sync covers.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`].
    pub fn discard_open(&mut self) -> Result<(), VolumeError> {
        self.pop_since(self.journal.tokens.len() - 1)?;
        self.journal.open_changed.clear();
        self.journal.open_segments = 0;
        Ok(())
    }

    /// Removes the entries younger than the token at `position`; returns how many pages had any.
    fn pop_since(&mut self, position: usize) -> Result<u32, VolumeError> {
        let stamp = self.journal.tokens[position].stamp;
        let pages = self.journal.changed_since(position);
        // Whatever must be loaded is asked for before the first change.
        for &page in &pages {
            for entry in self.walk(PageId(page)) {
                entry?;
            }
        }
        let size = self.config.segment;
        for &page in &pages {
            let mut chain = self.chain(PageId(page))?;
            let younger = chain.links.iter().take_while(|l| l.entry.stamp() > stamp).count();
            for link in chain.links.drain(..younger) {
                let slots =
                    link.entry.vector().iter(size).map(|(_, d)| Slot(link.entry.start().0 + u64::from(d)));
                chain.freed.extend(slots);
            }
            self.store(chain)?;
        }
        Ok(pages.len() as u32)
    }

    /// Whether the stamps are used up, so that [`Volume::renumber`] must run before the open epoch
    /// can be closed.
    #[must_use]
    pub fn needs_renumber(&self) -> bool {
        self.journal.exhausted()
    }

    /// Numbers stamps anew, so that the live tokens take the lowest ones. Every chunk of the table
    /// must be loaded, and every one in use is dirty afterwards.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`]; [`VolumeError::StampsExhausted`] where there are as many live
    /// tokens as stamps.
    pub fn renumber(&mut self) -> Result<(), VolumeError> {
        if let Some(chunk) = self.table.unloaded().next() {
            return Err(VolumeError::NotLoaded(chunk));
        }
        if self.journal.tokens.len() as u64 >= u64::from(self.journal.stamp_limit) {
            return Err(VolumeError::StampsExhausted);
        }
        let entries = crate::page_table::CHUNK_ENTRIES as u32;
        for chunk in 0..self.table.chunk_count() {
            if self.table.bytes(ChunkId(chunk)).is_none() {
                continue;
            }
            for index in chunk * entries..(chunk + 1) * entries {
                let entry = self.table.get(index)?;
                if entry.in_use() {
                    let stamp = self.journal.renumbered(entry.stamp());
                    self.table.set(index, entry.with_stamp(stamp));
                }
            }
        }
        self.journal.renumber();
        // Versions that differed only in stamps between two tokens now carry the same one, and
        // one of them may hide another: those are needed by nobody.
        let pages: Vec<u32> = (0..self.config.pages)
            .filter(|&page| {
                self.table.get(PageTable::head(PageId(page))).is_ok_and(|e| self.table.is_link(e.previous()))
            })
            .collect();
        for page in pages {
            self.prune(PageId(page))?;
        }
        Ok(())
    }
}
