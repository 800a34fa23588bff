//! Misses: the frame of a missing block, the fetch of its data, the accesses that wait for them, and
//! prefetching (NVMM, Solid-State Disk Architectures and Operation: steps 2 to 6; prefetching: Latency
//! Sensitivity).

use deepram_core::Slot;
use deepram_core::units::Picos;

use super::layout::SegmentKey;
use super::options::Prefetch;
use super::{CommandPart, EventKind, NvmmEvent, NvmmMemory, OperationPurpose, flag};
use crate::engine::Time;
use crate::error::SimError;
use crate::flash_array::OperationClass;
use crate::host::Context;

/// A fill: a block whose data are being fetched.
#[derive(Debug)]
pub(super) struct Fill {
    /// The fill's number: how many fills began before it.
    number: u64,
    frame: usize,
    key: SegmentKey,
    /// The critical line, which crosses the channel first.
    first: u32,
    /// The fill is a prefetch, and no access waits for it.
    ahead: bool,
    /// The fill was started by a miss.
    missed: bool,
    /// The channel operation and its plane; `None` if the fill reads no flash.
    op: Option<(u32, u32)>,
    /// The time at which the data began to cross the channel.
    transfer_started: Option<Time>,
    /// The flash slot of the data; `None` if the segment was never written.
    slot: Option<Slot>,
    mapped: bool,
    /// Command parts that wait for the fill. A part completes when its own lines arrive, which may
    /// precede the end of the fill.
    waiters: Vec<(u32, CommandPart)>,
}

/// Prefetch streams, most recently used first.
#[derive(Debug)]
pub(super) struct PrefetchStreams {
    depth: u32,
    max_streams: usize,
    /// The next block to fetch of each stream.
    next: Vec<SegmentKey>,
}

impl PrefetchStreams {
    pub(super) fn new(prefetch: Prefetch) -> Self {
        let (streams, depth) = match prefetch {
            Prefetch::Streams { streams, depth } => (streams, depth),
            Prefetch::None | Prefetch::Next(_) => (0, 0),
        };
        Self { depth, max_streams: streams as usize, next: Vec::new() }
    }

    /// The blocks to prefetch now that `key` is used. A miss outside all streams starts a new stream.
    fn used(&mut self, key: SegmentKey, hit: bool) -> std::ops::Range<SegmentKey> {
        if self.max_streams == 0 || self.depth == 0 {
            return 0..0;
        }
        let inside = |next: SegmentKey| key < next && next - key <= self.depth;
        let at = self.next.iter().position(|&next| inside(next) || !hit && key == next);
        let end = key.saturating_add(1 + self.depth);
        match at {
            Some(at) => {
                let next = self.next.remove(at).max(key.saturating_add(1));
                self.next.insert(0, end);
                next..end
            }
            None if hit => 0..0,
            None => {
                self.next.truncate(self.max_streams - 1);
                self.next.insert(0, end);
                key.saturating_add(1)..end
            }
        }
    }
}

impl NvmmMemory {
    /// Handles a command part whose block is not in the cache. Returns false if no frame is available
    /// now.
    pub(super) fn miss(
        &mut self,
        number: u32,
        part: CommandPart,
        context: &mut Context<NvmmEvent>,
    ) -> Result<bool, SimError> {
        let now = context.now().0;
        let Some(frame) = self.make_room(part.key, context)? else { return Ok(false) };
        self.counts.misses += 1;
        self.install_block(frame, part.key, now);
        if part.write && part.lines == self.lines_per_block {
            // The whole block is overwritten, so nothing is fetched.
            self.counts.whole_writes += 1;
            if let Some(shadow) = &mut self.shadow {
                shadow.fill(frame, None, self.lines_per_block);
            }
            self.check_line(frame, part)?;
            self.mark_dirty(frame, now);
            let end = self.access_block_data(frame, 0, part.lines, true, now);
            context.schedule(Picos(end), NvmmEvent(EventKind::Over(number)));
        } else {
            self.begin_fill(frame, part.key, part.line, Some((number, part)), context)?;
        }
        Ok(true)
    }

