//! Sync, rollback, dropping of tokens, pruning, and renumbering of stamps (NVMM, Software Interface).

use alloc::vec::Vec;

use super::{Volume, VolumeError};
use crate::page_table::{ChunkId, PageTable};
use crate::units::{Epoch, PageId, Slot};

/// The result of a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackReport {
    /// The token whose state is current again.
    pub token: Epoch,
    /// The new open epoch.
    pub open: Epoch,
    /// Number of pages whose newest version changed.
    pub pages: u32,
}

impl Volume {
    /// Closes the open epoch at time `wall_ns`; returns its number, the token of the current state.
    ///
    /// # Errors
    /// [`VolumeError::StampsExhausted`] until [`Volume::renumber`] has run.
    pub fn close_epoch(&mut self, wall_ns: u64) -> Result<Epoch, VolumeError> {
        if self.journal.stamps_exhausted() {
            return Err(VolumeError::StampsExhausted);
        }
        Ok(self.journal.close(wall_ns))
    }

    /// The oldest token, if the retention rule no longer keeps it.
    #[must_use]
    pub fn expired(&self) -> Option<Epoch> {
        self.journal.expired()
    }

    /// Drops a token. [`Volume::prune_step`] later frees the versions that only this token saw.
    ///
    /// # Errors
    /// [`VolumeError::LastToken`]; [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`].
    pub fn drop_token(&mut self, token: Epoch) -> Result<(), VolumeError> {
        let position = self.token_position(token)?;
        if position + 1 == self.journal.tokens.len() {
            return Err(VolumeError::LastToken(token));
        }
        self.journal.drop_token(position);
        Ok(())
    }

    /// Prunes up to `most` of the pages queued for pruning; returns the number of pages still queued.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`]; the pages before that one have been pruned.
    pub fn prune_step(&mut self, most: usize) -> Result<usize, VolumeError> {
        for _ in 0..most {
            let Some(&page) = self.journal.to_prune.last() else { break };
            self.prune(PageId(page))?;
            self.journal.to_prune.pop();
        }
        Ok(self.journal.to_prune.len())
    }

    /// Number of pages queued for pruning.
    #[must_use]
    pub fn prune_pending(&self) -> usize {
        self.journal.to_prune.len()
    }

    /// The pages that changed since a token, in ascending order.
    ///
    /// # Errors
    /// [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`].
    pub fn changed_since(&self, token: Epoch) -> Result<Vec<PageId>, VolumeError> {
        let position = self.token_position(token)?;
        Ok(self.journal.changed_since(position).into_iter().map(PageId).collect())
    }

    /// The segments of a page that changed since a token (bit i for segment i), and whether its status
    /// changed. A cache above the volume must discard these segments at a rollback.
    ///
    /// # Errors
    /// [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`], [`VolumeError::NotLoaded`].
    pub fn changed_segments(&self, token: Epoch, page: PageId) -> Result<(u16, bool), VolumeError> {
        let stamp = self.journal.tokens[self.token_position(token)?].stamp;
        let mut segments = 0;
        let mut status = None;
        for entry in self.chain_entries(page) {
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
        // The page did not exist in the token's state.
        Ok((u16::MAX, true))
    }

    /// Restores the state of a token and drops all newer tokens. Epoch numbers are not reused.
    ///
    /// # Errors
    /// [`VolumeError::UnknownToken`], [`VolumeError::ReclaimedToken`], [`VolumeError::NotLoaded`].
    pub fn rollback(&mut self, token: Epoch) -> Result<RollbackReport, VolumeError> {
        let position = self.token_position(token)?;
        let pages = self.pop_since(position)?;
        self.journal.roll_back(position);
        Ok(RollbackReport { token, open: self.journal.open, pages })
    }

    /// Discards all changes of the open epoch, which stays open. Recovery uses it for changes that no
    /// sync covers.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`].
    pub fn discard_open(&mut self) -> Result<(), VolumeError> {
        self.pop_since(self.journal.tokens.len() - 1)?;
        self.journal.open_changed.clear();
        self.journal.open_segments = 0;
        Ok(())
    }

    /// Removes all entries newer than the token at `position`; returns the number of changed pages.
    fn pop_since(&mut self, position: usize) -> Result<u32, VolumeError> {
        let stamp = self.journal.tokens[position].stamp;
        let pages = self.journal.changed_since(position);
        // Requests every chunk to be loaded before the first change.
        for &page in &pages {
            for entry in self.chain_entries(PageId(page)) {
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

    /// True if all stamps are used: [`Volume::renumber`] must run before the open epoch can be closed.
    #[must_use]
    pub fn needs_renumber(&self) -> bool {
        self.journal.stamps_exhausted()
    }

    /// Renumbers the stamps such that the live tokens have the lowest ones. All chunks of the table must
    /// be loaded; every chunk in use is dirty afterwards.
    ///
    /// # Errors
    /// [`VolumeError::NotLoaded`]; [`VolumeError::StampsExhausted`] if the live tokens need all stamps.
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
        // Versions with different stamps between two tokens now have the same stamp. A version hidden by
        // another one of the same stamp is not needed; pruning frees it.
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
