//! The journal: epochs, tokens and retention (NVMM, Software Interface: sync and rollback; the paper
//! gives no algorithm for either).
//!
//! A sync closes an epoch. The epoch's number is the caller's token and is never used again. A
//! page-table entry stores the 24-bit **stamp** of its epoch. A version with stamp `t` that was
//! superseded by a version with stamp `u` is needed as long as the stamp of a live token is in `t..u`.
//!
//! For every live token the journal keeps the list of pages that changed since the next older token. A
//! rollback to a token visits only the pages that changed since; dropping a token can free versions only
//! of pages that changed between that token and the next newer one.

use alloc::vec::Vec;

use crate::page_table::MAX_STAMP;
use crate::units::{Epoch, Stamp};

/// A token: a state that a rollback can restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenInfo {
    /// The closed epoch.
    pub epoch: Epoch,
    /// The epoch's stamp.
    pub stamp: Stamp,
    /// The driver's time of the sync: nanoseconds since 1970 in the pool, virtual time in the simulator.
    pub wall_ns: u64,
    /// Number of pages that changed since the previous token.
    pub pages_changed: u32,
    /// Number of segments written since the previous token.
    pub segments_written: u64,
}

/// The rule for keeping tokens. The newest token is always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// Keep the newest `n` tokens, at least one.
    KeepLast(u32),
    /// Keep tokens as long as at most this many segments were written since the oldest one. This bounds
    /// the flash that only old tokens need.
    Segments(u64),
}

/// The journal of a volume; see the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub(crate) open: Epoch,
    pub(crate) open_stamp: Stamp,
    pub(crate) stamp_limit: u32,
    pub(crate) retention: Retention,
    /// Live tokens, oldest first; never empty.
    pub(crate) tokens: Vec<TokenInfo>,
    /// For each token the pages that changed since the previous one; empty for the oldest token.
    pub(crate) changed: Vec<Vec<u32>>,
    pub(crate) open_changed: Vec<u32>,
    pub(crate) open_segments: u64,
    /// Pages whose chains may contain versions that no token and no current page needs.
    pub(crate) to_prune: Vec<u32>,
}

impl Journal {
    /// A journal whose only token, epoch 0, is the empty volume.
    pub(crate) fn new(stamp_limit: u32, retention: Retention) -> Self {
        let empty =
            TokenInfo { epoch: Epoch(0), stamp: Stamp(0), wall_ns: 0, pages_changed: 0, segments_written: 0 };
        Self {
            open: Epoch(1),
            open_stamp: Stamp(1),
            stamp_limit: stamp_limit.min(MAX_STAMP),
            retention,
            tokens: alloc::vec![empty],
            changed: alloc::vec![Vec::new()],
            open_changed: Vec::new(),
            open_segments: 0,
            to_prune: Vec::new(),
        }
    }

    /// The newest token.
    pub(crate) fn newest_token(&self) -> TokenInfo {
        self.tokens[self.tokens.len() - 1]
    }

    /// The position of a live token in `tokens`.
    pub(crate) fn position(&self, token: Epoch) -> Option<usize> {
        self.tokens.binary_search_by_key(&token, |t| t.epoch).ok()
    }

    /// True if a live token sees a version that has stamp `from` and was superseded at stamp `until`.
    pub(crate) fn any_token_sees(&self, from: Stamp, until: Stamp) -> bool {
        let first = self.tokens.partition_point(|t| t.stamp < from);
        self.tokens.get(first).is_some_and(|t| t.stamp < until)
    }

    /// The oldest live token that can see a version of this stamp; without one, the open epoch.
    pub(crate) fn epoch_of(&self, stamp: Stamp) -> Epoch {
        let first = self.tokens.partition_point(|t| t.stamp < stamp);
        self.tokens.get(first).map_or(self.open, |t| t.epoch)
    }

    /// True if no stamp is left for a further epoch: renumbering must precede the next sync.
    pub(crate) fn stamps_exhausted(&self) -> bool {
        self.open_stamp.0 >= self.stamp_limit
    }

