//! Readahead of the simulated pool: streams of misses are followed by core, and segments that are neighbours on flash are
//! read together.

use std::collections::VecDeque;
use std::ops::Range;

use deepram_core::paging::{BATCH, Streams, Trigger, Triggers, Window};
use deepram_core::units::Picos;

use super::{PoolModel, PoolModelEvent, PoolModelOptions};
use crate::engine::Time;
use crate::host::Context;
use crate::read_slots::ReadSlots;

/// Segments that are read with one read.
pub(super) struct Run {
    segments: Vec<u32>,
    trigger: Option<(u32, Trigger)>,
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
    slots: ReadSlots,
    /// Segments that are kept out of the cache until they are used.
    triggers: Triggers<()>,
    /// Triggers that came back or were displaced: segments that were loaded and not evicted.
    gone: u64,
    /// The times from which on each handler installs segments.
    handlers: Vec<Time>,
}

impl Readahead {
    pub(super) fn new(options: &PoolModelOptions, max_window: usize, segments: usize) -> Self {
        let handlers = options.handlers.max(1);
        Self {
            streams: Streams::new(max_window),
            places: (0..segments as u64).collect(),
            end_of_log: segments as u64,
            jobs: VecDeque::new(),
            pending: Vec::new(),
            slots: ReadSlots::new(handlers as usize, options.budget.0, options.segment.0),
            triggers: Triggers::default(),
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
        let taken = self.triggers.take(segment).is_some();
        self.gone += u64::from(taken);
        taken
    }

    /// Gives a segment that is written the next place in the log.
    pub(super) fn place(&mut self, segment: u32) {
        self.places[segment as usize] = self.end_of_log;
        self.end_of_log += 1;
    }

    /// The place of a segment in the log.
    pub(super) fn place_of(&self, segment: u32) -> u64 {
        self.places[segment as usize]
    }

    /// Drops the triggers among these segments: the segments come into memory in another way.
    pub(super) fn drop_triggers(&mut self, segments: Range<usize>) {
        let within: Vec<u32> = self.triggers.within(segments.start as u32..segments.end as u32).collect();
        for segment in within {
            self.take_trigger(segment);
        }
    }

    fn keep_trigger(&mut self, segment: u32, trigger: Trigger) {
        self.gone += u64::from(self.triggers.displace().is_some());
        self.triggers.keep(segment, trigger, ());
    }
}

impl PoolModel {
    fn offset(&self, segment: u32) -> usize {
        segment as usize * self.options.segment.0 as usize
    }

    /// Records a miss, or the use of a trigger, and queues the window that is to be read ahead. Returns the block of segments that
    /// are read with a missed one.
    pub(super) fn track_miss(&mut self, segment: u32, is_trigger: bool, now: Picos) -> Range<u32> {
        let (block, window) = if is_trigger {
            (segment..segment + 1, self.readahead.streams.record_use(self.offset(segment)))
        } else {
            let free = self.watermarks.frames.saturating_sub(self.used());
            let is_room = |segments| self.options.fault_around && segments <= free;
            let Readahead { triggers, streams, .. } = &mut self.readahead;
            triggers.record_miss(streams, segment, self.options.segment.0 as usize, is_room)
        };
        window.into_iter().for_each(|window| self.queue_window(window, now));
        block
    }

    /// Begins to read the other segments of a missed segment's block, before all that is queued.
    pub(super) fn fault_around(&mut self, block: Range<u32>, missed: u32, now: Picos) {
        let end = block.end.min(self.segments.len() as u32);
        let others = (block.start..end).filter(|segment| *segment != missed).collect();
        let found = self.begin_fills(others, now);
        let probe =
            self.readahead.triggers.choose_probe(missed, found.len()).map(|at| (found[at], Trigger::Probe));
        self.queue_runs(&found, probe);
    }

    /// Queues the reads of these segments, of which neighbours on flash are read together, before all others.
    fn queue_runs(&mut self, found: &[u32], trigger: Option<(u32, Trigger)>) {
        let places = &self.readahead.places;
        let runs = found.chunk_by(|a, b| places[*a as usize] + 1 == places[*b as usize]);
        let runs = runs.flat_map(|run| run.chunks(self.readahead.slots.run_pages()));
        let mut runs: Vec<Run> = runs.map(|run| Run { segments: run.to_vec(), trigger }).collect();
        runs.reverse();
        self.readahead.pending.extend(runs);
    }

    fn queue_window(&mut self, window: Window, now: Picos) {
        self.counts.readahead_windows += 1;
        let number = |n| window.page(n) / self.options.segment.0 as usize;
        let segments: Vec<u32> = (0..window.count)
            .map(number)
            .take_while(|number| *number < self.segments.len())
            .map(|number| number as u32)
            .collect();
        let jobs = segments.chunks(BATCH).map(|part| Job { segments: part.to_vec(), window });
        self.readahead.jobs.extend(jobs);
        self.stage_behind(window, now);
    }

    /// Starts to read what is queued, as far as handlers have buffers.
    pub(super) fn read_ahead(&mut self, context: &mut Context<PoolModelEvent>) {
        loop {
            while let Some(run) = self.readahead.pending.pop() {
                if !self.readahead.slots.acquire(run.segments.len(), true) {
                    return self.readahead.pending.push(run);
                }
                self.start_run(run, context);
            }
            let Some(Job { segments, window }) = self.readahead.jobs.pop_front() else { return };
            let found = self.begin_fills(segments, context.now());
            if self.watermarks.wakes_evictor(self.used()) {
                self.run_evictor(context);
            }
            let first = (window.first / self.options.segment.0 as usize) as u32;
            self.queue_runs(&found, Some((first, Trigger::Window)));
        }
    }

    /// Begins to fill the absent ones of these segments, as far as frames are free. Returns them, sorted.
    fn begin_fills(&mut self, segments: Vec<u32>, now: Picos) -> Vec<u32> {
        let mut found = Vec::with_capacity(segments.len());
        for segment in segments {
            let comes = self.readahead.triggers.holds(segment) || self.staging.is_staged(self.chunk(segment));
            if self.segments[segment as usize].is_absent() && !comes && self.make_room(now) {
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
        let Some(Run { segments, trigger }) = self.runs.take(number) else { return };
        self.readahead.slots.release(segments.len());
        for segment in segments {
            let offset = self.offset(segment);
            let kind = trigger.filter(|(of, _)| *of == segment).map(|(_, kind)| kind);
            let kept = |kind: &Trigger| *kind == Trigger::Probe || self.readahead.streams.is_trigger(offset);
            if let Some(kind) = kind.filter(kept) {
                self.filling -= 1;
                self.resident -= 1;
                self.segments[segment as usize].clear();
                self.readahead.keep_trigger(segment, kind);
                self.repeat_accesses(segment, context);
            } else {
                self.end_fill(segment, context);
            }
        }
    }
}
