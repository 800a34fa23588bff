//! The dirty pages as a list, kept from the page faults of the first stores.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// When a page that a flush finds dirty stays dirty, although the flush could clear it.
///
/// Clearing costs a page fault at the next store; a page that stays dirty costs the write-back of all of its lines in the
/// next flushes, most of them clean. A page to which a program stores between all flushes should therefore stay dirty,
/// any other be cleared. The future is unknown, so a page stays dirty for as many flushes as cost together about as much
/// as a page fault, and is then cleared: the cost is at most about twice the least possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeepDirty {
    /// Most pages that stay dirty; with more dirty pages, all are cleared.
    pub pages: usize,
    /// Flushes in which a page stays dirty before it is cleared.
    pub flushes: u32,
}

impl KeepDirty {
    /// Every flush clears the pages that it contains.
    pub const NONE: Self = Self { pages: 0, flushes: 0 };
}

/// A run of dirty pages that a flush has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyRun {
    /// Numbers of the pages.
    pub pages: Range<u64>,
    /// Whether the pages are clean from now on: the driver protects them from stores before it lets other threads use
    /// the list, and before it writes them back.
    pub cleared: bool,
}

/// The pages to which the program may store without a page fault: the dirty ones. Every other page is write-protected,
/// and the driver enters a page here before it makes it writable. A flush looks at no clean page: its cost depends on
/// the number of dirty pages alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirtyList {
    /// The dirty pages, each with the number of flushes that have left it dirty.
    pages: BTreeMap<u64, u32>,
}

impl DirtyList {
    /// No page is dirty.
    #[must_use]
    pub const fn new() -> Self {
        Self { pages: BTreeMap::new() }
    }

    /// Number of dirty pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether no page is dirty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Enters a page, because a store to it has caused a page fault or it could not be protected.
    pub fn enter(&mut self, page: u64) {
        self.pages.entry(page).or_insert(0);
    }

    /// Adds the dirty pages among `pages` to `found`, in ascending order. With `clear`, those that `keep` does not keep
    /// leave the list.
    pub fn examine(
        &mut self,
        pages: Range<u64>,
        clear: bool,
        keep: KeepDirty,
        found: &mut impl Extend<DirtyRun>,
    ) {
        let keeps_any = self.pages.len() <= keep.pages;
        let mut run: Option<DirtyRun> = None;
        let mut cleared_any = false;
        for (&page, flushes) in self.pages.range_mut(pages.clone()) {
            let cleared = clear && !(keeps_any && *flushes < keep.flushes);
            if clear {
                *flushes += 1;
            }
            cleared_any |= cleared;
            match &mut run {
                Some(run) if run.pages.end == page && run.cleared == cleared => run.pages.end += 1,
                _ => found.extend(run.replace(DirtyRun { pages: page..page + 1, cleared })),
            }
            if cleared {
                *flushes = u32::MAX;
            }
        }
        found.extend(run);
        if cleared_any {
            self.remove(pages);
        }
    }

    /// Removes the pages among these that were marked as cleared.
    fn remove(&mut self, pages: Range<u64>) {
        let cleared = |(_, flushes): (&u64, &u32)| *flushes == u32::MAX;
        if self.pages.range(pages.clone()).all(cleared) {
            let mut rest = self.pages.split_off(&pages.start);
            self.pages.append(&mut rest.split_off(&pages.end));
        } else {
            self.pages.retain(|page, flushes| !(pages.contains(page) && *flushes == u32::MAX));
        }
    }
}
