//! Memory of the program that is not paged: stacks, small mappings, what was there before the pager. Where the
//! budget is the whole program's, it takes frames from what is paged.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::seats::Notice;
use super::sharing::Sharing;
use super::{Inner, PAGE};
use crate::message::write_line;

/// This part of the frames stays with what is paged, whatever is beside it: with less it would only move.
const LEAST_SHARE: usize = 4;

impl Inner {
    /// Counts what is beside the paged memory, and in no table, as used.
    pub(super) fn count_beside(&self) {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !self.options.whole {
            return;
        }
        let Some(anonymous) = self.kernel.anonymous_pages() else { return };
        let shared = Sharing::counted(&self.sharing.lock());
        // Shared memory is not anonymous to the kernel.
        let counted = self.frames.used().saturating_sub(self.frames.beside() + shared);
        let beside = anonymous.saturating_sub(counted);
        let most = self.frames.limit() - self.frames.limit() / LEAST_SHARE;
        let is_news = || self.options.shared.is_none_or(|budget| budget.is_news(Notice::Beside));
        if beside > most && !SAID.swap(true, Relaxed) && is_news() {
            write_line(format_args!(
                "deepram: memory that cannot be paged (stacks, small mappings) takes {} of the {} MiB of DRAM; the \
                 program goes beyond them, as a quarter is kept for what is paged",
                (beside * PAGE) >> 20,
                self.dram.load(Relaxed) >> 20
            ));
        }
        self.frames.set_beside(beside.min(most));
    }
}
