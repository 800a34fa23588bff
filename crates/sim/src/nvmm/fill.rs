//! Misses: room in the cache, the block's data, who waits for them, and what is fetched ahead.

use deepram_core::Slot;

use super::channels::Class;
use super::layout::Key;
use super::options::Prefetch;
use super::{NvmmEvent, NvmmMemory, Part, What, Work, flag};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Context;

/// A block whose data are on their way.
#[derive(Debug)]
pub(super) struct Fill {
    /// How many came before it.
    number: u64,
    frame: usize,
    key: Key,
    /// The line that crosses the channel first.
    first: u32,
    /// Nobody waits for it so far.
    ahead: bool,
    /// It began with a miss.
    missed: bool,
    /// The channels' operation and its plane, while there is one.
    op: Option<(u32, u32)>,
    /// When the data began to cross.
    crossing: Option<Time>,
    /// Where they come from; `None` if the segment was never written.
    slot: Option<Slot>,
    mapped: bool,
    /// Parts and what they are: one that has its lines is over before the block is there.
    waiters: Vec<(u32, Part)>,
}

/// Streams that are followed, the one used last first.
#[derive(Debug)]
pub(super) struct Streams {
    depth: u32,
    most: usize,
    /// For each the next block to be fetched.
    next: Vec<Key>,
}

impl Streams {
    pub(super) fn new(prefetch: Prefetch) -> Self {
        let (streams, depth) = match prefetch {
            Prefetch::Streams { streams, depth } => (streams, depth),
            Prefetch::None | Prefetch::Next(_) => (0, 0),
        };
        Self { depth, most: streams as usize, next: Vec::new() }
    }

    /// The blocks to be fetched now that `key` is used; a miss outside all streams begins one.
    fn used(&mut self, key: Key, hit: bool) -> std::ops::Range<Key> {
        if self.most == 0 || self.depth == 0 {
            return 0..0;
        }
        let inside = |next: Key| key < next && next - key <= self.depth;
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
                self.next.truncate(self.most - 1);
                self.next.insert(0, end);
                key.saturating_add(1)..end
            }
        }
    }
}

impl NvmmMemory {
    /// A part whose block is not in the cache. False if there is no room for it now.
    pub(super) fn miss(
        &mut self,
        number: u32,
        part: Part,
        context: &mut Context<NvmmEvent>,
    ) -> Result<bool, SimError> {
        let now = context.now();
        let Some(frame) = self.make_room(part.key, context)? else { return Ok(false) };
        self.counts.misses += 1;
        self.occupy(frame, part.key, now);
        if part.write && part.lines == self.lines_per_block {
            // All of it is written anew: nothing to fetch.
            self.counts.whole_writes += 1;
            if let Some(shadow) = &mut self.shadow {
                shadow.fill(frame, None, self.lines_per_block);
            }
            self.settle_line(frame, part)?;
            self.soil(frame, now);
            let end = self.data(frame, 0, part.lines, true, now);
            context.schedule(end, NvmmEvent(What::Over(number)));
        } else {
            self.begin_fill(frame, part.key, part.line, Some((number, part)), context)?;
        }
        Ok(true)
    }

    /// What a miss brings with it, once its own read is under way.
    fn after_miss(&mut self, key: Key, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
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
        key: Key,
        hit: bool,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        let wanted = self.streams.used(key, hit);
        self.fetch_ahead(wanted, context)
    }

    /// Fetches those of the blocks that are not in the cache, if there is room for them.
    fn fetch_ahead(
        &mut self,
        keys: std::ops::Range<Key>,
        context: &mut Context<NvmmEvent>,
    ) -> Result<(), SimError> {
        let end = u64::from(self.store.layout.pages) * u64::from(self.store.layout.per_page);
        for key in keys.take_while(|key| u64::from(*key) < end) {
            self.read_tags(key, context.now());
            if self.cache.find(key).is_some() {
                continue;
            }
            let Some(frame) = self.make_room(key, context)? else {
                self.counts.prefetches_dropped += 1;
                continue;
            };
            self.counts.prefetches += 1;
            self.occupy(frame, key, context.now());
            self.flags[frame] |= flag::AHEAD;
            self.begin_fill(frame, key, 0, None, context)?;
        }
        Ok(())
    }

    /// A frame for a key, emptied. `None` if all are on their way, or a dirty block cannot leave now.
    fn make_room(&mut self, key: Key, context: &mut Context<NvmmEvent>) -> Result<Option<usize>, SimError> {
        let flags = &self.flags;
        let Some(target) = self.cache.fill_target(key, |frame| flags[frame] & flag::FILLING == 0) else {
            return Ok(None);
        };
        let Some(held) = target.victim else { return Ok(Some(target.frame)) };
        if self.flags[target.frame] & flag::DIRTY != 0 && !self.evict_dirty(target.frame, held, context)? {
            return Ok(None);
        }
        self.counts.evictions += 1;
        self.forget(target.frame);
        Ok(Some(target.frame))
    }

    /// Empties a frame whose block is clean or given up.
    pub(super) fn forget(&mut self, frame: usize) {
        self.counts.prefetches_wasted += u64::from(self.flags[frame] & flag::AHEAD != 0);
        self.flags[frame] &= flag::LISTED;
        self.cache.remove(frame);
        if let Some(shadow) = &mut self.shadow {
            shadow.forget(frame);
        }
    }

