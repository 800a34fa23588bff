//! Byte-grain persistence (FlatFlash, section 3.5): a log of 64-byte lines beside the log of segments.
//!
//! A persist copies its lines into the open group. Whoever waits for a group that nobody writes
//! writes it, with all that was added to it meanwhile, as one record in one durable write: a group commit without a
//! thread of its own. Records are written one after the other, so that a record on flash means that
//! every persist before it is there too.
//!
//! A commit makes the groups before its cut unnecessary ([`Store::cut_lines`]). Opening applies the
//! others, in their order, on top of the last commit. Where they are kept: `ring.rs`; what happens when
//! the ring is full: `gather.rs`.
//!
//! # Invariants
//! 1. What is copied of a line is not older than what an earlier record has of it: copying and adding
//!    happen under `order`.
//! 2. A line is left out only if an earlier record since the last cut has it as it is.
//! 3. A group has only what was copied before the cut that it belongs to, or only what was copied
//!    after: `cuts` tells that one came in between, and the lines are copied again.
//!
//! Lock order: `order`, then `ring`, then the log, the cache, `queue`.

mod gather;
mod images;
mod ring;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Result, Store};
use crate::buffer::AlignedBuf;
use crate::device::ALIGN;
use crate::error::PoolError;
use crate::format::line::{self, LINE};
use crate::lock::lock;
use crate::stats::add;
pub(super) use gather::{ring_blocks, ring_bytes_for};
use images::Images;
use ring::Ring;
pub(crate) use ring::{Mark, RingRoot};

/// Bytes of a record, at most.
const RECORD_BYTES: usize = 128 << 10;
/// Lines copied at once.
const CHUNK_LINES: usize = 512;
/// How long a write waits for more lines, at most, and as a part of what the last write took.
const COMPANY: Duration = Duration::from_micros(50);
const COMPANY_SHARE: u32 = 3;
/// How long a thread watches a write of another before it sleeps, at most.
const WATCH: Duration = Duration::from_micros(500);

/// How long it sleeps at most before it looks whether the other one is there still.
const PATIENCE: Duration = Duration::from_millis(200);

/// The line log of a controller.
pub(crate) struct Lines {
    order: Mutex<Order>,
    queue: Mutex<Queue>,
    /// A group became durable, or could not be written.
    changed: Condvar,
    /// `None` until the first persist region is made.
    ring: Mutex<Option<Ring>>,
    /// The last commit has what groups up to this one say.
    retired: AtomicU64,
    /// The pool is closed: others may have the device. Set while the ring is held.
    closed: AtomicBool,
    /// The device may not know the log as it is, or know another: a checkpoint comes before the next record.
    doubted: AtomicBool,
    /// Groups up to this one are durable. Changed under the queue's lock, as `led`; watched without it.
    durable: AtomicU64,
    /// Somebody is writing, or about to.
    led: AtomicBool,
}

/// Copies lines from this one on; may use memory for a segment.
pub(crate) type Copy<'a> = &'a mut dyn FnMut(u64, &mut [u8], &mut [u8]) -> Result<()>;

/// What whoever adds lines needs.
#[derive(Default)]
struct Order {
    /// Where lines are copied before they are added to a group.
    copies: Vec<u8>,
    /// Memory for a segment, which copying may need.
    segment: Option<AlignedBuf>,
    images: Images,
    /// Cuts before the images.
    cuts: u64,
}

/// What waits to be written.
struct Queue {
    /// The group that is being filled.
    open: Option<AlignedBuf>,
    lines: usize,
    /// Its number.
    group: u64,
    /// A cut came after its lines: no more are added.
    sealed: bool,
    /// A group that could not be written: it is tried again before any other.
    failed: Option<Full>,
    spare: Option<AlignedBuf>,
    /// Threads that wait for the open group, and for the one that is being written.
    waiting: usize,
    under_way: usize,
    /// Threads that waited when the last write ended.
    expected: usize,
    /// How long that took.
    took: Duration,
    cuts: u64,
}

