//! Byte-granular persistence (FlatFlash, section 3.5): a log of 64-byte lines beside the log of segments.
//!
//! A persist copies its lines into the open group. If no other thread is writing, a thread that waits for its group
//! writes that group, with all lines that were added meanwhile, as one record in one durable write: a group commit
//! without a dedicated thread. Records are written one after the other, so that a record on flash implies that every
//! earlier persist is on flash too.
//!
//! A commit makes the groups before its cut unnecessary ([`Store::cut_lines`]). Opening a pool applies the later
//! groups, in order, on top of the last commit. `ring.rs` stores the records; `compaction.rs` makes room when the
//! ring is full.
//!
//! # Invariants
//! 1. The copy of a line is not older than the copy in any earlier record: copying and adding happen under `order`.
//! 2. A line is omitted only if an earlier record since the last cut holds it unchanged.
//! 3. All lines of a group were copied before the same cut, or all after it: `cuts` shows that a cut came in between,
//!    and the lines are then copied again.
//!
//! Lock order: `order`, then `ring`, then the log, the cache, `queue`.

mod compaction;
mod ring;
mod shadow_copies;

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Result, Store};
use crate::device::ALIGN;
use crate::error::PoolError;
use crate::format::line::{self, LINE};
use crate::stats::add;
pub(super) use compaction::{ring_blocks, ring_bytes_for};
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;
use ring::Ring;
pub(crate) use ring::{RecordPosition, RingRoot};
use shadow_copies::ShadowCopies;

/// Largest size of a record, in bytes.
const RECORD_BYTES: usize = 128 << 10;
/// Lines copied at once.
const CHUNK_LINES: usize = 512;
/// Longest time that a write waits for more lines. It also waits no longer than a part of the duration of the last
/// write.
const FOLLOWER_WAIT: Duration = Duration::from_micros(50);
const FOLLOWER_WAIT_SHARE: u32 = 3;
/// Longest time that a thread spins on another thread's write before it sleeps.
const SPIN_LIMIT: Duration = Duration::from_micros(500);

/// Longest sleep before the thread checks again that another thread is still writing.
const WRITER_CHECK_PERIOD: Duration = Duration::from_millis(200);

/// The line log of a controller.
pub(crate) struct Lines {
    order: Mutex<AddState>,
    queue: Mutex<GroupQueue>,
    /// Notified when a group became durable or could not be written.
    changed: Condvar,
    /// `None` until the first persist region is made.
    ring: Mutex<Option<Ring>>,
    /// The last commit covers the groups up to this one.
    retired: AtomicU64,
    /// The pool is closed, and other processes may use the device. Set while the ring is locked.
    closed: AtomicBool,
    /// The device may describe another line log than this one, or none: a checkpoint is needed before the next
    /// record.
    needs_checkpoint: AtomicBool,
    /// Groups up to this one are durable. Written under the queue's lock, as `writer_active`; polled without it.
    durable: AtomicU64,
    /// A thread is writing a group, or is about to.
    writer_active: AtomicBool,
}

/// Copies lines, from the given number on; may use a buffer of one segment.
pub(crate) type CopyLines<'a> = &'a mut dyn FnMut(u64, &mut [u8], &mut [u8]) -> Result<()>;

/// State of the threads that add lines.
#[derive(Default)]
struct AddState {
    /// Buffer into which lines are copied before they are added to a group.
    copies: Vec<u8>,
    /// Buffer of one segment, which copying may need.
    segment: Option<AlignedBuf>,
    shadow_copies: ShadowCopies,
    /// Number of cuts when the shadow copies were started.
    cuts: u64,
}

/// The groups that wait to be written.
struct GroupQueue {
    /// Buffer of the open group.
    open: Option<AlignedBuf>,
    lines: usize,
    /// Number of the open group.
    group: u64,
    /// A cut came after the group's lines: no more lines may join it.
    sealed: bool,
    /// A group whose write failed: it is tried again before any other.
    failed: Option<PendingGroup>,
    spare: Option<AlignedBuf>,
    /// Threads that wait for the open group, and threads that wait for the group being written.
    waiting: usize,
    waiting_for_write: usize,
    /// Threads that waited when the last write ended.
    expected: usize,
    /// Duration of the last write.
    took: Duration,
    cuts: u64,
}

