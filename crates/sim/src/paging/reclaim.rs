//! Page reclaim and write-back of the paging system, as in Linux.
//!
//! 1. When free pages fall below the low watermark, candidates of the lists are evicted up to the high
//!    watermark: clean pages at once, dirty ones when their write-back is complete. Kernel threads do
//!    that, on no core of the workload.
//! 2. A fault that finds no free page reclaims one page itself (direct reclaim). If no clean page can be
//!    evicted, it waits for a write-back.
//! 3. Dirty pages of a file are written back in the background, in file order from where the last
//!    write-back stopped, while more than the background share is dirty. A thread that would dirty a
//!    page while more than the limit is dirty or under write-back waits.
//! 4. A dirty page is written together with its dirty neighbours in one command: neighbours in the file,
//!    or, for swap, pages that are evicted together and so get neighbouring slots.
//! 5. A page under write-back is clean and write-protected: the next write to it faults.

use super::io::{CommandKind, DriveCommand};
use super::page_locations::NONE;
use super::software::Phase;
use super::{PagedMemory, PagingEvent};
use crate::error::SimError;
use crate::host::{Context, Slot};
use deepram_core::units::Picos;

/// A flush request that waits for write-backs.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingFlush {
    slot: Slot,
    /// Write-backs with this number or a lower one belong to the flush.
    number: u64,
    left: u64,
}

impl PagedMemory {
    /// A frame for a page: a free one, or that of an evicted clean page. `None` if a write-back must end
    /// first.
    pub(super) fn take_frame(&mut self, context: &mut Context<PagingEvent>) -> Result<Option<u32>, SimError> {
        if self.free_frame_count() == 0 {
            let most = 4 * u64::from(self.options.write_cluster.max(1));
            self.reclaim(context, |machine| machine.free_frame_count() > 0 || machine.reclaiming >= most)?;
        }
        let frame = self.unused_frame();
        self.reclaim_below_watermark(context)?;
        Ok(frame)
    }

    /// A free frame.
    pub(super) fn unused_frame(&mut self) -> Option<u32> {
        self.free_frames.pop().or_else(|| {
            let next = self.frames.len() as u32;
            (next < self.frame_count).then(|| {
                self.frames.push(super::EMPTY);
                next
            })
        })
    }

    pub(super) fn free_frame_count(&self) -> u64 {
        self.free_frames.len() as u64 + (u64::from(self.frame_count) - self.frames.len() as u64)
    }

    /// Reclaims pages in the background if free pages are below the low watermark.
    pub(super) fn reclaim_below_watermark(
        &mut self,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        // Pages under write-back for eviction count as free, so reclaim works in batches.
        if self.free_frame_count() + self.reclaiming >= self.low {
            return Ok(());
        }
        let high = self.high;
        self.reclaim(context, |machine| machine.free_frame_count() + machine.reclaiming >= high)
    }