/// A group on its way to the device.
struct Full {
    buffer: AlignedBuf,
    lines: usize,
    group: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            order: Mutex::new(Order::default()),
            queue: Mutex::new(Queue {
                open: None,
                lines: 0,
                group: 1,
                sealed: false,
                failed: None,
                spare: None,
                waiting: 0,
                under_way: 0,
                expected: 0,
                took: Duration::ZERO,
                cuts: 0,
            }),
            changed: Condvar::new(),
            ring: Mutex::new(None),
            retired: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            durable: AtomicU64::new(0),
            led: AtomicBool::new(false),
        }
    }
}

impl Lines {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    fn ring(&self) -> MutexGuard<'_, Option<Ring>> {
        lock(&self.ring)
    }

    /// Whether a panic has left something half changed.
    pub(super) fn is_poisoned(&self) -> bool {
        self.order.is_poisoned() || self.queue.is_poisoned() || self.ring.is_poisoned()
    }

    fn is_durable(&self, group: u64) -> bool {
        self.durable.load(Acquire) >= group
    }

    fn is_led(&self) -> bool {
        self.led.load(Acquire)
    }

    /// A commit that is being replayed has what groups up to this one say.
    pub(super) fn note_retired(&self, group: u64) {
        self.retired.fetch_max(group, Relaxed);
    }

    /// DRAM of the buffers, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let queue = self.queue();
        let used = self.is_led() || queue.open.is_some() || queue.spare.is_some();
        // One that is being filled, one on its way; copies and images.
        if used { 2 * RECORD_BYTES + CHUNK_LINES * LINE + images::MOST_BYTES } else { 0 }
    }
}

impl Queue {
    fn room(&self) -> usize {
        if self.sealed { 0 } else { line::capacity(RECORD_BYTES) - self.lines }
    }

    fn add(&mut self, line: u64, bytes: &[u8]) {
        let open = self.open.get_or_insert_with(|| AlignedBuf::zeroed(RECORD_BYTES));
        line::put(open, self.lines, line, bytes);
        self.lines += 1;
    }

    /// The last group that has lines.
    fn last(&self) -> u64 {
        if self.lines > 0 { self.group } else { self.group - 1 }
    }

    /// Counts a thread that waits for a group.
    fn join(&mut self, group: u64) {
        if group == self.group {
            self.waiting += 1;
        } else {
            self.under_way += 1;
        }
    }

    /// Takes the next group to be written.
    fn take(&mut self) -> Option<Full> {
        if self.failed.is_some() || self.lines == 0 {
            return self.failed.take();
        }
        let spare = self.spare.take();
        let buffer = std::mem::replace(&mut self.open, spare)?;
        let full = Full { buffer, lines: self.lines, group: self.group };
        self.group += 1;
        (self.lines, self.sealed) = (0, false);
        self.under_way += std::mem::take(&mut self.waiting);
        Some(full)
    }
}

impl Store {
    /// Adds lines from `first` on, which `copy` gives, to the log. Returns the number of the group
    /// that must be durable for all of them to be.
    pub(crate) fn add_lines(&self, first: u64, count: u64, copy: Copy<'_>) -> Result<u64> {
        let mut order = lock(&self.lines.order);
        order.copies.resize(CHUNK_LINES * LINE, 0);
        let mut group = 0;
        let mut done = 0;
        while done < count {
            let lines = (count - done).min(CHUNK_LINES as u64) as usize;
            group = self.add_chunk(&mut order, first + done, lines, copy)?;
            done += lines as u64;
        }
        Ok(group)
    }

    fn add_chunk(&self, order: &mut Order, first: u64, count: usize, copy: Copy<'_>) -> Result<u64> {
        let Order { copies, segment, images, cuts } = order;
        let segment = segment.get_or_insert_with(|| AlignedBuf::zeroed(self.geometry.segment_bytes()));
        let copies = &mut copies[..count * LINE];
        loop {
            let now = self.lines.queue().cuts;
            if *cuts != now {
                images.clear();
                *cuts = now;
            }
            copy(first, copies, segment)?;
            let changed = || {
                let lines = (first..).zip(copies.chunks_exact(LINE));
                lines.filter(|(line, bytes)| images.differs(*line, bytes))
            };
            let needed = changed().count();
            let mut queue = self.lines.queue();
            if queue.cuts != now {
                continue;
            }
            let group = queue.group;
            if needed == 0 {
                // What was persisted of them before may be on its way still.
                return Ok(queue.last());
            }
            if queue.room() >= needed {
                changed().for_each(|(line, bytes)| queue.add(line, bytes));
                drop(queue);
                let lines = (first..).zip(copies.chunks_exact(LINE));
                lines.for_each(|(line, bytes)| images.note(line, bytes, count > 1));
                return Ok(group);
            }
            drop(queue);
            self.wait_for_lines(group)?;
        }
    }

