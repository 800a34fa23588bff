//! Write-back of the simulated pool: a batch of dirty segments leaves in large writes, a few of which are in flight at once.
//!
//! Software prepares the next write (write protection, copies, checksums) while the device performs those before it. The segments of
//! a write are clean once it and the writes before it are complete, as in the pool.

use std::collections::VecDeque;

use deepram_core::paging::PoolWatermarks;
use deepram_core::units::Picos;

use super::{PoolModel, PoolModelEvent};
use crate::engine::Time;
use crate::host::Context;

/// The batch that is being written.
#[derive(Default)]
pub(super) struct WriteBack {
    /// Segments that are not on flash yet, in the order in which they are written.
    segments: VecDeque<u32>,
    /// The writes in flight: how many of the segments each has, and the time at which these are clean.
    in_flight: VecDeque<(usize, Time)>,
    /// Whether the next write is ready and waits for one in flight to end.
    prepared: bool,
}

impl WriteBack {
    /// Segments that are not on flash yet.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    fn sent(&self) -> usize {
        self.in_flight.iter().map(|(count, _)| count).sum()
    }
}

impl PoolModel {
    /// Starts a write-back batch if dirty segments are to be written and no batch is being written.
    pub(super) fn run_write_back(&mut self, context: &mut Context<PoolModelEvent>) {
        let needed = self.watermarks.needs_write_back(self.dirty.len(), self.starved);
        if self.write_back.len() > 0 || !needed {
            return;
        }
        let all = 0..self.segments.len() as u32;
        let taken = self.dirty.take(&mut self.write_back_cursor, all, PoolWatermarks::WRITE_BACK, |_| true);
        for segment in &taken {
            self.segments[*segment as usize].take();
            self.readahead.place(*segment);
        }
        self.write_back.segments = taken.into();
        self.prepare_write(context);
    }

    /// Segments of the next write.
    fn next_write(&self) -> usize {
        let most = (PoolWatermarks::WRITE_BYTES as u64 / self.options.segment.0).max(1) as usize;
        most.min(self.write_back.len() - self.write_back.sent())
    }

    fn prepare_write(&mut self, context: &mut Context<PoolModelEvent>) {
        let count = self.next_write() as u64;
        if count > 0 {
            let software = count * self.options.flush.0;
            context.schedule(Picos(context.now().0 + software), PoolModelEvent::WritePrepared);
        }
    }

    /// Sends the write that is ready, if not too many are in flight.
    pub(super) fn send_write(&mut self, context: &mut Context<PoolModelEvent>) {
        let free = self.write_back.in_flight.len() < PoolWatermarks::WRITES_IN_FLIGHT;
        self.write_back.prepared = !free;
        if free {
            let count = self.next_write();
            let end = self.device.request(context.now().0, true, count as u64 * self.options.segment.0);
            let end = self.write_back.in_flight.back().map_or(end, |(_, last)| end.max(*last));
            self.write_back.in_flight.push_back((count, end));
            context.schedule(Picos(end), PoolModelEvent::Written);
            self.prepare_write(context);
        }
    }

    /// Ends the oldest write in flight: its segments are clean.
    pub(super) fn end_write(&mut self, context: &mut Context<PoolModelEvent>) {
        let Some((count, _)) = self.write_back.in_flight.pop_front() else { return };
        self.counts.written += count as u64;
        for segment in self.write_back.segments.drain(..count) {
            self.segments[segment as usize].written();
        }
        if self.write_back.prepared {
            self.send_write(context);
        }
        if self.starved {
            self.run_evictor(context);
        }
        self.run_write_back(context);
        self.retry_waiting(context);
    }
}
