//! The buffers of simulated handlers: how many reads are in flight at once.

use deepram_core::paging::ReadPlan;

/// The handlers' buffers for reads, as one stock.
#[derive(Debug)]
pub(crate) struct ReadSlots {
    handlers: usize,
    plan: ReadPlan,
    single: usize,
    multi: usize,
}

impl ReadSlots {
    /// The buffers of this many handlers of a memory with `dram` bytes of DRAM, in pages of `page_bytes`.
    pub(crate) fn new(handlers: usize, dram: u64, page_bytes: u64) -> Self {
        let plan = ReadPlan::new(usize::try_from(dram).unwrap_or(usize::MAX), page_bytes as usize, true);
        Self { handlers, plan, single: handlers * plan.singles, multi: handlers * plan.multis }
    }

    /// Bytes of all buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.handlers * self.plan.buffer_bytes()
    }

    /// Takes a buffer for this many pages, which are read ahead of use or for a fault. Returns whether there was one; a
    /// fault always gets one.
    pub(crate) fn acquire(&mut self, pages: usize, ahead: bool) -> bool {
        let (free, reserve) = match pages {
            1 => (&mut self.single, if ahead { self.handlers * self.plan.fault_reserve() } else { 0 }),
            _ => (&mut self.multi, 0),
        };
        let taken = *free > reserve;
        *free = free.saturating_sub(usize::from(taken));
        taken
    }

    /// Pages of the longest read.
    pub(crate) fn run_pages(&self) -> usize {
        self.plan.run_pages
    }

    /// Releases the buffer of a read of this many pages.
    pub(crate) fn release(&mut self, pages: usize) {
        let (free, most) = match pages {
            1 => (&mut self.single, self.handlers * self.plan.singles),
            _ => (&mut self.multi, self.handlers * self.plan.multis),
        };
        *free = most.min(*free + 1);
    }
}