    /// Returns when this group, and so every one before it, is durable.
    ///
    /// # Errors
    /// The device's, or that there is no space: the group stays to be written, and is with the next
    /// persist that succeeds.
    pub(crate) fn wait_for_lines(&self, group: u64) -> Result<()> {
        let lines = &self.lines;
        let mut queue = lines.queue();
        if !lines.is_durable(group) {
            queue.join(group);
        }
        while !lines.is_durable(group) {
            // One that writes may have ended in a panic.
            self.ensure_sound()?;
            if lines.is_led() {
                queue = self.watch_leader(queue, group);
                continue;
            }
            lines.led.store(true, Release);
            queue = self.await_company(queue);
            // None is left if the group was never begun, as that of another pool.
            let Some(mut full) = queue.take() else {
                lines.led.store(false, Release);
                break;
            };
            drop(queue);
            let begun = Instant::now();
            let written = self.write_lines(&mut full);
            queue = lines.queue();
            queue.took = begun.elapsed();
            // Those who waited for it will be back.
            queue.expected = queue.waiting + std::mem::take(&mut queue.under_way);
            if written.is_ok() {
                lines.durable.store(full.group, Release);
                queue.spare = Some(full.buffer);
            } else {
                queue.failed = Some(full);
            }
            lines.led.store(false, Release);
            lines.changed.notify_all();
            written?;
        }
        Ok(())
    }

    /// Waits while somebody else writes: at first without sleeping, for on many machines, virtual ones above
    /// all, it takes as long to wake a thread as to write a line.
    fn watch_leader<'a>(&'a self, queue: MutexGuard<'a, Queue>, group: u64) -> MutexGuard<'a, Queue> {
        let until = Instant::now() + (2 * queue.took).min(WATCH);
        drop(queue);
        let lines = &self.lines;
        let is_waiting = || !lines.is_durable(group) && lines.is_led();
        while is_waiting() && Instant::now() <= until {
            std::thread::yield_now();
        }
        let queue = lines.queue();
        if is_waiting() {
            let waited = lines.changed.wait_timeout(queue, PATIENCE);
            return waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue
    }

    /// Gives the threads that waited for the last group the time to join this one: a write of many costs as
    /// much as a write of few. No longer than a part of what a write takes.
    fn await_company<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let until = Instant::now() + (queue.took / COMPANY_SHARE).min(COMPANY);
        while queue.waiting < queue.expected && queue.failed.is_none() && Instant::now() < until {
            drop(queue);
            std::thread::yield_now();
            queue = self.lines.queue();
        }
        queue
    }

    fn write_lines(&self, full: &mut Full) -> Result<()> {
        let mut ring = self.lines_ring()?;
        let Some(ring) = ring.as_mut() else {
            return Err(self.inconsistent("lines are persisted, but there is no line log".into()));
        };
        let bytes = self.record_len(full.lines);
        if self.lines.doubted.load(Acquire) {
            self.settle(&mut self.lock_log())?;
        }
        if !ring.has_room(bytes) {
            self.gather(ring)?;
        }
        self.write_record(ring, &mut full.buffer, full.lines, full.group)?;
        add(&self.counters.lines_persisted, full.lines as u64);
        add(&self.counters.line_records, 1);
        Ok(())
    }

