//! Keeping shared memory within the budget: a hand passes over the windows of a file that have pages in
//! DRAM.
//!
//! What the hand passes is unmapped in every process (its contents stay where they are) and begins to be
//! written. A window that is still unused some way behind the hand is dropped from DRAM; the kernel keeps the
//! pages that any process has mapped again, because it used them. The process that accounts for the file
//! moves its hand; the others follow it.
//!
//! The kernel brings pages in by itself and tells nobody. So a thread looks how many there are, as often as
//! the rest of the budget could be filled meanwhile, and never more often than a twentieth of its time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use super::super::stats::add;
use super::super::{Inner, PAGE};
use super::ahead::Ahead;
use super::{DATA, Segment, Table, WINDOW};
use crate::descriptors::Own;
use crate::message::write_line;

/// Windows that are asked about together, when most of a large file is empty.
pub(super) const GROUP: usize = 64;
/// Most pages that are dropped before they are counted again.
const BATCH: usize = 4096;
/// Pages a second that may arrive, when nothing holds them up: 4 GiB/s.
const ARRIVING: u64 = 1 << 20;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);
/// Longest pause where there is little room, but nothing happens.
const IDLE: Duration = Duration::from_millis(20);

/// What the sweeping thread knows of a file.
struct Clock {
    segment: Arc<Segment>,
    /// Windows that the hand has passed, as the hand counts them, and that are to be dropped in turn.
    passed: VecDeque<u64>,
    /// How far this process has followed the hand.
    followed: u64,
    ahead: Ahead,
}

/// `struct cachestat` of the kernel.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat(2)`, Linux 6.5.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a part of a file that are in DRAM.
pub(super) fn cached(file: &Own, offset: usize, len: usize) -> io::Result<usize> {
    let range = [offset as u64, len as u64];
    let mut counts = CacheStat::default();
    // SAFETY: the range and the counts are of the call's types and outlive it.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut counts, 0u32) };
    if result == 0 { Ok(counts.cached as usize) } else { Err(io::Error::last_os_error()) }
}

impl Segment {
    pub(super) fn windows(&self) -> u64 {
        self.len.div_ceil(WINDOW) as u64
    }

    /// Where a window lies in the file; the hand counts on over laps.
    pub(super) fn place(&self, window: u64, count: u64) -> (usize, usize) {
        let start = (window % self.windows()) as usize * WINDOW;
        (DATA + start, (count as usize * WINDOW).min(self.len - start))
    }

    /// Pages of windows that are in DRAM.
    pub(super) fn cached(&self, window: u64, count: u64) -> usize {
        let (offset, len) = self.place(window, count);
        // It was asked before, when the file was made.
        cached(&self.file, offset, len).unwrap_or(0)
    }

