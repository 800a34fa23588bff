//! Pages that a flush has cleared and not yet made durable.

use alloc::vec::Vec;
use core::ops::Range;

/// One flush among those that are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlushId(u64);

/// The pages whose dirty bits flushes under way have cleared.
///
/// Such a page looks clean to another flush, although its lines may be in the cache alone. The other flush must therefore
/// write it back as well ([`InFlight::among`]), or it would return before the stores are durable. The driver looks at
/// dirty bits, asks this list and enters the cleared pages in it under one lock; it writes lines back without the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct InFlight {
    next: u64,
    cleared: Vec<(FlushId, Range<u64>)>,
}

impl InFlight {
    /// No flush under way.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: 0, cleared: Vec::new() }
    }

    /// A number for a flush, by which it enters and leaves.
    pub fn begin(&mut self) -> FlushId {
        self.next += 1;
        FlushId(self.next)
    }

    /// Enters pages whose dirty bits this flush has cleared.
    pub fn enter(&mut self, flush: FlushId, pages: Range<u64>) {
        self.cleared.push((flush, pages));
    }

    /// The runs of these pages that other flushes have cleared. Runs may overlap.
    pub fn among(&self, flush: FlushId, pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let others = self.cleared.iter().filter(move |(other, _)| *other != flush);
        let common = others.map(move |(_, run)| run.start.max(pages.start)..run.end.min(pages.end));
        common.filter(|run| !run.is_empty())
    }

    /// Removes the pages of a flush, after its barrier.
    pub fn end(&mut self, flush: FlushId) {
        self.cleared.retain(|(other, _)| *other != flush);
    }
}
