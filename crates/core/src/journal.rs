//! Epochs, tokens and retention (NVMM, Software Interface: sync and rollback; facts 8 item 5).
//!
//! An epoch is what a sync closes; its number is handed out as a token and never used again. An
//! entry stores the 24-bit **stamp** of its epoch. A version with stamp `t`, superseded by one with
//! stamp `u`, is needed as long as a live token has its stamp in `t..u`.
//!
//! For every live token the journal keeps the pages that changed between the next older one and
//! it. That serves both ways out: rolling back to a token touches the pages changed since; giving
//! a token up can only free versions of the pages changed between it and the next younger one.

use alloc::vec::Vec;

use crate::page_table::MAX_STAMP;
use crate::units::{Epoch, Stamp};

/// A state that can be returned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenInfo {
    /// The epoch that was closed.
    pub epoch: Epoch,
    /// Its stamp.
    pub stamp: Stamp,
    /// When, as the driver gave it: nanoseconds since 1970 in the pool, virtual time elsewhere.
    pub wall_ns: u64,
    /// Pages that changed since the token before.
    pub pages_changed: u32,
    /// Segments that were written since the token before.
    pub segments_written: u64,
}

/// Which tokens are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// The last `n` tokens, at least one.
    KeepLast(u32),
    /// As many as fit: the segments written since the oldest token, which bound what only old
    /// tokens hold, stay below this many. The last token is kept in any case.
    Segments(u64),
}

/// Epochs and tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub(crate) open: Epoch,
    pub(crate) open_stamp: Stamp,
    pub(crate) stamp_limit: u32,
    pub(crate) retention: Retention,
    /// Oldest first; never empty.
    pub(crate) tokens: Vec<TokenInfo>,
    /// Pages changed up to each token, since the one before; for the oldest: none.
    pub(crate) changed: Vec<Vec<u32>>,
    pub(crate) open_changed: Vec<u32>,
    pub(crate) open_segments: u64,
    /// Pages whose chains may hold versions that nobody needs.
    pub(crate) to_prune: Vec<u32>,
}

impl Journal {
    /// A journal whose first token, epoch 0, is the empty state.
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

    /// The youngest token.
    pub(crate) fn last(&self) -> TokenInfo {
        self.tokens[self.tokens.len() - 1]
    }

    /// Position of a live token.
    pub(crate) fn position(&self, token: Epoch) -> Option<usize> {
        self.tokens.binary_search_by_key(&token, |t| t.epoch).ok()
    }

    /// Whether a live token sees a version of stamp `from` that was superseded at stamp `until`.
    pub(crate) fn sees(&self, from: Stamp, until: Stamp) -> bool {
        let first = self.tokens.partition_point(|t| t.stamp < from);
        self.tokens.get(first).is_some_and(|t| t.stamp < until)
    }

    /// The oldest live token that can see a version of this stamp, or else the open epoch: the
    /// state in whose making it was written.
    pub(crate) fn epoch_of(&self, stamp: Stamp) -> Epoch {
        let first = self.tokens.partition_point(|t| t.stamp < stamp);
        self.tokens.get(first).map_or(self.open, |t| t.epoch)
    }

    /// Whether stamps have run out: the open epoch can be closed only after renumbering.
    pub(crate) fn exhausted(&self) -> bool {
        self.open_stamp.0 >= self.stamp_limit
    }

    /// Notes that a page changed in the open epoch. Pages that come and go within it are noted
    /// each time, so the list is thinned before it grows.
    pub(crate) fn note(&mut self, page: u32) {
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

    /// The oldest token, if the retention no longer covers it.
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

    /// Gives up the token at `position`, which is not the last. What only it could see lies in
    /// the pages changed up to the next younger token.
    pub(crate) fn drop_at(&mut self, position: usize) {
        let dropped = self.tokens.remove(position);
        let older = self.changed.remove(position);
        self.to_prune.extend_from_slice(&self.changed[position]);
        if position == 0 {
            // Nothing older to roll back to: this list has no further use.
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

    /// Makes the token at `position` the last one and opens an epoch that never was.
    pub(crate) fn roll_back(&mut self, position: usize) {
        self.tokens.truncate(position + 1);
        self.changed.truncate(position + 1);
        self.open_changed.clear();
        self.open_segments = 0;
        self.open = Epoch(self.open.0 + 1);
        // Stamps beyond the token's are in use no more.
        self.open_stamp = Stamp(self.last().stamp.0 + 1);
    }

    /// What becomes of a stamp when stamps are numbered anew: tokens count 0, 1, 2, … and a
    /// version takes the number of the oldest token that sees it.
    pub(crate) fn renumbered(&self, stamp: Stamp) -> Stamp {
        Stamp(self.tokens.partition_point(|t| t.stamp < stamp) as u32)
    }

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
