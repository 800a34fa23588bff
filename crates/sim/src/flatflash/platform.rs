//! The platform of FlatFlash's evaluation (section 4): host memory stands for the device buffer, and page
//! protection for the link.
//!
//! 1. Within a protection epoch, the processor's first access to a page at the drive raises an exception,
//!    even if the line is in the processor's cache: the access takes the drive's time and is counted for
//!    promotion.
//! 2. Later accesses to the page take what DRAM takes. Neither Algorithm 1 nor RRIP sees them.
//! 3. At the end of an epoch a thread protects the pages again and removes their translations from the
//!    TLBs. A page that leaves the device buffer is protected, too, and takes its lines out of the
//!    processor's cache with it.

use deepram_core::units::Picos;

use super::memory::AT_DRIVE;
use super::{FlatMemory, LINES};
use crate::engine::Time;
use crate::error::SimError;

/// The protection of the pages in the device buffer.
#[derive(Debug)]
pub(super) struct Protection {
    epoch: Time,
    current: u64,
    /// For each frame of the device buffer, whether its page can be accessed without an exception.
    open: Vec<bool>,
    /// Frames opened in the current epoch, with their pages.
    opened: Vec<(usize, u32)>,
}

impl Protection {
    /// Protects all pages of a device buffer of `frames` frames; `None` if the preset's epoch is 0.
    pub(super) fn new(epoch: Picos, frames: usize) -> Option<Self> {
        let opened = Vec::new();
        (epoch.0 > 0).then(|| Self { epoch: epoch.0, current: 0, open: vec![false; frames], opened })
    }

    /// Advances to the epoch of `now`. Returns the pages that a new epoch protects again.
    fn advance(&mut self, now: Time) -> Vec<u32> {
        let epoch = now / self.epoch;
        if epoch == self.current {
            return Vec::new();
        }
        self.current = epoch;
        let opened = std::mem::take(&mut self.opened);
        opened
            .into_iter()
            .map(|(frame, page)| {
                self.open[frame] = false;
                page
            })
            .collect()
    }

    fn is_open(&self, frame: usize) -> bool {
        self.open[frame]
    }

    fn open(&mut self, frame: usize, page: u32) {
        self.open[frame] = true;
        self.opened.push((frame, page));
    }

    fn close(&mut self, frame: usize) {
        self.open[frame] = false;
    }
}
