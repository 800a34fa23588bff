//! The page cache of a file system on a drive: which pages are cached, which are dirty and by whom, and which the drive
//! holds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use deepram_core::cache::{AccessOutcome, Lru, Replacement};
use deepram_media::Platform;

use super::drive::BLOCK;
use super::page_set::PageSet;

/// The owner of dirty pages of mapped files. Other pages belong to the thread that wrote them.
pub(super) const MAPPED: u32 = u32::MAX;

/// Outcome of a use of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageUse {
    pub(super) hit: bool,
    /// The page must be read from the drive.
    pub(super) fetch: bool,
    /// A dirty page that left the cache and must be written.
    pub(super) victim: Option<u64>,
}

/// The page cache.
pub(super) struct PageCache {
    pages: Lru<u64>,
    /// Dirty pages with their owners, and the same by owner.
    dirty: BTreeMap<u64, u32>,
    by_owner: BTreeSet<(u32, u64)>,
    /// Pages that the drive holds besides the initial ones.
    written: PageSet,
    initial: u64,
    background: u64,
    most: u64,
    /// The page behind the last one of background write-back.
    cursor: u64,
}

/// The pages that contain a byte of the range.
pub(super) fn pages_of(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / BLOCK..range.end.div_ceil(BLOCK) }
}

/// Runs of neighbouring pages: first page and number.
pub(super) fn runs(pages: &[u64]) -> Vec<(u64, u64)> {
    pages
        .chunk_by(|a, b| a + 1 == *b)
        .filter_map(|run| run.first().map(|first| (*first, run.len() as u64)))
        .collect()
}

impl PageCache {
    pub(super) fn new(platform: &Platform) -> Self {
        let capacity = platform.page_cache.0 / BLOCK;
        let share = |of: f64| (of * capacity as f64) as u64;
        let initial = platform.stored.0.div_ceil(BLOCK);
        let mut pages = Lru::new(capacity as usize);
        if platform.warm {
            (0..initial.min(capacity)).for_each(|page| pages.insert(page));
        }
        Self {
            pages,
            dirty: BTreeMap::new(),
            by_owner: BTreeSet::new(),
            written: PageSet::default(),
            initial,
            background: share(platform.background_dirty.0),
            most: share(platform.most_dirty.0),
            cursor: 0,
        }
    }

    fn on_drive(&self, page: u64) -> bool {
        page < self.initial || self.written.contains(page)
    }

    /// Uses a page. `whole` if all of it is to be written, so that its old data are not needed.
    pub(super) fn touch(&mut self, page: u64, whole: bool) -> PageUse {
        match self.pages.access(page) {
            AccessOutcome::Hit => PageUse { hit: true, fetch: false, victim: None },
            AccessOutcome::Miss { evicted } => {
                let victim = evicted.filter(|victim| self.clean(*victim));
                PageUse { hit: false, fetch: !whole && self.on_drive(page), victim }
            }
        }
    }

    /// Makes a page dirty. Returns whether it was clean.
    pub(super) fn make_dirty(&mut self, page: u64, owner: u32) -> bool {
        let before = self.dirty.insert(page, owner);
        if let Some(other) = before {
            self.by_owner.remove(&(other, page));
        }
        self.by_owner.insert((owner, page));
        before.is_none()
    }

    /// Takes a page off the dirty ones: it is being written. Returns whether it was dirty.
    fn clean(&mut self, page: u64) -> bool {
        let Some(owner) = self.dirty.remove(&page) else { return false };
        self.by_owner.remove(&(owner, page));
        self.written.insert(page);
        true
    }

    /// The dirty pages of an owner, which become clean: they are being written.
    pub(super) fn take_dirty(&mut self, owner: u32) -> Vec<u64> {
        let pages: Vec<u64> =
            self.by_owner.range((owner, 0)..=(owner, u64::MAX)).map(|(_, page)| *page).collect();
        for page in &pages {
            self.clean(*page);
        }
        pages
    }

    /// The next pages of background write-back, in the order of addresses, which become clean; none while few are dirty.
    pub(super) fn take_background(&mut self, most: usize) -> Vec<u64> {
        if self.dirty.len() as u64 <= self.background {
            return Vec::new();
        }
        let mut pages: Vec<u64> = self.dirty.range(self.cursor..).map(|(page, _)| *page).take(most).collect();
        if pages.is_empty() {
            pages = self.dirty.keys().copied().take(most).collect();
        }
        self.cursor = pages.last().map_or(0, |last| last + 1);
        for page in &pages {
            self.clean(*page);
        }
        pages
    }

    /// Whether writes must wait for write-back.
    pub(super) fn is_over_limit(&self) -> bool {
        self.dirty.len() as u64 > self.most
    }

    /// Drops pages of deleted data.
    pub(super) fn drop_pages(&mut self, pages: Range<u64>) {
        for page in pages {
            self.pages.remove(page);
            if let Some(owner) = self.dirty.remove(&page) {
                self.by_owner.remove(&(owner, page));
            }
            self.written.remove(page);
        }
    }

    /// Whether both lists of dirty pages agree, and no more pages are cached than fit.
    pub(super) fn is_consistent(&self) -> bool {
        self.dirty.len() == self.by_owner.len() && self.pages.len() <= self.pages.capacity()
    }
}
