//! Keeps shared memory within the budget: a clock hand moves over the windows of a file that have pages in DRAM.
//!
//! Windows that the hand passes are unmapped in every process (their contents stay where they are), and write-back
//! begins. A window that is still unused some distance behind the hand is dropped from DRAM; the kernel keeps the pages
//! that a process has mapped again, because it used them. The process that is charged for the file moves its hand; the
//! other processes follow it.
//!
//! The kernel brings pages in without a notification. So a thread counts them, as often as the rest of the budget could
//! be filled meanwhile, and for at most a twentieth of its time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use super::super::stats::add;
use super::super::{Inner, PAGE};
use super::readahead::FileReadahead;
use super::{DATA, MappingTable, SharedFile, WINDOW};
use deepram_linux::descriptors::OwnDescriptor;
use deepram_linux::message::write_line;

/// Windows that one call checks together, for large files that are mostly out of DRAM.
pub(super) const GROUP_WINDOWS: usize = 64;
/// Largest number of pages that are dropped before the pages are counted again.
const BATCH: usize = 4096;
/// Assumed largest number of pages that arrive in a second: 4 GiB/s.
const ARRIVING: u64 = 1 << 20;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);
/// Longest pause while DRAM is short but nothing changes.
const IDLE: Duration = Duration::from_millis(20);

/// The clock of a file, in the sweeping thread of this process.
struct FileClock {
    shared_file: Arc<SharedFile>,
    /// Windows that the hand has passed, by the hand's count, in the order in which they are to be dropped.
    passed: VecDeque<u64>,
    /// Position up to which this process has followed the hand.
    followed: u64,
    readahead: FileReadahead,
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

/// Number of pages of a part of a file that are in DRAM.
pub(super) fn cached(file: &OwnDescriptor, offset: usize, len: usize) -> io::Result<usize> {
    let range = [offset as u64, len as u64];
    let mut counts = CacheStat::default();
    // SAFETY: the range and the counts have the call's types and outlive it.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut counts, 0u32) };
    if result == 0 { Ok(counts.cached as usize) } else { Err(io::Error::last_os_error()) }
}

impl SharedFile {
    pub(super) fn windows(&self) -> u64 {
        self.len.div_ceil(WINDOW) as u64
    }

    /// Offset and length of windows in the file; window numbers count on over laps.
    pub(super) fn location(&self, window: u64, count: u64) -> (usize, usize) {
        let start = (window % self.windows()) as usize * WINDOW;
        (DATA + start, (count as usize * WINDOW).min(self.len - start))
    }

    /// Number of pages of windows that are in DRAM.
    pub(super) fn cached(&self, window: u64, count: u64) -> usize {
        let (offset, len) = self.location(window, count);
        // The call was tried when the file was created.
        cached(&self.file, offset, len).unwrap_or(0)
    }