    /// Starts the prefetches that follow a miss, once the miss's own read is under way.
    fn after_miss(&mut self, key: SegmentKey, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        match self.options.prefetch {
            Prefetch::None => Ok(()),
            Prefetch::Next(blocks) => {
                let next = key.saturating_add(1);
                self.fetch_ahead(next..next.saturating_add(blocks), context)
            }
            Prefetch::Streams { .. } => self.follow_streams(key, false, context),
        }
    }

    pub(super) fn follow_streams(
        &mut self,
        key: SegmentKey,
        hit: bool,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        let wanted = self.streams.used(key, hit);
        self.fetch_ahead(wanted, context)
    }

    /// Prefetches the blocks that are not in the cache, as far as frames are available.
    fn fetch_ahead(
        &mut self,
        keys: std::ops::Range<SegmentKey>,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        let end = u64::from(self.flash_volume.layout.pages) * u64::from(self.flash_volume.layout.per_page);
        for key in keys.take_while(|key| u64::from(*key) < end) {
            self.read_tags(key, context.now().0);
            if self.cache.find(key).is_some() {
                continue;
            }
            let Some(frame) = self.make_room(key, context)? else {
                self.counts.prefetches_dropped += 1;
                continue;
            };
            self.counts.prefetches += 1;
            self.install_block(frame, key, context.now().0);
            self.flags[frame] |= flag::AHEAD;
            self.begin_fill(frame, key, 0, None, context)?;
        }
        Ok(())
    }

    /// An empty frame for a segment. `None` if all frames of its set are being filled, or a dirty block
    /// cannot be evicted now.
    fn make_room(
        &mut self,
        key: SegmentKey,
        context: &mut Context<NvmmEvent>,
    ) -> Result<Option<usize>, SimError> {
        let flags = &self.flags;
        let Some(target) = self.cache.fill_target(key, |frame| flags[frame] & flag::FILLING == 0) else {
            return Ok(None);
        };
        let Some(held) = target.victim else { return Ok(Some(target.frame)) };
        if self.flags[target.frame] & flag::DIRTY != 0 && !self.evict_dirty(target.frame, held, context)? {
            return Ok(None);
        }
        self.counts.evictions += 1;
        self.drop_block(target.frame);
        Ok(Some(target.frame))
    }

    /// Removes a clean or discarded block from its frame.
    pub(super) fn drop_block(&mut self, frame: usize) {
        self.counts.prefetches_wasted += u64::from(self.flags[frame] & flag::AHEAD != 0);
        self.flags[frame] &= flag::LISTED;
        self.cache.remove(frame);
        if let Some(shadow) = &mut self.shadow {
            shadow.forget(frame);
        }
    }

    fn install_block(&mut self, frame: usize, key: SegmentKey, now: Time) {
        self.counts.inserted += 1;
        self.cache.insert(key, frame);
        self.write_tag(frame, now);
    }

    fn begin_fill(
        &mut self,
        frame: usize,
        key: SegmentKey,
        first: u32,
        waiter: Option<(u32, CommandPart)>,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        self.flags[frame] |= flag::FILLING;
        self.counts.fills += 1;
        let number = self.fill_numbers;
        self.fill_numbers += 1;
        let fill = self.fills.add(Fill {
            number,
            frame,
            key,
            first,
            ahead: waiter.is_none(),
            missed: waiter.is_some(),
            op: None,
            transfer_started: None,
            slot: None,
            mapped: false,
            waiters: waiter.into_iter().collect(),
        });
        self.filling.insert(frame, fill);
        match self.look_up_mapping(key) {
            0 => self.fetch(fill, context),
            wait => {
                context.schedule(Picos(context.now().0 + wait), NvmmEvent(EventKind::Mapped(fill)));
                Ok(())
            }
        }
    }

    /// Looks up a page in the mapping cache. Returns the time that the lookup takes.
    pub(super) fn look_up_mapping(&mut self, key: SegmentKey) -> Time {
        let (page, _) = self.flash_volume.layout.split(key);
        if let Some(at) = self.mapping.find(page.0) {
            self.mapping.touch(at);
            self.flash.mapping_hits += 1;
            return 0;
        }
        self.flash.mapping_misses += 1;
        if let Some(target) = self.mapping.fill_target(page.0, |_| true) {
            self.mapping.remove(target.frame);
            self.mapping.insert(page.0, target.frame);
        }
        self.nvmm.mapping_miss.0
    }