    /// Begins to write a window, or has it written.
    fn write(&self, window: u64, flags: libc::c_uint) -> io::Result<()> {
        let (offset, len) = self.place(window, 1);
        let file = self.file.as_raw_fd();
        // SAFETY: changes no memory.
        match unsafe { libc::sync_file_range(file, offset as i64, len as i64, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Table {
    /// Unmaps windows wherever this process has them mapped; their contents stay.
    fn unmap(&self, segment: &Arc<Segment>, from: u64, count: u64) {
        let (start, len) = segment.place(from, count);
        let (start, end) = (start - DATA, start - DATA + len);
        for (at, span) in self.spans.iter().filter(|(_, span)| Arc::ptr_eq(&span.segment, segment)) {
            let first = start.max(span.offset);
            let last = end.min(span.offset + (span.end - at));
            if first < last {
                // SAFETY: a shared mapping of the file, as the table, whose lock is held, says: dropping it
                // from the process's page table loses nothing. Refused for locked memory, which stays.
                unsafe {
                    libc::syscall(
                        libc::SYS_madvise,
                        at + (first - span.offset),
                        last - first,
                        libc::MADV_DONTNEED,
                    )
                };
            }
        }
    }
}

impl Clock {
    /// Unmaps what the hand has passed since.
    fn follow(&mut self, table: &Table) -> bool {
        let hand = self.segment.control.hand.load(SeqCst);
        let windows = self.segment.windows();
        let mut left = hand.saturating_sub(self.followed).min(windows);
        let moved = left > 0;
        let mut at = hand - left;
        while left > 0 {
            let count = left.min(windows - at % windows);
            table.unmap(&self.segment, at, count);
            at += count;
            left -= count;
        }
        self.followed = hand;
        moved
    }

    /// Moves the hand over the next window that has pages in DRAM; `false` if there is none that is not
    /// passed already.
    fn advance(&mut self, inner: &Inner) -> bool {
        let windows = self.segment.windows();
        let hand = self.segment.control.hand.load(SeqCst);
        let end = self.passed.front().map_or(hand, |oldest| *oldest) + windows;
        let mut at = hand;
        while at < end {
            let within = at % windows;
            let group = (GROUP as u64).min(windows - within);
            if within.is_multiple_of(GROUP as u64) && self.segment.cached(at, group) == 0 {
                at += group;
                continue;
            }
            if self.segment.cached(at, 1) > 0 {
                self.segment.control.hand.store(at + 1, SeqCst);
                self.follow(&inner.sharing.lock());
                // What fails here fails again when it is waited for.
                let _ = self.segment.write(at, libc::SYNC_FILE_RANGE_WRITE);
                self.passed.push_back(at);
                return true;
            }
            at += 1;
        }
        false
    }

    /// Drops up to so many pages, and looks at each window once at most. Returns how many went.
    fn reclaim(&mut self, inner: &Inner, need: usize) -> usize {
        let counted = self.segment.counted.load(Relaxed);
        let lead = (counted / (WINDOW / PAGE) / 4) as u64 + 1;
        let mut freed = 0;
        for _ in 0..self.segment.windows() {
            while (self.passed.len() as u64) < lead && self.advance(inner) {}
            if freed >= need || self.segment.failed.load(Relaxed) {
                break;
            }
            let Some(window) = self.passed.pop_front() else { break };
            let before = self.segment.cached(window, 1);
            let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            if let Err(error) = self.segment.write(window, all) {
                add(&inner.counters.io_errors, 1);
                self.segment.failed.store(true, Relaxed);
                write_line(format_args!(
                    "deepram: shared memory cannot be written ({error}); it stays in DRAM beyond the budget"
                ));
                break;
            }
            let (offset, len) = self.segment.place(window, 1);
            let len = std::num::NonZeroU64::new(len as u64);
            // Advice: what could not be dropped is counted as being there.
            let _ = rustix::fs::fadvise(&self.segment.file, offset as u64, len, rustix::fs::Advice::DontNeed);
            freed += before.saturating_sub(self.segment.cached(window, 1));
            self.ahead.follow(&self.segment, inner.frames.limit());
        }
        freed
    }
}

impl Inner {
    /// Starts the thread that sweeps, unless there is one.
    pub(in super::super) fn start_sweeping(self: &Arc<Self>, table: &mut Table) -> io::Result<()> {
        if table.swept || table.segments.is_empty() {
            return Ok(());
        }
        let inner = Arc::clone(self);
        self.spawn("deepram-share", move || inner.sweep())?;
        table.swept = true;
        Ok(())
    }

    /// Body of the thread.
    fn sweep(&self) {
        let mut clocks: Vec<Clock> = Vec::new();
        let mut idle = SHORTEST;
        while !self.stopping.load(Relaxed) {
            let begun = Instant::now();
            let mut busy = self.follow_all(&mut clocks);
            if self.count(&clocks) {
                busy = true;
                // Read by the process that accounts for it, so that only one does.
                let counted = clocks.iter_mut().filter(|clock| clock.segment.counted.load(Relaxed) > 0);
                counted.for_each(|clock| clock.ahead.look(&clock.segment));
            }
            let excess = self.frames.excess(2 * self.headroom()).min(BATCH);
            let counted = super::Sharing::counted(&self.sharing.lock());
            let mut freed = 0;
            if excess > 0 && counted > 0 {
                for clock in &mut clocks {
                    let its = clock.segment.counted.load(Relaxed);
                    let share = (excess * its).div_ceil(counted);
                    if share > 0 {
                        freed += clock.reclaim(self, share);
                    }
                }
                self.count(&clocks);
            }
            // Where hardly anything can go, looking again at once does not help.
            busy = (busy && excess == 0) || freed * 4 > excess;
            idle = if busy { SHORTEST } else { (idle * 2).min(IDLE) };
            let room = self.frames.limit().saturating_sub(self.frames.used()) as u64;
            let filled = Duration::from_micros(room.saturating_mul(1_000_000) / ARRIVING);
            let rest = if excess > 0 { Duration::ZERO } else { begun.elapsed() * 20 };
            self.follow_streams(&mut clocks, filled.max(idle).max(rest).min(LONGEST));
        }
    }

    /// Waits, and reads ahead of streams meanwhile.
    fn follow_streams(&self, clocks: &mut [Clock], pause: Duration) {
        let end = Instant::now() + pause;
        while !self.stopping.load(Relaxed) {
            let soonest = clocks
                .iter_mut()
                .filter_map(|clock| clock.ahead.follow(&clock.segment, self.frames.limit()))
                .min();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(soonest.map_or(left, |soonest| soonest.max(SHORTEST).min(left)));
        }
    }

    /// Follows the hands of all files; whether any has moved.
    fn follow_all(&self, clocks: &mut Vec<Clock>) -> bool {
        let table = self.sharing.lock();
        clocks.retain(|clock| table.segments.iter().any(|segment| Arc::ptr_eq(segment, &clock.segment)));
        for segment in &table.segments {
            if !clocks.iter().any(|clock| Arc::ptr_eq(segment, &clock.segment)) {
                let followed = segment.control.hand.load(SeqCst);
                let (segment, passed, ahead) = (Arc::clone(segment), VecDeque::new(), Ahead::default());
                clocks.push(Clock { segment, passed, followed, ahead });
            }
        }
        let mut moved = false;
        for clock in clocks {
            moved |= clock.follow(&table);
        }
        moved
    }

    /// Counts the pages of files that this process accounts for; whether there are others than before.
    fn count(&self, clocks: &[Clock]) -> bool {
        let mut changed = false;
        for clock in clocks.iter().filter(|clock| clock.segment.accounts()) {
            // What is unmapped meanwhile is nobody's: looked up again, under the lock.
            let table = self.sharing.lock();
            if !table.segments.iter().any(|segment| Arc::ptr_eq(segment, &clock.segment)) {
                continue;
            }
            let Ok(now) = cached(&clock.segment.file, 0, DATA + clock.segment.len) else { continue };
            let before = clock.segment.counted.swap(now, Relaxed);
            self.frames.take(now.saturating_sub(before));
            self.frames.give(before.saturating_sub(now));
            changed |= now != before;
        }
        changed
    }
}