/// A group that is being written.
struct PendingGroup {
    buffer: AlignedBuf,
    lines: usize,
    group: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            order: Mutex::new(AddState::default()),
            queue: Mutex::new(GroupQueue {
                open: None,
                lines: 0,
                group: 1,
                sealed: false,
                failed: None,
                spare: None,
                waiting: 0,
                waiting_for_write: 0,
                expected: 0,
                took: Duration::ZERO,
                cuts: 0,
            }),
            changed: Condvar::new(),
            ring: Mutex::new(None),
            retired: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            needs_checkpoint: AtomicBool::new(false),
            durable: AtomicU64::new(0),
            writer_active: AtomicBool::new(false),
        }
    }
}

impl Lines {
    fn queue(&self) -> MutexGuard<'_, GroupQueue> {
        lock(&self.queue)
    }

    fn ring(&self) -> MutexGuard<'_, Option<Ring>> {
        lock(&self.ring)
    }

    /// Returns whether a thread panicked while it held one of the locks.
    pub(super) fn is_poisoned(&self) -> bool {
        self.order.is_poisoned() || self.queue.is_poisoned() || self.ring.is_poisoned()
    }

    fn is_durable(&self, group: u64) -> bool {
        self.durable.load(Acquire) >= group
    }

    fn is_writer_active(&self) -> bool {
        self.writer_active.load(Acquire)
    }

    /// Records that a replayed commit covers the groups up to this one.
    pub(super) fn note_retired(&self, group: u64) {
        self.retired.fetch_max(group, Relaxed);
    }

    /// Returns the size of the buffers in DRAM, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let queue = self.queue();
        let used = self.is_writer_active() || queue.open.is_some() || queue.spare.is_some();
        // One buffer that is being filled, one that is being written; copies and shadow copies.
        if used { 2 * RECORD_BYTES + CHUNK_LINES * LINE + shadow_copies::MAX_BYTES } else { 0 }
    }
}

impl GroupQueue {
    fn room(&self) -> usize {
        if self.sealed { 0 } else { line::capacity(RECORD_BYTES) - self.lines }
    }

    fn add(&mut self, line: u64, bytes: &[u8]) {
        let open = self.open.get_or_insert_with(|| AlignedBuf::zeroed(RECORD_BYTES));
        line::put(open, self.lines, line, bytes);
        self.lines += 1;
    }

    /// Returns the number of the last group with lines.
    fn last(&self) -> u64 {
        if self.lines > 0 { self.group } else { self.group - 1 }
    }

    /// Counts a thread that waits for a group.
    fn join(&mut self, group: u64) {
        if group == self.group {
            self.waiting += 1;
        } else {
            self.waiting_for_write += 1;
        }
    }

    /// Takes the next group to be written.
    fn take(&mut self) -> Option<PendingGroup> {
        if self.failed.is_some() || self.lines == 0 {
            return self.failed.take();
        }
        let spare = self.spare.take();
        let buffer = std::mem::replace(&mut self.open, spare)?;
        let full = PendingGroup { buffer, lines: self.lines, group: self.group };
        self.group += 1;
        (self.lines, self.sealed) = (0, false);
        self.waiting_for_write += std::mem::take(&mut self.waiting);
        Some(full)
    }
}

