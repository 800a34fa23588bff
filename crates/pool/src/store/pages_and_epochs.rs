//! Operations on pages and epochs: allocation, deletion, permissions, sync, rollback. Each operation holds the log,
//! so that the log records them in the order in which they took place.

use deepram_core::{Bytes, Epoch, PageId, Retention, Status, TokenInfo};

use super::append::Commit;
use super::{Fetched, Log, Result, Store};
use crate::error::PoolError;
use crate::format::batch::Meta;

impl Store {
    /// Returns the first of `count` consecutive free pages.
    pub(crate) fn find_free(&self, count: u32) -> Result<PageId> {
        self.lock_tables().volume.find_free(count).ok_or_else(|| PoolError::NoAddressSpace {
            needed: Bytes(u64::from(count) << 16),
            controller: u32::from(self.identity.controller),
            total: Bytes(u64::from(self.geometry.pages) << 16),
        })
    }

    /// Loads the table chunks that a change of these pages needs.
    pub(crate) fn prepare(&self, mut pages: std::ops::Range<u32>) -> Result<()> {
        pages.try_for_each(|page| self.with_tables(|t| t.volume.coalesce_plan(PageId(page))).map(drop))
    }

    /// Changes consecutive pages and records in the log how many were changed. The table chunks are loaded first, so
    /// that a failed read cannot stop the change half-way.
    fn change_pages(
        &self,
        log: &mut Log,
        pages: std::ops::Range<u32>,
        mut change: impl FnMut(PageId) -> Result<()>,
        meta: impl Fn(u32) -> Meta,
    ) -> Result<()> {
        self.prepare(pages.clone())?;
        let mut done = 0;
        let result = pages.map(PageId).try_for_each(|page| {
            change(page)?;
            done += 1;
            Ok(())
        });
        if done > 0 {
            log.pending.push(meta(done));
        }
        result
    }

    /// Sets the status of pages.
    pub(crate) fn set_status(&self, log: &mut Log, first: PageId, count: u32, status: Status) -> Result<()> {
        let change = |page| {
            self.with_tables(|t| t.volume.set_status(page, status))?;
            self.note_temporary(page.0, status);
            Ok(())
        };
        let (first, status) = (first.0, status.bits());
        self.change_pages(log, first..first + count, change, |count| Meta::Status { first, count, status })
    }

    /// Deletes pages.
    pub(crate) fn delete(&self, log: &mut Log, first: PageId, count: u32) -> Result<()> {
        let change = |page| {
            self.with_tables(|t| t.volume.delete(page))?;
            self.note_temporary(page.0, Status::default());
            Ok(())
        };
        let first = first.0;
        let result =
            self.change_pages(log, first..first + count, change, |count| Meta::Delete { first, count });
        self.update_room();
        result
    }

    pub(super) fn note_temporary(&self, page: u32, status: Status) {
        let mut tables = self.lock_tables();
        if status.allocated() && !status.permanent() {
            tables.temporary.insert(page);
        } else {
            tables.temporary.remove(&page);
        }
    }

    /// Returns the temporary pages.
    pub(crate) fn temporaries(&self) -> Vec<u32> {
        self.lock_tables().temporary.iter().copied().collect()
    }

    pub(crate) fn is_allocated(&self, page: PageId) -> bool {
        self.lock_tables().volume.is_allocated(page)
    }

    /// Returns whether the stamps are used up, so that [`Store::renumber`] must run before the next commit.
    pub(crate) fn needs_renumber(&self) -> bool {
        self.lock_tables().volume.needs_renumber()
    }

    /// Renumbers the stamps and makes that durable.
    pub(crate) fn renumber(&self, log: &mut Log) -> Result<()> {
        self.with_tables(|t| t.volume.renumber())?;
        self.checkpoint(log)
    }

    /// Closes the open epoch in the tables, after its commit is durable on every controller.
    pub(crate) fn close_epoch(&self, wall_ns: u64) -> Result<Epoch> {
        self.with_tables(|t| t.volume.close_epoch(wall_ns))
    }

