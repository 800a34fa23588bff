//! How many reads a handler has in flight, and how long they are: the plan of its buffers (ADR 16, ADR 19).
//!
//! A handler has buffers for reads of one page, for faults and scattered readahead, and for reads of several neighbouring
//! pages, for readahead alone. Both follow the DRAM, of which they are a part.

/// Largest number of pages in one request to read ahead, and in one read.
pub const BATCH: usize = 64;
/// Most and fewest reads of one page in flight at once.
const SINGLE_READS: (usize, usize) = (48, 4);
/// Of the reads of one page, readahead leaves one third free for faults.
const FAULT_SHARE: usize = 3;
/// Largest number of reads of several pages in flight at once.
const MULTI_READS: usize = 4;
/// The buffers of a handler take one part in this many of the DRAM for reads of one page, and as much for longer ones.
const BUFFERS_SHARE: usize = 64;

/// Numbers and sizes of a handler's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlan {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Reads of one page in flight.
    pub singles: usize,
    /// Reads of several pages in flight.
    pub multis: usize,
    /// Pages of the longest read.
    pub run_pages: usize,
}

impl ReadPlan {
    /// The plan for `dram` bytes of DRAM, if reads can be in flight together; otherwise one read at a time.
    #[must_use]
    pub fn new(dram: usize, page_bytes: usize, concurrent: bool) -> Self {
        let share = dram / BUFFERS_SHARE / page_bytes;
        let multis = if concurrent { (share / BATCH).clamp(1, MULTI_READS) } else { 1 };
        let longest = (BATCH * 4096 / page_bytes).max(1);
        let singles = if concurrent { share.clamp(SINGLE_READS.1, SINGLE_READS.0) } else { 1 };
        Self { page_bytes, singles, multis, run_pages: (share / multis).clamp(1, longest) }
    }

    /// Reads of one page that readahead leaves to faults.
    #[must_use]
    pub fn fault_reserve(&self) -> usize {
        self.singles / FAULT_SHARE
    }

    /// Bytes of all buffers, once all of them have been used.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        (self.singles + self.multis * self.run_pages) * self.page_bytes
    }

    /// The number of reads in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.singles + self.multis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_the_dram() {
        for (dram, expected) in [
            (1 << 20, ReadPlan { page_bytes: 4096, singles: 4, multis: 1, run_pages: 4 }),
            (32 << 20, ReadPlan { page_bytes: 4096, singles: 48, multis: 2, run_pages: 64 }),
            (1 << 30, ReadPlan { page_bytes: 4096, singles: 48, multis: 4, run_pages: 64 }),
        ] {
            assert_eq!(ReadPlan::new(dram, 4096, true), expected, "{dram}");
        }
        assert_eq!(ReadPlan::new(1 << 30, 4096, true).fault_reserve(), 16);
        let large = ReadPlan::new(1 << 30, 16 << 10, true);
        assert_eq!((large.run_pages, large.depth()), (16, 52));
        assert_eq!(ReadPlan::new(1 << 30, 4096, false).depth(), 2, "one read at a time");
    }
}