impl Store {
    /// Adds `count` lines from `first` on, which `copy` supplies, to the line log. Returns the number of the group
    /// after which all of them are durable.
    pub(crate) fn add_lines(&self, first: u64, count: u64, copy: CopyLines<'_>) -> Result<u64> {
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

    fn add_chunk(&self, order: &mut AddState, first: u64, count: usize, copy: CopyLines<'_>) -> Result<u64> {
        let AddState { copies, segment, shadow_copies, cuts } = order;
        let segment = segment.get_or_insert_with(|| AlignedBuf::zeroed(self.geometry.segment_bytes()));
        let copies = &mut copies[..count * LINE];
        loop {
            let now = self.lines.queue().cuts;
            if *cuts != now {
                shadow_copies.clear();
                *cuts = now;
            }
            copy(first, copies, segment)?;
            let changed = || {
                let lines = (first..).zip(copies.chunks_exact(LINE));
                lines.filter(|(line, bytes)| shadow_copies.may_differ(*line, bytes))
            };
            let needed = changed().count();
            let mut queue = self.lines.queue();
            if queue.cuts != now {
                continue;
            }
            let group = queue.group;
            if needed == 0 {
                // An earlier persist of these lines may still be in progress.
                return Ok(queue.last());
            }
            if queue.room() >= needed {
                changed().for_each(|(line, bytes)| queue.add(line, bytes));
                drop(queue);
                let lines = (first..).zip(copies.chunks_exact(LINE));
                lines.for_each(|(line, bytes)| shadow_copies.note(line, bytes, count > 1));
                return Ok(group);
            }
            drop(queue);
            self.wait_for_lines(group)?;
        }
    }

    /// Waits until this group, and so every earlier group, is durable.
    ///
    /// # Errors
    /// The device's error, or that no space is left: the group stays queued, and is durable with the next persist
    /// that succeeds.
    pub(crate) fn wait_for_lines(&self, group: u64) -> Result<()> {
        let lines = &self.lines;
        let mut queue = lines.queue();
        if !lines.is_durable(group) {
            queue.join(group);
        }
        while !lines.is_durable(group) {
            // The writing thread may have ended in a panic.
            self.ensure_sound()?;
            if lines.is_writer_active() {
                queue = self.wait_for_writer(queue, group);
                continue;
            }
            lines.writer_active.store(true, Release);
            queue = self.await_followers(queue);
            // No group is queued if this group was never begun, for example because it belongs to another pool.
            let Some(mut full) = queue.take() else {
                lines.writer_active.store(false, Release);
                break;
            };
            drop(queue);
            let begun = Instant::now();
            let written = self.write_lines(&mut full);
            queue = lines.queue();
            queue.took = begun.elapsed();
            // The threads that waited will persist again soon.
            queue.expected = queue.waiting + std::mem::take(&mut queue.waiting_for_write);
            if written.is_ok() {
                lines.durable.store(full.group, Release);
                queue.spare = Some(full.buffer);
            } else {
                queue.failed = Some(full);
            }
            lines.writer_active.store(false, Release);
            lines.changed.notify_all();
            written?;
        }
        Ok(())
    }

    /// Waits while another thread writes. It first spins: on many machines, above all virtual ones, waking a thread
    /// takes as long as writing a line.
    fn wait_for_writer<'a>(
        &'a self,
        queue: MutexGuard<'a, GroupQueue>,
        group: u64,
    ) -> MutexGuard<'a, GroupQueue> {
        let until = Instant::now() + (2 * queue.took).min(SPIN_LIMIT);
        drop(queue);
        let lines = &self.lines;
        let is_waiting = || !lines.is_durable(group) && lines.is_writer_active();
        while is_waiting() && Instant::now() <= until {
            std::thread::yield_now();
        }
        let queue = lines.queue();
        if is_waiting() {
            let waited = lines.changed.wait_timeout(queue, WRITER_CHECK_PERIOD);
            return waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue
    }

    /// Gives the threads that waited for the last group time to join this one, because a large write costs about as
    /// much as a small one. Waits at most for a part of the duration of a write.
    fn await_followers<'a>(&'a self, mut queue: MutexGuard<'a, GroupQueue>) -> MutexGuard<'a, GroupQueue> {
        let until = Instant::now() + (queue.took / FOLLOWER_WAIT_SHARE).min(FOLLOWER_WAIT);
        while queue.waiting < queue.expected && queue.failed.is_none() && Instant::now() < until {
            drop(queue);
            std::thread::yield_now();
            queue = self.lines.queue();
        }
        queue
    }

