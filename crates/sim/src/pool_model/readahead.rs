//! Readahead of the simulated pool: streams of misses are followed by core, and segments that are neighbours on flash are
//! read together.

use std::collections::VecDeque;

use deepram_core::paging::{Streams, Window};
use deepram_core::units::Picos;

use super::{PoolModel, PoolModelEvent, PoolModelOptions};
use crate::engine::Time;
use crate::host::Context;

/// Segments in one readahead job.
const JOB_SEGMENTS: usize = 64;
/// Reads of several segments that a handler keeps in flight, the largest size of one in bytes, and the part of the DRAM that
/// a handler's buffers take, half of it for these.
const RUNS: usize = 4;
const RUN_BYTES: u64 = 256 << 10;
const BUFFERS_SHARE: u64 = 32;
/// Largest number of triggers: one for each stream that is followed.
const MOST_TRIGGERS: usize = 16;

/// Segments that are read with one read.
pub(super) struct Run {
    segments: Vec<u32>,
    window: Window,
}

/// A part of a window.
struct Job {
    segments: Vec<u32>,
    window: Window,
}

/// What is read ahead, and where the segments are on flash.
pub(super) struct Readahead {
    streams: Streams,
    /// The place of each segment in the log. The first ones are those of a pool that was filled in order.
    places: Vec<u64>,
    /// The next place in the log.
    end_of_log: u64,
    jobs: VecDeque<Job>,
    /// Runs without a buffer; the first is at the end.
    pending: Vec<Run>,
    free_runs: usize,
    /// Segments in the longest run.
    most: usize,
    /// First segments of windows. They are kept out of the cache until they are used, oldest first.
    triggers: VecDeque<u32>,
    /// Triggers that came back or were displaced: segments that were loaded and not evicted.
    gone: u64,
    /// The times from which on each handler installs segments.
    handlers: Vec<Time>,
}

impl Readahead {
    pub(super) fn new(options: &PoolModelOptions, max_window: usize, segments: usize) -> Self {
        let handlers = options.handlers.max(1);
        let each = options.budget.0 / BUFFERS_SHARE / u64::from(handlers) / 2 / options.segment.0;
        Self {
            streams: Streams::new(max_window),
            places: (0..segments as u64).collect(),
            end_of_log: segments as u64,
            jobs: VecDeque::new(),
            pending: Vec::new(),
            free_runs: RUNS * handlers as usize,
            most: (each / RUNS as u64).clamp(1, (RUN_BYTES / options.segment.0).max(1)) as usize,
            triggers: VecDeque::new(),
            gone: 0,
            handlers: vec![0; handlers as usize],
        }
    }

    /// Number of segments that are kept out of the cache as triggers.
    pub(super) fn triggers(&self) -> usize {
        self.triggers.len()
    }

    /// Segments that were loaded and left the cache in another way than by eviction, or came back from there.
    pub(super) fn kept_apart(&self) -> u64 {
        self.gone + self.triggers.len() as u64
    }

    /// Ends the wait of a trigger that is used. Returns whether the segment was one.
    pub(super) fn take_trigger(&mut self, segment: u32) -> bool {
        let at = self.triggers.iter().position(|kept| *kept == segment);
        self.gone += u64::from(at.is_some());
        at.and_then(|at| self.triggers.remove(at)).is_some()
    }

    /// Gives a segment that is written the next place in the log.
    pub(super) fn place(&mut self, segment: u32) {
        self.places[segment as usize] = self.end_of_log;
        self.end_of_log += 1;
    }

    fn keep_trigger(&mut self, segment: u32) {
        if self.triggers.len() == MOST_TRIGGERS {
            self.triggers.pop_front();
            self.gone += 1;
        }
        self.triggers.push_back(segment);
    }
}

impl PoolModel {
    fn offset(&self, segment: u32) -> usize {
        segment as usize * self.options.segment.0 as usize
    }

    /// Records a miss, or the use of a trigger, and queues the window that is to be read ahead.
    pub(super) fn track_miss(&mut self, segment: u32) {
        let offset = self.offset(segment);
        let Some(window) = self.readahead.streams.record_fault(offset) else { return };
        self.counts.readahead_windows += 1;
        let number = |n| window.page(n) / self.options.segment.0 as usize;
        let segments: Vec<u32> = (0..window.count)
            .map(number)
            .take_while(|number| *number < self.segments.len())
            .map(|number| number as u32)
            .collect();
        let jobs = segments.chunks(JOB_SEGMENTS).map(|part| Job { segments: part.to_vec(), window });
        self.readahead.jobs.extend(jobs);
    }

    /// Starts to read what is queued, as far as handlers have buffers.
    pub(super) fn read_ahead(&mut self, context: &mut Context<PoolModelEvent>) {
        loop {
            while self.readahead.free_runs > 0
                && let Some(run) = self.readahead.pending.pop()
            {
                self.start_run(run, context);
            }
            if self.readahead.free_runs == 0 {
                return;
            }
            let Some(Job { segments, window }) = self.readahead.jobs.pop_front() else { return };
            let found = self.begin_fills(segments);
            if self.watermarks.wakes_evictor(self.used()) {
                self.run_evictor(context);
            }
            let places = &self.readahead.places;
            let runs = found.chunk_by(|a, b| places[*a as usize] + 1 == places[*b as usize]);
            let runs = runs.flat_map(|run| run.chunks(self.readahead.most));
            let mut runs: Vec<Run> = runs.map(|run| Run { segments: run.to_vec(), window }).collect();
            runs.reverse();
            self.readahead.pending = runs;
        }
    }

    /// Begins to fill the absent ones of these segments, as far as frames are free. Returns them, sorted.
    fn begin_fills(&mut self, segments: Vec<u32>) -> Vec<u32> {
        let mut found = Vec::with_capacity(segments.len());
        for segment in segments {
            let kept = self.readahead.triggers.contains(&segment);
            if self.segments[segment as usize].is_absent() && !kept && self.make_room() {
                self.begin_fill(segment);
                found.push(segment);
            }
        }
        self.counts.readahead_segments += found.len() as u64;
        found.sort_unstable();
        found
    }

    fn start_run(&mut self, run: Run, context: &mut Context<PoolModelEvent>) {
        self.counts.reads += 1;
        self.readahead.free_runs -= 1;
        let segments = run.segments.len() as u64;
        let arrived = self.device.request(context.now().0, false, segments * self.options.segment.0);
        let mut installed = arrived;
        if let Some(free) = self.readahead.handlers.iter_mut().min() {
            installed = arrived.max(*free) + segments * self.options.install.0;
            *free = installed;
        }
        let number = self.runs.add(run);
        context.schedule(Picos(installed), PoolModelEvent::ReadAhead(number));
    }

    /// Installs a run, but for an unused trigger.
    pub(super) fn finish_run(&mut self, number: u32, context: &mut Context<PoolModelEvent>) {
        let Some(Run { segments, window }) = self.runs.take(number) else { return };
        self.readahead.free_runs += 1;
        for segment in segments {
            let offset = self.offset(segment);
            if offset == window.first && self.readahead.streams.is_trigger(offset) {
                self.filling -= 1;
                self.resident -= 1;
                self.segments[segment as usize].clear();
                self.readahead.keep_trigger(segment);
                self.repeat_accesses(segment, context);
            } else {
                self.end_fill(segment, context);
            }
        }
    }
}