    /// Starts the read of a fill's data.
    pub(super) fn fetch(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(fill) = self.fills.get(number) else { return Ok(()) };
        let (key, ahead, missed) = (fill.key, fill.ahead, fill.missed);
        let slot = self.flash_volume.find(key)?;
        let now = context.now().0;
        let source = slot.filter(|slot| !self.in_buffer.contains(&slot.0));
        let Some(fill) = self.fills.get(number) else { return Ok(()) };
        (fill.slot, fill.mapped) = (slot, true);
        if let Some(source) = source {
            let plane = self.flash_volume.layout.plane(source);
            let op = self.operations.add(OperationPurpose::Fill(number));
            fill.op = Some((op, plane));
            self.flash.host_reads += 1;
            let class = if ahead { OperationClass::Ahead } else { OperationClass::Demand };
            self.channels.submit(op, class, plane, now);
            return if missed { self.after_miss(key, context) } else { Ok(()) };
        }
        if slot.is_some() {
            self.flash.buffer_read_hits += 1;
        } else {
            self.counts.unwritten += 1;
        }
        context.schedule(Picos(now), NvmmEvent(EventKind::Filled(number)));
        self.transfer_started(number, context);
        if missed { self.after_miss(key, context) } else { Ok(()) }
    }

    /// Lets a command part wait for a fill that is under way.
    pub(super) fn join_fill(
        &mut self,
        frame: usize,
        number: u32,
        part: CommandPart,
        context: &mut Context<NvmmEvent>,
    ) {
        let Some(&at) = self.filling.get(&frame) else { return };
        let Some(fill) = self.fills.get(at) else { return };
        fill.waiters.push((number, part));
        if fill.transfer_started.is_some() {
            self.schedule_waiter(at, number, part, context);
        } else if fill.ahead {
            fill.ahead = false;
            fill.first = part.line;
            if let Some((op, plane)) = fill.op {
                self.channels.promote(op, plane, context.now().0);
            }
        }
    }

    /// The data of a fill begin to cross the channel, which determines when each line arrives: schedules
    /// the waiting parts.
    pub(super) fn transfer_started(&mut self, number: u32, context: &mut Context<NvmmEvent>) {
        let Some(fill) = self.fills.get(number) else { return };
        fill.transfer_started = Some(context.now().0);
        for (part, of) in fill.waiters.clone() {
            self.schedule_waiter(number, part, of, context);
        }
    }

    /// Schedules the completion of a waiting part at the arrival of its lines.
    fn schedule_waiter(&mut self, number: u32, part: u32, of: CommandPart, context: &mut Context<NvmmEvent>) {
        let (now, lines) = (context.now().0, self.lines_per_block);
        let critical = self.options.critical_first;
        let Some(fill) = self.fills.get(number) else { return };
        let begun = fill.transfer_started.unwrap_or(now);
        let behind = (of.line + lines - fill.first) % lines + of.lines;
        let needed = if critical { behind.min(lines) } else { lines };
        let time = match fill.op {
            Some(_) => (begun + self.channels.time_to_transfer(u64::from(needed) * super::LINE)).max(now),
            None => now,
        };
        context.schedule(Picos(time), NvmmEvent(EventKind::Over(part)));
    }

    /// Ends a fill: its data go to the cache.
    pub(super) fn end_fill(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(fill) = self.fills.take(number) else { return Ok(()) };
        let now = context.now().0;
        self.filling.remove(&fill.frame);
        self.flags[fill.frame] &= !flag::FILLING;
        self.access_block_data(fill.frame, 0, self.lines_per_block, true, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.fill(fill.frame, fill.slot, self.lines_per_block);
        }
        for (_, part) in fill.waiters {
            self.check_line(fill.frame, part)?;
            if part.write {
                self.mark_dirty(fill.frame, now);
            }
        }
        self.retry_stalled(context)
    }

    /// True if a store waits for a fill with a number below `before`.
    pub(super) fn fills_with_stores(&self, before: u64) -> bool {
        self.fills.iter().any(|fill| fill.number < before && fill.waiters.iter().any(|(_, part)| part.write))
    }

    /// Fills whose mapping lookup is under way.
    pub(super) fn fills_unmapped(&self) -> u64 {
        self.fills.iter().filter(|fill| !fill.mapped).count() as u64
    }
}