    /// Records that a page changed in the open epoch. A page that is created and deleted repeatedly is
    /// recorded each time, so duplicates are removed before the list grows.
    pub(crate) fn record_change(&mut self, page: u32) {
        let changed = &mut self.open_changed;
        if changed.len() == changed.capacity() {
            changed.sort_unstable();
            changed.dedup();
            if changed.len() > changed.capacity() / 2 {
                changed.reserve(changed.len());
            }
        }
        changed.push(page);
    }

    /// Closes the open epoch and opens the next one; returns the closed epoch.
    pub(crate) fn close(&mut self, wall_ns: u64) -> Epoch {
        let mut changed = core::mem::take(&mut self.open_changed);
        changed.sort_unstable();
        changed.dedup();
        self.tokens.push(TokenInfo {
            epoch: self.open,
            stamp: self.open_stamp,
            wall_ns,
            pages_changed: changed.len() as u32,
            segments_written: core::mem::take(&mut self.open_segments),
        });
        self.changed.push(changed);
        let closed = self.open;
        self.open = Epoch(closed.0 + 1);
        self.open_stamp = Stamp(self.open_stamp.0 + 1);
        closed
    }

    /// The oldest token, if the retention rule no longer keeps it.
    pub(crate) fn expired(&self) -> Option<Epoch> {
        let oldest = self.tokens.first()?;
        let over = match self.retention {
            Retention::KeepLast(n) => self.tokens.len() > n.max(1) as usize,
            Retention::Segments(limit) => {
                let written = self.tokens[1..].iter().map(|t| t.segments_written);
                self.tokens.len() > 1 && written.fold(self.open_segments, u64::saturating_add) > limit
            }
        };
        over.then_some(oldest.epoch)
    }

    /// Drops the token at `position`, which must not be the newest. Versions that only this token sees
    /// belong to pages that changed up to the next newer token; these pages are queued for pruning.
    pub(crate) fn drop_token(&mut self, position: usize) {
        let dropped = self.tokens.remove(position);
        let older = self.changed.remove(position);
        self.to_prune.extend_from_slice(&self.changed[position]);
        if position == 0 {
            // The new oldest token has no older one to roll back to and needs no list.
            self.changed[0] = Vec::new();
        } else {
            let merged = &mut self.changed[position];
            merged.extend_from_slice(&older);
            merged.sort_unstable();
            merged.dedup();
            let next = &mut self.tokens[position];
            next.pages_changed = merged.len() as u32;
            next.segments_written = next.segments_written.saturating_add(dropped.segments_written);
        }
    }

    /// Pages changed since the token at `position`, sorted.
    pub(crate) fn changed_since(&self, position: usize) -> Vec<u32> {
        let mut pages = self.open_changed.clone();
        for list in &self.changed[position + 1..] {
            pages.extend_from_slice(list);
        }
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Makes the token at `position` the newest and opens an epoch with a new number.
    pub(crate) fn roll_back(&mut self, position: usize) {
        self.tokens.truncate(position + 1);
        self.changed.truncate(position + 1);
        self.open_changed.clear();
        self.open_segments = 0;
        self.open = Epoch(self.open.0 + 1);
        // No entry has a stamp beyond the token's any more.
        self.open_stamp = Stamp(self.newest_token().stamp.0 + 1);
    }

    /// A stamp's value after renumbering: the tokens get 0, 1, 2, …, and a version gets the stamp of the
    /// oldest token that sees it.
    pub(crate) fn renumbered(&self, stamp: Stamp) -> Stamp {
        Stamp(self.tokens.partition_point(|t| t.stamp < stamp) as u32)
    }

    /// Renumbers the stamps of the tokens and of the open epoch; see [`Journal::renumbered`].
    pub(crate) fn renumber(&mut self) {
        for (n, token) in self.tokens.iter_mut().enumerate() {
            token.stamp = Stamp(n as u32);
        }
        self.open_stamp = Stamp(self.tokens.len() as u32);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let lists: usize = self.changed.iter().map(Vec::capacity).sum();
        (lists + self.open_changed.capacity() + self.to_prune.capacity()) * size_of::<u32>()
            + self.tokens.capacity() * (size_of::<TokenInfo>() + size_of::<Vec<u32>>())
    }
}