    fn reclaim(
        &mut self,
        context: &mut Context<PagingEvent>,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<(), SimError> {
        let mut leaving = std::mem::take(&mut self.leaving);
        while !enough(self) {
            let Some(number) = self.lists.candidate() else { break };
            let frame = self.frames[number as usize];
            if !frame.writing && !frame.dirty {
                self.evict(number)?;
                continue;
            }
            self.lists.remove(number);
            self.frames[number as usize].leaving = true;
            self.reclaiming += 1;
            if frame.writing {
                continue;
            }
            self.counts.reclaim_writes += 1;
            if !self.swap {
                self.write_around(frame.page, context)?;
            } else {
                leaving.push(number);
                if leaving.len() >= self.options.write_cluster.max(1) as usize {
                    self.write_swap(&mut leaving, context)?;
                }
            }
        }
        self.write_swap(&mut leaving, context)?;
        self.leaving = leaving;
        Ok(())
    }

    fn evict(&mut self, number: u32) -> Result<(), SimError> {
        let frame = std::mem::replace(&mut self.frames[number as usize], super::EMPTY);
        let drive_version = self
            .locations
            .drive_page_of(frame.page)
            .map_or(0, |drive_page| self.locations.version_at(drive_page));
        if frame.version != drive_version || frame.reading || frame.pins > 0 {
            return Err(SimError::Conservation {
                law: "an evicted page is unpinned and its data are on the drive",
                found: format!(
                    "page {} at version {}, {drive_version} on the drive",
                    frame.page, frame.version
                ),
            });
        }
        self.lists.remove(number);
        self.locations.set_frame(frame.page, NONE);
        self.free_frames.push(number);
        self.counts.evicted += 1;
        self.counts.readahead_wasted += u64::from(frame.ahead);
        self.unused_ahead -= u64::from(frame.ahead);
        Ok(())
    }

    /// Writes frames back to swap in the order given, with one command for each run of neighbouring
    /// slots.
    fn write_swap(
        &mut self,
        leaving: &mut Vec<u32>,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        let mut row = Vec::new();
        let mut first = NONE;
        for number in leaving.drain(..) {
            let drive_page = self.locations.allocate_drive_page(self.frames[number as usize].page)?;
            if !row.is_empty() && drive_page != first + row.len() as u32 {
                self.write(first, &row, 0, context);
                row.clear();
            }
            if row.is_empty() {
                first = drive_page;
            }
            row.push(number);
        }
        if !row.is_empty() {
            self.write(first, &row, 0, context);
        }
        Ok(())
    }

    /// Writes a dirty page of a file with its dirty neighbours, preferably those before it, up to the
    /// size of a command. Returns the command's number.
    fn write_around(&mut self, page: u32, context: &mut Context<PagingEvent>) -> Result<u32, SimError> {
        let most = self.options.write_cluster.max(1);
        let mut first = page;
        while page - first + 1 < most && first > 0 && self.dirty.contains(&(first - 1)) {
            first -= 1;
        }
        let row: Vec<u32> = (first..first.saturating_add(most))
            .take_while(|page| self.dirty.contains(page))
            .filter_map(|page| self.locations.frame(page))
            .collect();
        Ok(self.write(first, &row, 0, context))
    }

    /// Starts a write-back of the frames to the drive pages from `first` on. `number` is that of an
    /// earlier write-back whose flush request this one belongs to; 0 for none.
    fn write(&mut self, first: u32, row: &[u32], number: u64, context: &mut Context<PagingEvent>) -> u32 {
        let number = if number == 0 { self.flush_number + 1 } else { number };
        let io = self.new_io(CommandKind::Write(number), first);
        let now = context.now().0;
        let mut end = now;
        for frame in row {
            end = end.max(self.dma(*frame, false, now));
            let state = &mut self.frames[*frame as usize];
            (state.dirty, state.writing) = (false, true);
            self.dirty.remove(&state.page);
            self.ios[io as usize].frames.push(*frame);
            self.ios[io as usize].versions.push(state.version);
        }
        self.writing += row.len() as u64;
        self.counts.write_commands += 1;
        self.counts.pages_written += row.len() as u64;
        self.software.phase(Phase::WriteBack);
        context.schedule(Picos(end), PagingEvent::Doorbell(io));
        io
    }

    pub(super) fn write_done(&mut self, io: u32, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        let done = &mut self.ios[io as usize];
        let (kind, first, background) = (done.kind, done.first, done.background);
        let frames = std::mem::take(&mut done.frames);
        let versions = std::mem::take(&mut done.versions);
        self.free_io(io);
        let CommandKind::Write(number) = kind else { return Ok(()) };
        self.commands -= u32::from(background);
        self.writing -= frames.len() as u64;
        let mut more = 0;
        for ((drive_page, frame), version) in (first..).zip(&frames).zip(&versions) {
            let state = &mut self.frames[*frame as usize];
            state.writing = false;
            let state = *state;
            self.locations.written(drive_page, state.page, *version);
            if state.leaving {
                self.reclaiming -= 1;
                self.frames[*frame as usize].leaving = false;
                self.frames[*frame as usize].hot = false;
                self.lists.insert(*frame, state.hot);
                if state.hot {
                    self.lists.touch(*frame);
                }
            }
            if state.dirty && !self.swap {
                self.dirty.insert(state.page);
                if self.flushes.iter().any(|flush| flush.number >= number) {
                    // The page was, or may have been, dirty again when the flush was requested.
                    self.write(drive_page, &[*frame], number, context);
                    more += 1;
                }
            }
        }
        for flush in self.flushes.iter_mut().filter(|flush| flush.number >= number) {
            flush.left = flush.left + more - 1;
        }
        self.finish_flushes(context)?;
        self.write_back_background(context)?;
        self.release_throttled(context);
        self.reclaim_below_watermark(context)
    }

    /// Writes dirty pages of a file back in the background.
    pub(super) fn write_back_background(
        &mut self,
        context: &mut Context<PagingEvent>,
    ) -> Result<(), SimError> {
        while self.dirty.len() as u64 > self.background_pages || !self.throttled.is_empty() {
            if self.commands >= self.options.write_commands.max(1) {
                break;
            }
            let next = self.dirty.range(self.flush_from..).next().or_else(|| self.dirty.first());
            let Some(page) = next.copied() else { break };
            let io = self.write_around(page, context)?;
            self.commands += 1;
            let io = &mut self.ios[io as usize];
            io.background = true;
            self.flush_from = io.first.saturating_add(io.frames.len() as u32);
        }
        Ok(())
    }

    /// True if no further page may become dirty now.
    pub(super) fn over_limit(&self) -> bool {
        !self.swap && self.dirty.len() as u64 + self.writing >= self.limit_pages
    }

    fn release_throttled(&mut self, context: &mut Context<PagingEvent>) {
        let room = self.limit_pages.saturating_sub(self.dirty.len() as u64 + self.writing);
        for _ in 0..room {
            let Some(fault) = self.throttled.pop_front() else { break };
            self.restart_fault(fault, context);
        }
    }

    /// Handles a flush request: writes all dirty pages back, then flushes the drive.
    pub(super) fn flush(&mut self, slot: Slot, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        while let Some(page) = self.dirty.first().copied() {
            self.write_around(page, context)?;
        }
        self.flush_number += 1;
        // Write-backs under way that earlier flushes do not wait for have this number.
        let under_way =
            |io: &&DriveCommand| matches!(io.kind, CommandKind::Write(_)) && !io.frames.is_empty();
        let left = self.ios.iter().filter(under_way).count() as u64;
        self.flushes.push(PendingFlush { slot, number: self.flush_number, left });
        self.finish_flushes(context)
    }

    fn finish_flushes(&mut self, context: &mut Context<PagingEvent>) -> Result<(), SimError> {
        while let Some(at) = self.flushes.iter().position(|flush| flush.left == 0) {
            let flush = self.flushes.remove(at);
            let io = self.new_io(CommandKind::Flush(flush.slot), 0);
            self.ring_doorbell(io, context)?;
        }
        Ok(())
    }
}
