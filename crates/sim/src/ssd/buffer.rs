//! The write buffer of a drive: writes complete in it and are destaged to flash in the background.
//!
//! 1. Pages being destaged take room. A write waits while they fill what all planes can accept at once.
//! 2. A page written while it is being destaged is destaged again afterwards, or stays.
//! 3. With a hot window, a page that is written twice within it stays in the buffer until the room is
//!    needed.

use std::collections::hash_map::Entry;

use super::operation::OperationSource;
use super::parallel::{BufferedPage, EventKind, PageRequest, ParallelEvent, ParallelSsd};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Context;
use deepram_core::units::Picos;

impl ParallelSsd {
    /// Admits waiting writes to the buffer while there is room.
    pub(super) fn admit(&mut self, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        while self.buffer_sectors < self.buffer_limit
            && let Some((slot, skip)) = self.admitting.pop_front()
        {
            let command = self.jobs[slot as usize].command;
            let mut admitted = skip;
            let mut blocked = false;
            for (logical, sectors) in self.pages(&command, skip) {
                if self.buffer_sectors >= self.buffer_limit {
                    blocked = true;
                    break;
                }
                admitted += 1;
                self.counts.host_pages += 1;
                self.buffer_page(logical, sectors, context)?;
            }
            if blocked {
                self.admitting.push_front((slot, admitted));
                return Ok(());
            }
            let start = context.now().0.max(self.memory_free);
            let end = start + self.memory_ps(command.len);
            self.memory_free = end;
            context.schedule(Picos(end), ParallelEvent(EventKind::Answered(slot)));
        }
        Ok(())
    }

    /// Puts a page into the buffer. The page is destaged at once, unless it was already written in the
    /// present hot window: then it stays until the room is needed, so hot pages are not programmed at
    /// every write.
    fn buffer_page(
        &mut self,
        logical: u32,
        sectors: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let window = self.options.buffer_hot_window.0;
        let mut hot = false;
        if window > 0 {
            if context.now().0 > self.window_end {
                self.window += 1;
                self.window_end = context.now().0 + window;
            }
            let mut at = self.map.get(logical);
            // While a flush waits, no page stays.
            hot = at.window == self.window && self.flushing.is_empty();
            at.window = self.window;
            self.map.set(logical, at);
        }
        self.stamp += 1;
        let stamp = self.stamp;
        match self.buffer.entry(logical) {
            Entry::Occupied(mut buffered) => {
                let buffered = buffered.get_mut();
                self.counts.buffer_overwrites += 1;
                buffered.sectors |= sectors;
                buffered.stamp = stamp;
                if buffered.leaving {
                    buffered.again |= sectors;
                    return Ok(());
                }
                if hot {
                    self.retained.push_back((logical, stamp));
                    return Ok(());
                }
                let all = buffered.sectors;
                buffered.leaving = true;
                self.retained_count -= 1;
                return self.destage(logical, all, context);
            }
            Entry::Vacant(room) => {
                room.insert(BufferedPage { sectors, again: 0, leaving: !hot, stamp });
            }
        }
        while self.buffer.len() > self.buffer_pages && self.retained_count > 0 {
            self.destage_oldest(context)?;
        }
        if hot {
            self.retained_count += 1;
            self.retained.push_back((logical, stamp));
            return Ok(());
        }
        self.destage(logical, sectors, context)
    }

    /// Destages the page that has stayed longest without a write.
    pub(super) fn destage_oldest(&mut self, context: &mut Context<ParallelEvent>) -> Result<(), SimError> {
        while let Some((logical, stamp)) = self.retained.pop_front() {
            if let Some(buffered) = self.buffer.get_mut(&logical)
                && buffered.stamp == stamp
                && !buffered.leaving
            {
                buffered.leaving = true;
                let sectors = buffered.sectors;
                self.retained_count -= 1;
                return self.destage(logical, sectors, context);
            }
        }
        Ok(())
    }

    fn destage(
        &mut self,
        logical: u32,
        sectors: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        self.buffer_sectors += u64::from(sectors.count_ones());
        self.page_programs_asked += 1;
        let job =
            PageRequest { slot: sectors, logical, sectors, write: true, source: OperationSource::Buffer };
        self.translate(job, context)
    }

    /// Handles the end of a page's destaging.
    pub(super) fn destaged(
        &mut self,
        logical: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        if let Entry::Occupied(mut entry) = self.buffer.entry(logical) {
            let buffered = entry.get_mut();
            let again = std::mem::take(&mut buffered.again);
            if again == 0 {
                entry.remove();
            } else {
                buffered.sectors = again;
                if self.options.buffer_hot_window.0 > 0 && self.flushing.is_empty() {
                    buffered.leaving = false;
                    let stamp = buffered.stamp;
                    self.retained_count += 1;
                    self.retained.push_back((logical, stamp));
                } else {
                    self.destage(logical, again, context)?;
                }
            }
        }
        self.admit(context)?;
        self.answer_flushes(context);
        Ok(())
    }

    /// Completes flushes once the buffer is empty.
    fn answer_flushes(&mut self, context: &mut Context<ParallelEvent>) {
        if self.buffer.is_empty() && self.admitting.is_empty() {
            for slot in std::mem::take(&mut self.flushing) {
                context.complete(slot);
            }
        }
    }

    pub(super) fn release_buffer(&mut self, sectors: u32) {
        self.buffer_sectors -= u64::from(sectors.count_ones());
    }

    /// Time of an access to the buffer's memory: row open and column access, then two bursts per clock.
    pub(super) fn memory_time(&self, bytes: u64) -> Time {
        let (Some(rate), Some(burst)) = (self.ssd.cache_rate, self.ssd.cache_burst) else { return 0 };
        let fixed = self.ssd.cache_t_rcd.map_or(0, |t| t.0) + self.ssd.cache_t_cl.map_or(0, |t| t.0);
        let bursts = bytes / burst.0.max(1) / 2;
        fixed + (u128::from(bursts) * 1_000_000_000_000 / u128::from(rate.0.max(1))) as u64
    }
}