    /// The ring, unless the pool is closed.
    fn lines_ring(&self) -> Result<MutexGuard<'_, Option<Ring>>> {
        let ring = self.lines.ring();
        self.ensure_sound()?;
        if self.lines.closed.load(Acquire) { Err(PoolError::Closed) } else { Ok(ring) }
    }

    /// Lets nobody write a record any more; waits for one that is being written.
    pub(crate) fn close_lines(&self) {
        let _ring = self.lines.ring();
        self.lines.closed.store(true, Release);
    }

    /// A rollback may be on the device that did not take place, or a ring that it does not know be in use.
    pub(crate) fn doubt_lines(&self) {
        self.lines.doubted.store(true, Release);
    }

    /// Bytes that a record of so many lines takes on this device.
    fn record_len(&self, lines: usize) -> usize {
        line::record_bytes(lines).next_multiple_of(self.device.granule().min(ALIGN))
    }

    /// Whether this group is durable.
    pub(crate) fn has_lines(&self, group: u64) -> bool {
        self.lines.is_durable(group)
    }

    /// Flash that the line log takes, in bytes.
    pub(crate) fn line_log_bytes(&self) -> u64 {
        let blocks = self.lock_log().ring.as_ref().map_or(0, |ring| ring.blocks.len());
        blocks as u64 * self.geometry.block_bytes()
    }

    /// Writes lines that nobody waits for.
    pub(super) fn push_lines(&self) -> Result<()> {
        let queue = self.lines.queue();
        let (waiting, group) = (queue.lines > 0, queue.group);
        drop(queue);
        if waiting { self.wait_for_lines(group) } else { Ok(()) }
    }

    /// The cut of a sync: what was persisted before it is in the memory that is being committed. Returns
    /// the number of the last group of which that holds. The caller keeps stores from happening.
    pub(crate) fn cut_lines(&self) -> u64 {
        let mut queue = self.lines.queue();
        queue.cuts += 1;
        queue.sealed = queue.lines > 0;
        queue.last()
    }

    /// A commit with everything up to this group is durable on every controller.
    pub(crate) fn retire_lines(&self, log: &mut super::Log, group: u64) {
        self.lines.retired.fetch_max(group, Relaxed);
        if let Some(ring) = &mut log.ring {
            ring.retired = ring.retired.max(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use deepram_core::{Retention, SegmentSize};
    use uuid::Uuid;

    use super::super::{Identity, Sizing};
    use super::*;
    use crate::device::FileDevice;
    use crate::stats::Counters;

    fn store(folder: &tempfile::TempDir) -> Store {
        let sizing = Sizing { size: 1 << 20, flash: None, pmem: 0, segment: SegmentSize::K4 };
        let geometry = sizing.geometry().unwrap();
        let device = FileDevice::create(&folder.path().join("pool"), geometry.device_bytes()).unwrap();
        let identity = Identity { uuid: Uuid::from_u128(1), controller: 0, controllers: 1, base: 1 << 40 };
        let (retention, counters) = (Retention::KeepLast(2), Arc::new(Counters::default()));
        Store::create(Arc::new(device), identity, geometry, retention, 1 << 20, counters).unwrap()
    }

    #[test]
    fn lines_copied_while_a_cut_came_are_copied_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let mut copies = 0;
        let group = store.add_lines(100, 1, &mut |first, bytes, _| {
            copies += 1;
            assert_eq!(first, 100);
            bytes.fill(copies);
            if copies == 1 {
                // The memory that it commits may be newer than the first copy.
                assert_eq!(store.cut_lines(), 0);
            }
            Ok(())
        });
        assert_eq!((copies, group.unwrap()), (2, 1));
        let queue = store.lines.queue();
        let record = queue.open.as_ref().unwrap();
        assert_eq!(line::lines(record, 1).next(), Some((100, &[2; LINE][..])));
    }

    #[test]
    fn a_cut_ends_the_group_and_tells_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        store.make_ring().unwrap();
        let add = || store.add_lines(7, 1, &mut |_, _, _| Ok(())).unwrap();
        assert_eq!((add(), add()), (1, 1));
        assert_eq!(store.cut_lines(), 1);
        // Written first, for nothing may join it.
        assert_eq!((add(), store.has_lines(1)), (2, true));
        assert_eq!((store.cut_lines(), store.has_lines(2)), (2, false));
    }
}