    pub(crate) fn tokens(&self) -> Vec<TokenInfo> {
        self.lock_tables().volume.tokens().to_vec()
    }

    pub(crate) fn changed_since(&self, token: Epoch) -> Result<Vec<PageId>> {
        self.lock_tables().volume.changed_since(token).map_err(|error| self.volume_error(error))
    }

    /// Commits a rollback to a token. Returns, for each page that has changed since the token, its changed segments
    /// (one bit for each) and whether its status changed. The tables change only when every controller has committed
    /// ([`Store::rollback`]); until then the state is unchanged.
    pub(crate) fn commit_rollback(
        &self,
        log: &mut Log,
        token: Epoch,
        lines: u64,
    ) -> Result<Vec<(PageId, u16, bool)>> {
        let pages = self.changed_since(token)?;
        let mut changes = Vec::with_capacity(pages.len());
        for &page in &pages {
            // Also loads every table chunk that the rollback needs.
            self.with_tables(|t| t.volume.coalesce_plan(page))?;
            let (segments, status) = self.with_tables(|t| t.volume.changed_segments(token, page))?;
            changes.push((page, segments, status));
        }
        let open = Epoch(self.open_epoch().0 + 1);
        self.commit(log, Commit::Rollback { token, open, lines }, &[], &mut |_, _| {}, &mut |_| {})?;
        Ok(changes)
    }

    /// Returns the tables to the state of a token.
    pub(crate) fn rollback(&self, token: Epoch) -> Result<()> {
        let pages = self.changed_since(token)?;
        self.with_tables(|t| t.volume.rollback(token))?;
        self.refresh_temporaries(&pages)?;
        self.update_room();
        Ok(())
    }

    pub(super) fn refresh_temporaries(&self, pages: &[PageId]) -> Result<()> {
        for &page in pages {
            let status = self.with_tables(|t| t.volume.status(page))?;
            self.note_temporary(page.0, status);
        }
        Ok(())
    }

    /// Changes the retention policy.
    pub(crate) fn set_retention(&self, retention: Retention) {
        self.lock_tables().volume.set_retention(retention);
    }

    pub(crate) fn retention(&self) -> Retention {
        self.lock_tables().volume.config().retention
    }

    /// Reads a segment as a token saw it.
    pub(crate) fn read_at(&self, token: Epoch, page: PageId, segment: u8, buffer: &mut [u8]) -> Result<()> {
        // Returns a clear error for an unknown token.
        self.changed_since(token)?;
        if self.fetch_at(token, page, segment, buffer)? == Fetched::Zero {
            buffer.fill(0);
        }
        Ok(())
    }

    /// Returns the segments of a page, one bit for each, of which two tokens have different versions, or a token and
    /// the present.
    pub(crate) fn differing_segments(&self, page: PageId, from: Epoch, to: Option<Epoch>) -> Result<u16> {
        let per_page = self.geometry.segment.per_page();
        self.with_tables(|t| {
            (0..per_page).try_fold(0, |differing, segment| {
                let then = t.volume.lookup_at(from, page, segment)?;
                let later = match to {
                    Some(to) => t.volume.lookup_at(to, page, segment)?,
                    None => t.volume.lookup(page, segment)?,
                };
                let differs = then.map(|version| version.slot) != later.map(|version| version.slot);
                Ok(differing | u16::from(differs) << segment)
            })
        })
    }

    /// Returns the number of allocated pages.
    pub(crate) fn allocated_pages(&self) -> u32 {
        self.lock_tables().volume.allocated_pages()
    }

    /// Returns the number of live segments on flash, and the number of segments that still fit.
    pub(crate) fn usage(&self) -> (u64, i64) {
        let room = self.room.load(std::sync::atomic::Ordering::Relaxed);
        let capacity = super::space::capacity(&self.geometry).cast_signed();
        ((capacity - room).max(0).cast_unsigned(), room)
    }

    /// Makes everything durable and marks the header as closed in order.
    pub(crate) fn close(&self, log: &mut Log) -> Result<()> {
        self.checkpoint_as(log, true)
    }
}
