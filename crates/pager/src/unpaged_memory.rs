//! Memory of the program that is not paged: stacks, small mappings, memory that was mapped before the pager started.
//! Where the budget covers the whole program, unpaged memory takes frames from paged memory.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::budget_members::Notice;
use super::shared_memory::SharedMemory;
use super::{Inner, PAGE};
use deepram_linux::message::write_line;

/// One part in this many of the frames stays with paged memory, however much memory is unpaged: with fewer frames,
/// pages would only move in and out.
pub(super) const PAGED_SHARE: usize = 4;

impl Inner {
    /// Charges the unpaged memory of the process, which is in no table, against the budget.
    pub(super) fn count_unpaged(&self) {
        static REPORTED: AtomicBool = AtomicBool::new(false);
        if !self.options.whole_process {
            return;
        }
        let Some(anonymous) = self.proc_files.anonymous_pages() else { return };
        let shared = SharedMemory::counted(&self.shared_memory.lock());
        // The kernel does not count shared memory as anonymous.
        let others = self.frames.unpaged() + self.frames.unpopulated() + shared;
        let counted = self.frames.used().saturating_sub(others);
        let unpaged = anonymous.saturating_sub(counted);
        let most = self.frames.limit() - self.frames.limit() / PAGED_SHARE;
        let is_first =
            || self.options.shared_budget.is_none_or(|budget| budget.is_first_notice(Notice::UnpagedMemory));
        if unpaged > most && !REPORTED.swap(true, Relaxed) && is_first() {
            write_line(format_args!(
                "deepram: unpaged memory (stacks, small mappings) takes {} of the {} MiB of DRAM; the program exceeds the \
                 budget, because a quarter of it is kept for paged memory",
                (unpaged * PAGE) >> 20,
                self.dram.load(Relaxed) >> 20
            ));
        }
        self.frames.set_unpaged(unpaged.min(most));
    }
}
