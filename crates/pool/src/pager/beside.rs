//! Memory of the program that is not paged: stacks, small mappings, what was there before the pager. Where the
//! budget is the whole program's, it takes frames from what is paged.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::sharing::Sharing;
use super::{Ground, Inner, PAGE};
use crate::lock::lock;

/// This part of the frames stays with what is paged, whatever is beside it: with less it would only move.
const LEAST_SHARE: usize = 4;

impl Inner {
    /// Counts what is beside the paged memory as used. `tables` are bytes of it that are in the budget already.
    pub(super) fn count_beside(&self, ground: &Ground, tables: usize) {
        static SAID: AtomicBool = AtomicBool::new(false);
        if !self.options.whole {
            return;
        }
        let Some((anonymous, pinned)) = memory_pages() else { return };
        if pinned > 0 && !self.direct.load(Relaxed) {
            // Where the kernel does not move pages this was said, or would have been, when the first was pinned.
            self.direct.store(ground.watch.transfers(), Relaxed);
        }
        let shared = Sharing::counted(&self.sharing.lock());
        let paged = self.frames.used().saturating_sub(self.frames.beside() + shared);
        let idle = lock(&self.room).idle();
        let beside = anonymous.saturating_sub(paged + idle + tables.div_ceil(PAGE));
        let most = self.frames.limit() - self.frames.limit() / LEAST_SHARE;
        if beside > most && !SAID.swap(true, Relaxed) {
            eprintln!(
                "deepram: memory that cannot be paged (stacks, small mappings) takes {} of the {} MiB of DRAM; the \
                 program goes beyond them, as a quarter is kept for what is paged",
                (beside * PAGE) >> 20,
                self.dram.load(Relaxed) >> 20
            );
        }
        self.frames.set_beside(beside.min(most));
    }
}

/// Pages of this process that are neither a file's nor shared, and those pinned for long, for devices to store to.
fn memory_pages() -> Option<(usize, usize)> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim_end().parse::<usize>().ok()? * 1024 / PAGE)
    };
    Some((of("RssAnon:")?, of("VmPin:")?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_tells_how_much_memory_a_process_has() {
        let (anonymous, pinned) = super::memory_pages().expect("Linux tells");
        assert!(anonymous > 0);
        assert_eq!(pinned, 0);
    }
}
