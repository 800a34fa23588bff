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
use super::task::Wait;
use super::{FlatMemory, LINES, LinkDirection, PAGE};
use crate::engine::Time;
use crate::error::SimError;
use crate::processor::LINE_BYTES;

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

/// The steps of an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExceptionStage {
    Translate,
    Load,
    /// The handler waits for the drive's time.
    Charge,
}

impl FlatMemory {
    /// True if an access of the processor to the page raises an exception now. Protects the pages again if
    /// an epoch has ended.
    pub(super) fn raises_exception(&mut self, page: u32) -> bool {
        let now = self.now;
        let Some(protection) = &mut self.protection else { return false };
        for page in protection.advance(now) {
            self.shoot_down(page);
        }
        self.is_protected(page)
    }

    fn is_protected(&self, page: u32) -> bool {
        let Some(protection) = &self.protection else { return false };
        self.table.get(page) == AT_DRIVE
            && self.buffer.find(page).is_none_or(|frame| !protection.is_open(frame))
    }

    /// Handles the exception of an access to `page`. `None` when the access may go on.
    pub(super) fn step_exception(
        &mut self,
        page: u32,
        store: bool,
        core: Option<u32>,
        stage: &mut ExceptionStage,
        looked_up: &mut bool,
    ) -> Result<Option<Wait>, SimError> {
        if *stage == ExceptionStage::Translate {
            *stage = ExceptionStage::Load;
            let walk = core.map_or(0, |core| self.translate(core, page));
            if walk > 0 {
                return Ok(Some(Wait::At(self.now + walk)));
            }
        }
        // Another access may have opened the page meanwhile, or the page may be on its way to DRAM.
        if *stage == ExceptionStage::Charge || !self.is_protected(page) {
            if let (Some(frame), Some(protection)) = (self.buffer.find(page), &mut self.protection) {
                protection.open(frame, page);
            }
            return Ok(None);
        }
        let Some((frame, filling)) = self.look_up(page, looked_up)? else { return Ok(Some(Wait::Frame)) };
        if filling {
            return Ok(Some(Wait::Fill(page)));
        }
        *stage = ExceptionStage::Charge;
        self.counts.exceptions += 1;
        let end = if store {
            self.counts.line_writes += 1;
            self.counts.link_bytes_to_drive += LINE_BYTES;
            self.use_link(LinkDirection::ToDrive, self.line_span) + self.preset.line_write.0
        } else {
            self.counts.line_reads += 1;
            self.counts.link_bytes_to_host += LINE_BYTES;
            self.use_link(LinkDirection::ToHost, self.line_span) + self.preset.line_read.0
        };
        self.use_buffer(page, frame)?;
        Ok(Some(Wait::At(end)))
    }

    /// Accesses a line of a page in the device buffer, which is host memory. Returns the time at which the
    /// data have been transferred.
    pub(super) fn access_emulated(&mut self, buffer_frame: usize, line: u8, store: bool) -> Time {
        self.access_buffer(buffer_frame, line, store);
        // The device buffer's region follows the DRAM for pages.
        let first = (self.frame_count + buffer_frame as u64) * PAGE + u64::from(line) * LINE_BYTES;
        self.serve_dram(first, store)
    }

    /// Protects the page that leaves a frame of the device buffer; its lines leave the processor's cache,
    /// dirty ones to the frame.
    pub(super) fn close(&mut self, page: u32, buffer_frame: usize) {
        let Some(protection) = &mut self.protection else { return };
        protection.close(buffer_frame);
        for within in 0..LINES {
            let line = u64::from(page) * LINES + within;
            let Some(dirty) = self.cpu.as_mut().and_then(|cpu| cpu.remove(line)) else { continue };
            self.counts.moved_lines += 1;
            if let Some(shadow) = &mut self.shadow {
                shadow.value = shadow.cpu.remove(&line).unwrap_or(0);
            }
            if dirty {
                self.access_buffer(buffer_frame, within as u8, true);
            }
        }
    }
}