    fn write_lines(&self, full: &mut PendingGroup) -> Result<()> {
        let mut ring = self.lines_ring()?;
        let Some(ring) = ring.as_mut() else {
            return Err(self.inconsistent("lines were persisted, but no line log exists".into()));
        };
        let bytes = self.record_len(full.lines);
        if self.lines.needs_checkpoint.load(Acquire) {
            self.checkpoint_lines(&mut self.lock_log())?;
        }
        if !ring.has_room(bytes) {
            self.compact_ring(ring)?;
        }
        self.write_record(ring, &mut full.buffer, full.lines, full.group)?;
        add(&self.counters.lines_persisted, full.lines as u64);
        add(&self.counters.line_records, 1);
        Ok(())
    }

    /// Locks the ring, unless the pool is closed.
    fn lines_ring(&self) -> Result<MutexGuard<'_, Option<Ring>>> {
        let ring = self.lines.ring();
        self.ensure_sound()?;
        if self.lines.closed.load(Acquire) { Err(PoolError::Closed) } else { Ok(ring) }
    }

    /// Prevents further record writes, and waits for one in progress.
    pub(crate) fn close_lines(&self) {
        let _ring = self.lines.ring();
        self.lines.closed.store(true, Release);
    }

    /// Requires a checkpoint before the next record: the device may hold a rollback that did not take place, or may
    /// not describe the ring in use.
    pub(crate) fn require_line_checkpoint(&self) {
        self.lines.needs_checkpoint.store(true, Release);
    }

    /// Returns the size of a record of `lines` lines on this device, in bytes.
    fn record_len(&self, lines: usize) -> usize {
        line::record_bytes(lines).next_multiple_of(self.device.granule().min(ALIGN))
    }

    /// Returns whether this group is durable.
    pub(crate) fn is_group_durable(&self, group: u64) -> bool {
        self.lines.is_durable(group)
    }

    /// Returns the flash that the line log takes, in bytes.
    pub(crate) fn line_log_bytes(&self) -> u64 {
        let blocks = self.lock_log().ring.as_ref().map_or(0, |ring| ring.blocks.len());
        blocks as u64 * self.geometry.block_bytes()
    }

    /// Writes the lines for which no thread waits.
    pub(super) fn flush_lines(&self) -> Result<()> {
        let queue = self.lines.queue();
        let (waiting, group) = (queue.lines > 0, queue.group);
        drop(queue);
        if waiting { self.wait_for_lines(group) } else { Ok(()) }
    }

    /// Makes the cut of a sync: bytes persisted before it are part of the memory that is being committed. Returns the
    /// number of the last such group. The caller keeps threads from storing.
    pub(crate) fn cut_lines(&self) -> u64 {
        let mut queue = self.lines.queue();
        queue.cuts += 1;
        queue.sealed = queue.lines > 0;
        queue.last()
    }

    /// Records that a commit that covers the groups up to this one is durable on every controller.
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
        let sizing =
            Sizing { size: 1 << 20, flash: None, pmem: 0, segment: SegmentSize::K4, redundancy: None };
        let geometry = sizing.geometry().unwrap();
        let device = FileDevice::create(&folder.path().join("pool"), geometry.device_bytes()).unwrap();
        let identity = Identity {
            uuid: Uuid::from_u128(1),
            controller: 0,
            controllers: 1,
            base: 1 << 40,
            limits: crate::format::header::WearLimits::default(),
        };
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
                // The commit's memory may be newer than the first copy.
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
        // This group is written first, because no more lines may join it.
        assert_eq!((add(), store.is_group_durable(1)), (2, true));
        assert_eq!((store.cut_lines(), store.is_group_durable(2)), (2, false));
    }
}
