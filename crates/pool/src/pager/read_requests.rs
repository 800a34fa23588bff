//! Reads of one handler that are under way: io_uring where the kernel allows it, one at a time elsewhere.
//!
//! Completions are looked for without sleeping: a processor that has gone to sleep takes longer to wake than
//! the device takes to answer (docs/performance.md).

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

use super::ranges::Slot;
use super::store::Store;
use super::{BATCH, PAGE};
use crate::buffer::AlignedBuf;
use crate::ring::{self, PAUSE, TRIES, is_passing};

/// Reads of one page that can be under way.
const SINGLES: usize = 48;
/// Of these, kept for faults: what is read ahead of use leaves them.
const KEPT: usize = 16;
/// Reads of several pages that can be under way, at most.
const RUNS: usize = 4;
/// Part of the DRAM that their buffers may take of each handler, if one fits there.
const RUNS_SHARE: usize = 64;

/// Where a read goes to; its buffer is the reader's own until it is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Berth(u16);

/// A read that has ended.
pub(super) struct Done {
    pub(super) berth: Berth,
    /// All bytes are there.
    pub(super) whole: bool,
}

/// The reads, and their buffers.
pub(super) struct Reads {
    ring: Option<IoUring>,
    singles: AlignedBuf,
    runs: [Option<AlignedBuf>; RUNS],
    free_singles: Vec<Berth>,
    free_runs: Vec<Berth>,
    /// Bytes that each berth waits for.
    lengths: [u32; SINGLES + RUNS],
    /// Those that the ring has not been told of, as they were started.
    unsent: VecDeque<Berth>,
    /// The kernel does not let the ring be used any more. Its descriptor stays.
    refused: bool,
    under_way: usize,
    done: VecDeque<Done>,
}

impl Reads {
    /// Reads by a ring of its own; one at a time if the kernel refuses one, or none is wanted. So many `runs` of pages can be under
    /// way: see [`Reads::runs`].
    pub(super) fn new(ring: bool, runs: usize) -> Self {
        let ring = if ring { ring::ring((SINGLES + RUNS) as u32) } else { None };
        Self {
            ring,
            singles: AlignedBuf::zeroed(SINGLES * PAGE),
            runs: [const { None }; RUNS],
            free_singles: (0..SINGLES as u16).rev().map(Berth).collect(),
            free_runs: (SINGLES as u16..(SINGLES + runs) as u16).rev().map(Berth).collect(),
            lengths: [0; SINGLES + RUNS],
            unsent: VecDeque::new(),
            refused: false,
            under_way: 0,
            done: VecDeque::new(),
        }
    }

    /// How many runs may be under way with so much DRAM.
    pub(super) fn runs(dram: usize) -> usize {
        (dram / RUNS_SHARE / (BATCH * PAGE)).clamp(1, RUNS)
    }

    /// Bytes of buffers for so many runs, once all have been used.
    pub(super) fn most_bytes(runs: usize) -> usize {
        (SINGLES + runs * BATCH) * PAGE
    }

    /// Whether several can be under way.
    pub(super) fn are_many(&self) -> bool {
        self.ring.is_some()
    }

    /// Readable when a read has ended.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open as long as the ring, which stays as long as it is borrowed.
        self.ring.as_ref().map(|ring| unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })
    }

    /// Room for a page, or for up to [`BATCH`] of them; `ahead` of use, or for a fault.
    pub(super) fn berth(&mut self, pages: usize, ahead: bool) -> Option<Berth> {
        if pages > 1 {
            return self.free_runs.pop();
        }
        if ahead && self.free_singles.len() <= KEPT {
            return None;
        }
        self.free_singles.pop()
    }

    /// Gives the buffer back.
    pub(super) fn give_back(&mut self, berth: Berth) {
        let free = if usize::from(berth.0) < SINGLES { &mut self.free_singles } else { &mut self.free_runs };
        free.push(berth);
    }

    /// The berth's buffer.
    pub(super) fn bytes(&mut self, berth: Berth, pages: usize) -> &mut [u8] {
        let n = usize::from(berth.0);
        match n.checked_sub(SINGLES) {
            None => &mut self.singles[n * PAGE..(n + pages) * PAGE],
            Some(run) => {
                let buffer = self.runs[run].get_or_insert_with(|| AlignedBuf::zeroed(BATCH * PAGE));
                &mut buffer[..pages * PAGE]
            }
        }
    }

    /// Starts reading pages from neighbouring slots. [`Reads::submit`] sends it off.
    pub(super) fn start(&mut self, store: &Store, slot: Slot, berth: Berth, pages: usize) {
        let bytes = self.bytes(berth, pages);
        let (at, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
        self.lengths[usize::from(berth.0)] = len;
        let (fd, offset) = store.place(slot);
        let entry = opcode::Read::new(types::Fd(fd), at, len).offset(offset).build();
        let entry = entry.user_data(u64::from(berth.0));
        let pushed = match self.ring.as_mut().filter(|_| !self.refused) {
            // SAFETY: the buffer is this value's own, at a stable address, and nobody is given it, nor is it
            // freed, before the read has ended (`bytes` is asked for only by who started it; `drop` leaks it).
            // The descriptor is the store's, which lives as long as the pager.
            Some(ring) => unsafe { ring.submission().push(&entry) }.is_ok(),
            None => false,
        };
        if pushed {
            self.unsent.push_back(berth);
            self.under_way += 1;
        } else {
            let whole = store.read(slot, self.bytes(berth, pages)).is_ok();
            self.done.push_back(Done { berth, whole });
        }
    }

    /// Sends off what was started. What the kernel refuses to start has ended then, and not whole.
    pub(super) fn submit(&mut self) {
        let mut tries = 0;
        while let Some(ring) = self.ring.as_mut().filter(|_| !self.unsent.is_empty()) {
            match ring.submit() {
                Ok(sent) if sent > 0 => self.sent(sent),
                // The end of what is under way is the next time.
                result if result.as_ref().err().is_none_or(is_passing) && tries < TRIES => {
                    if self.under_way > self.unsent.len() {
                        return;
                    }
                    tries += 1;
                    std::thread::sleep(PAUSE);
                }
                _ => {
                    // What the ring has not started it must not start later.
                    self.refused = true;
                    self.under_way -= self.unsent.len();
                    self.done.extend(self.unsent.drain(..).map(|berth| Done { berth, whole: false }));
                }
            }
        }
    }

    fn sent(&mut self, count: usize) {
        self.unsent.drain(..count.min(self.unsent.len()));
    }

    /// The next one that has ended.
    pub(super) fn next(&mut self) -> Option<Done> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let ring = self.ring.as_mut()?;
        let sent = if self.refused { 0 } else { ring::take_in(ring) };
        let entry = ring.completion().next();
        self.sent(sent);
        let entry = entry?;
        self.under_way -= 1;
        let berth = Berth(entry.user_data() as u16);
        let whole = u32::try_from(entry.result()) == Ok(self.lengths[usize::from(berth.0)]);
        Some(Done { berth, whole })
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The handler ended in a panic: the kernel may write to the buffers still.
            std::mem::forget(std::mem::replace(&mut self.singles, AlignedBuf::zeroed(PAGE)));
            self.runs.iter_mut().for_each(|run| std::mem::forget(run.take()));
        }
    }
}