    /// Starts write-back of a window, or completes it, as `flags` say.
    fn write(&self, window: u64, flags: libc::c_uint) -> io::Result<()> {
        let (offset, len) = self.location(window, 1);
        let file = self.file.as_raw_fd();
        // SAFETY: changes no memory.
        match unsafe { libc::sync_file_range(file, offset as i64, len as i64, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl MappingTable {
    /// Unmaps windows wherever this process maps them; their contents stay.
    fn unmap(&self, shared_file: &Arc<SharedFile>, from: u64, count: u64) {
        let (start, len) = shared_file.location(from, count);
        let (start, end) = (start - DATA, start - DATA + len);
        for (at, mapping) in
            self.mappings.iter().filter(|(_, mapping)| Arc::ptr_eq(&mapping.shared_file, shared_file))
        {
            let first = start.max(mapping.offset);
            let last = end.min(mapping.offset + (mapping.end - at));
            if first < last {
                // SAFETY: a shared mapping of the file, according to the table, whose lock is held: removing it from
                // the process's page table loses nothing. The kernel refuses for locked memory, which stays.
                unsafe {
                    libc::syscall(
                        libc::SYS_madvise,
                        at + (first - mapping.offset),
                        last - first,
                        libc::MADV_DONTNEED,
                    )
                };
            }
        }
    }
}

impl FileClock {
    /// Unmaps the windows that the hand has passed since the last call. Returns whether it has moved.
    fn follow(&mut self, table: &MappingTable) -> bool {
        let hand = self.shared_file.control.hand.load(SeqCst);
        let windows = self.shared_file.windows();
        let mut left = hand.saturating_sub(self.followed).min(windows);
        let moved = left > 0;
        let mut at = hand - left;
        while left > 0 {
            let count = left.min(windows - at % windows);
            table.unmap(&self.shared_file, at, count);
            at += count;
            left -= count;
        }
        self.followed = hand;
        moved
    }

    /// Moves the hand over the next window that has pages in DRAM; `false` if all such windows have been passed.
    fn advance(&mut self, inner: &Inner) -> bool {
        let windows = self.shared_file.windows();
        let hand = self.shared_file.control.hand.load(SeqCst);
        let end = self.passed.front().map_or(hand, |oldest| *oldest) + windows;
        let mut at = hand;
        while at < end {
            let within = at % windows;
            let group = (GROUP_WINDOWS as u64).min(windows - within);
            if within.is_multiple_of(GROUP_WINDOWS as u64) && self.shared_file.cached(at, group) == 0 {
                at += group;
                continue;
            }
            if self.shared_file.cached(at, 1) > 0 {
                self.shared_file.control.hand.store(at + 1, SeqCst);
                self.follow(&inner.shared_memory.lock());
                // An error here shows again when the write-back is waited for.
                let _ = self.shared_file.write(at, libc::SYNC_FILE_RANGE_WRITE);
                self.passed.push_back(at);
                return true;
            }
            at += 1;
        }
        false
    }

    /// Drops up to `need` pages, checking each window at most once. Returns how many were dropped.
    fn reclaim(&mut self, inner: &Inner, need: usize) -> usize {
        let counted = self.shared_file.counted.load(Relaxed);
        let lead = (counted / (WINDOW / PAGE) / 4) as u64 + 1;
        let mut freed = 0;
        for _ in 0..self.shared_file.windows() {
            while (self.passed.len() as u64) < lead && self.advance(inner) {}
            if freed >= need || self.shared_file.failed.load(Relaxed) {
                break;
            }
            let Some(window) = self.passed.pop_front() else { break };
            let before = self.shared_file.cached(window, 1);
            let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER;
            if let Err(error) = self.shared_file.write(window, all) {
                add(&inner.counters.io_errors, 1);
                self.shared_file.failed.store(true, Relaxed);
                write_line(format_args!(
                    "deepram: writing shared memory to disk failed ({error}); it stays in DRAM beyond the budget"
                ));
                break;
            }
            let (offset, len) = self.shared_file.location(window, 1);
            let len = std::num::NonZeroU64::new(len as u64);
            // Advice only: pages that could not be dropped are still counted.
            let _ =
                rustix::fs::fadvise(&self.shared_file.file, offset as u64, len, rustix::fs::Advice::DontNeed);
            freed += before.saturating_sub(self.shared_file.cached(window, 1));
            self.readahead.follow(&self.shared_file, inner.frames.limit());
        }
        freed
    }
}

impl Inner {
    /// Starts the sweeping thread, unless it runs already.
    pub(in super::super) fn start_sweeping(self: &Arc<Self>, table: &mut MappingTable) -> io::Result<()> {
        if table.swept || table.files.is_empty() {
            return Ok(());
        }
        let inner = Arc::clone(self);
        self.spawn("deepram-share", move || inner.sweep())?;
        table.swept = true;
        Ok(())
    }

    /// Body of the sweeping thread.
    fn sweep(&self) {
        let mut clocks: Vec<FileClock> = Vec::new();
        let mut idle = SHORTEST;
        while !self.stopping.load(Relaxed) {
            let begun = Instant::now();
            let mut busy = self.follow_all(&mut clocks);
            if self.count_pages(&clocks) {
                busy = true;
                // The process that is charged for the file reads ahead, so that only one process does.
                let counted = clocks.iter_mut().filter(|clock| clock.shared_file.counted.load(Relaxed) > 0);
                counted.for_each(|clock| clock.readahead.detect_streams(&clock.shared_file));
            }
            let excess = self.frames.excess(2 * self.headroom()).min(BATCH);
            let counted = super::SharedMemory::counted(&self.shared_memory.lock());
            let mut freed = 0;
            if excess > 0 && counted > 0 {
                for clock in &mut clocks {
                    let its = clock.shared_file.counted.load(Relaxed);
                    let share = (excess * its).div_ceil(counted);
                    if share > 0 {
                        freed += clock.reclaim(self, share);
                    }
                }
                self.count_pages(&clocks);
            }
            // Where hardly any page can be dropped, trying again at once does not help.
            busy = (busy && excess == 0) || freed * 4 > excess;
            idle = if busy { SHORTEST } else { (idle * 2).min(IDLE) };
            let free = self.frames.limit().saturating_sub(self.frames.used()) as u64;
            let filled = Duration::from_micros(free.saturating_mul(1_000_000) / ARRIVING);
            let rest = if excess > 0 { Duration::ZERO } else { begun.elapsed() * 20 };
            self.follow_streams(&mut clocks, filled.max(idle).max(rest).min(LONGEST));
        }
    }

    /// Waits for `pause`, and reads ahead of streams meanwhile.
    fn follow_streams(&self, clocks: &mut [FileClock], pause: Duration) {
        let end = Instant::now() + pause;
        while !self.stopping.load(Relaxed) {
            let soonest = clocks
                .iter_mut()
                .filter_map(|clock| clock.readahead.follow(&clock.shared_file, self.frames.limit()))
                .min();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(soonest.map_or(left, |soonest| soonest.max(SHORTEST).min(left)));
        }
    }

    /// Follows the hands of all files. Returns whether any has moved.
    fn follow_all(&self, clocks: &mut Vec<FileClock>) -> bool {
        let table = self.shared_memory.lock();
        clocks.retain(|clock| {
            table.files.iter().any(|shared_file| Arc::ptr_eq(shared_file, &clock.shared_file))
        });
        for shared_file in &table.files {
            if !clocks.iter().any(|clock| Arc::ptr_eq(shared_file, &clock.shared_file)) {
                let followed = shared_file.control.hand.load(SeqCst);
                let (shared_file, passed, readahead) =
                    (Arc::clone(shared_file), VecDeque::new(), FileReadahead::default());
                clocks.push(FileClock { shared_file, passed, followed, readahead });
            }
        }
        let mut moved = false;
        for clock in clocks {
            moved |= clock.follow(&table);
        }
        moved
    }

    /// Counts the pages of files that this process is charged for. Returns whether the number has changed.
    fn count_pages(&self, clocks: &[FileClock]) -> bool {
        let mut changed = false;
        for clock in clocks.iter().filter(|clock| clock.shared_file.is_accountant()) {
            // A file that was unmapped meanwhile is not charged: checked again, under the lock.
            let table = self.shared_memory.lock();
            if !table.files.iter().any(|shared_file| Arc::ptr_eq(shared_file, &clock.shared_file)) {
                continue;
            }
            let Ok(now) = cached(&clock.shared_file.file, 0, DATA + clock.shared_file.len) else { continue };
            let before = clock.shared_file.counted.swap(now, Relaxed);
            self.frames.change_files(now.saturating_sub(before), before.saturating_sub(now));
            changed |= now != before;
        }
        changed
    }
}