    fn occupy(&mut self, frame: usize, key: Key, now: Time) {
        self.counts.inserted += 1;
        self.cache.insert(key, frame);
        self.write_tag(frame, now);
    }

    fn begin_fill(
        &mut self,
        frame: usize,
        key: Key,
        first: u32,
        waiter: Option<(u32, Part)>,
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
            crossing: None,
            slot: None,
            mapped: false,
            waiters: waiter.into_iter().collect(),
        });
        self.filling.insert(frame, fill);
        match self.look_up(key) {
            0 => self.fetch(fill, context),
            wait => {
                context.schedule(context.now() + wait, NvmmEvent(What::Mapped(fill)));
                Ok(())
            }
        }
    }

    /// Looks for a page in the mapping cache; the time that takes.
    pub(super) fn look_up(&mut self, key: Key) -> Time {
        let (page, _) = self.store.layout.split(key);
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

    /// Asks for the data of a fill.
    pub(super) fn fetch(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(fill) = self.fills.get(number) else { return Ok(()) };
        let (key, ahead, missed) = (fill.key, fill.ahead, fill.missed);
        let slot = self.store.find(key)?;
        let now = context.now();
        let source = slot.filter(|slot| !self.in_buffer.contains(&slot.0));
        let Some(fill) = self.fills.get(number) else { return Ok(()) };
        (fill.slot, fill.mapped) = (slot, true);
        if let Some(source) = source {
            let plane = self.store.layout.plane(source);
            let op = self.works.add(Work::Fill(number));
            fill.op = Some((op, plane));
            self.flash.host_reads += 1;
            let class = if ahead { Class::Ahead } else { Class::Demand };
            self.channels.submit(op, class, plane, now);
            return if missed { self.after_miss(key, context) } else { Ok(()) };
        }
        if slot.is_some() {
            self.flash.buffer_read_hits += 1;
        } else {
            self.counts.unwritten += 1;
        }
        context.schedule(now, NvmmEvent(What::Filled(number)));
        self.crossing(number, context);
        if missed { self.after_miss(key, context) } else { Ok(()) }
    }

    /// A part whose block is on its way waits for it.
    pub(super) fn join(&mut self, frame: usize, number: u32, part: Part, context: &mut Context<NvmmEvent>) {
        let Some(&at) = self.filling.get(&frame) else { return };
        let Some(fill) = self.fills.get(at) else { return };
        fill.waiters.push((number, part));
        if fill.crossing.is_some() {
            self.release(at, number, part, context);
        } else if fill.ahead {
            fill.ahead = false;
            fill.first = part.line;
            if let Some((op, plane)) = fill.op {
                self.channels.promote(op, plane, context.now());
            }
        }
    }

    /// The data of a fill begin to cross: from now on it is known when each line is there.
    pub(super) fn crossing(&mut self, number: u32, context: &mut Context<NvmmEvent>) {
        let Some(fill) = self.fills.get(number) else { return };
        fill.crossing = Some(context.now());
        for (part, of) in fill.waiters.clone() {
            self.release(number, part, of, context);
        }
    }

    /// Says when a part that waits for a fill has its lines.
    fn release(&mut self, number: u32, part: u32, of: Part, context: &mut Context<NvmmEvent>) {
        let (now, lines) = (context.now(), self.lines_per_block);
        let critical = self.options.critical_first;
        let Some(fill) = self.fills.get(number) else { return };
        let begun = fill.crossing.unwrap_or(now);
        let behind = (of.line + lines - fill.first) % lines + of.lines;
        let needed = if critical { behind.min(lines) } else { lines };
        let time = match fill.op {
            Some(_) => (begun + self.channels.until(u64::from(needed) * super::LINE)).max(now),
            None => now,
        };
        context.schedule(time, NvmmEvent(What::Over(part)));
    }

    /// The data of a fill are there: they go to the cache.
    pub(super) fn filled(&mut self, number: u32, context: &mut Context<NvmmEvent>) -> Result<(), SimError> {
        let Some(fill) = self.fills.take(number) else { return Ok(()) };
        let now = context.now();
        self.filling.remove(&fill.frame);
        self.flags[fill.frame] &= !flag::FILLING;
        self.data(fill.frame, 0, self.lines_per_block, true, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.fill(fill.frame, fill.slot, self.lines_per_block);
        }
        for (_, part) in fill.waiters {
            self.settle_line(fill.frame, part)?;
            if part.write {
                self.soil(fill.frame, now);
            }
        }
        self.wake(context)
    }

    /// Whether stores wait for one of the first `before` fills.
    pub(super) fn fills_with_stores(&self, before: u64) -> bool {
        let fills = self.fills.items.iter().flatten();
        fills.into_iter().any(|fill| fill.number < before && fill.waiters.iter().any(|(_, part)| part.write))
    }

    /// Fills that do not know yet where their data are.
    pub(super) fn fills_unmapped(&self) -> u64 {
        self.fills.items.iter().flatten().filter(|fill| !fill.mapped).count() as u64
    }
}
