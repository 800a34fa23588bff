//! The reads in flight of one handler: by io_uring where the kernel allows it, one at a time elsewhere.
//!
//! Completions are polled: waking an idle processor takes longer than a device read (docs/performance.md).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use deepram_linux::buffer::AlignedBuf;
use deepram_linux::ring::{Ring, Transfer, TransferBuffer};

use super::BATCH;

/// Most and fewest reads of one page in flight at once.
const SINGLE_READS: (usize, usize) = (48, 4);
/// Of the reads of one page, readahead leaves one third free for faults.
const FAULT_SHARE: usize = 3;
/// Largest number of reads of several pages in flight at once.
const MULTI_READS: usize = 4;
/// The buffers of a handler take one part in this many of the DRAM for reads of one page, and as much for longer ones.
const BUFFERS_SHARE: usize = 64;

/// Numbers and sizes of a handler's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPlan {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Reads of one page in flight.
    pub singles: usize,
    /// Reads of several pages in flight.
    pub multis: usize,
    /// Pages of the longest read.
    pub run_pages: usize,
}

impl ReadPlan {
    /// The plan for `dram` bytes of DRAM, if reads can be in flight together; otherwise one read at a time.
    #[must_use]
    pub fn new(dram: usize, page_bytes: usize, concurrent: bool) -> Self {
        let share = dram / BUFFERS_SHARE / page_bytes;
        let multis = if concurrent { (share / BATCH).clamp(1, MULTI_READS) } else { 1 };
        let longest = (BATCH * 4096 / page_bytes).max(1);
        let singles = if concurrent { share.clamp(SINGLE_READS.1, SINGLE_READS.0) } else { 1 };
        Self { page_bytes, singles, multis, run_pages: (share / multis).clamp(1, longest) }
    }

    /// Bytes of all buffers, once all of them have been used.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        (self.singles + self.multis * self.run_pages) * self.page_bytes
    }

    /// The number of reads in flight.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.singles + self.multis
    }
}

/// A request slot and its buffer, which belongs to the request until the slot is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestSlot(u16);

/// A read that has completed.
pub(crate) struct CompletedRead {
    pub(crate) request: RequestSlot,
    /// Whether all bytes were read, or the error.
    pub(crate) result: io::Result<bool>,
}

/// The request slots of a handler, with their buffers.
pub(crate) struct ReadRequests {
    ring: Option<Box<dyn Ring>>,
    plan: ReadPlan,
    single_buffers: AlignedBuf,
    multi_buffers: Vec<Option<AlignedBuf>>,
    free_single: Vec<RequestSlot>,
    free_multi: Vec<RequestSlot>,
    /// Bytes requested, by request slot.
    lengths: Vec<usize>,
    /// Reads that were started and not yet submitted.
    unsubmitted: usize,
    /// Reads that the ring has.
    in_flight: usize,
    completed: VecDeque<CompletedRead>,
}

impl ReadRequests {
    /// Creates the request slots of a plan. Without a ring, the caller reads synchronously.
    pub(crate) fn new(ring: Option<Box<dyn Ring>>, plan: ReadPlan) -> Self {
        let slots = |range: std::ops::Range<usize>| range.rev().map(|n| RequestSlot(n as u16)).collect();
        Self {
            ring,
            single_buffers: AlignedBuf::zeroed(plan.singles * plan.page_bytes),
            multi_buffers: (0..plan.multis).map(|_| None).collect(),
            free_single: slots(0..plan.singles),
            free_multi: slots(plan.singles..plan.depth()),
            lengths: vec![0; plan.depth()],
            unsubmitted: 0,
            in_flight: 0,
            completed: VecDeque::new(),
            plan,
        }
    }

    /// Whether several reads can be in flight at once.
    pub(crate) fn is_concurrent(&self) -> bool {
        self.ring.is_some()
    }

    /// Pages of the longest read.
    pub(crate) fn run_pages(&self) -> usize {
        self.plan.run_pages
    }

    /// Readable when a read has completed.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|ring| ring.as_fd())
    }

    /// Takes a request slot for one page, or for a run of pages; `ahead` of use, or for a fault.
    pub(crate) fn acquire(&mut self, pages: usize, ahead: bool) -> Option<RequestSlot> {
        if pages > 1 {
            return self.free_multi.pop();
        }
        if ahead && self.free_single.len() <= self.plan.singles / FAULT_SHARE {
            return None;
        }
        self.free_single.pop()
    }

    /// Releases the request slot and its buffer.
    pub(crate) fn release(&mut self, request: RequestSlot) {
        let single = usize::from(request.0) < self.plan.singles;
        let free = if single { &mut self.free_single } else { &mut self.free_multi };
        free.push(request);
    }

    /// The buffer of a request.
    pub(crate) fn bytes(&mut self, request: RequestSlot, pages: usize) -> &mut [u8] {
        let (n, bytes) = (usize::from(request.0), pages * self.plan.page_bytes);
        match n.checked_sub(self.plan.singles) {
            None => &mut self.single_buffers[n * self.plan.page_bytes..][..bytes],
            Some(run) => {
                let longest = self.plan.run_pages * self.plan.page_bytes;
                &mut self.multi_buffers[run].get_or_insert_with(|| AlignedBuf::zeroed(longest))[..bytes]
            }
        }
    }

    /// Starts to read pages from neighbouring places of a file; [`ReadRequests::submit`] submits the read. Returns
    /// `false` if the caller has to read them, and to call [`ReadRequests::complete`].
    pub(crate) fn start(
        &mut self,
        request: RequestSlot,
        pages: usize,
        location: Option<(RawFd, u64)>,
    ) -> bool {
        let bytes = self.bytes(request, pages);
        let (at, len) = (bytes.as_mut_ptr(), bytes.len());
        self.lengths[usize::from(request.0)] = len;
        let Some(((fd, offset), ring)) = location.zip(self.ring.as_mut()) else { return false };
        // SAFETY: the buffer belongs to this value, at a stable address; it is neither lent nor freed before the read has
        // completed (`bytes` is called only for the request's owner; `drop` leaks it).
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, len) };
        let id = u64::from(request.0);
        let pushed = ring.push(Transfer { fd, id, offset, bytes: TransferBuffer::In(bytes) });
        self.unsubmitted += usize::from(pushed);
        self.in_flight += usize::from(pushed);
        pushed
    }

    /// Records the result of a read that the caller has made.
    pub(crate) fn complete(&mut self, request: RequestSlot, result: io::Result<()>) {
        self.completed.push_back(CompletedRead { request, result: result.map(|()| true) });
    }

    /// Submits the started reads. Those that the kernel cannot start now are submitted by the next call.
    pub(crate) fn submit(&mut self) {
        if let Some(ring) = self.ring.as_mut().filter(|_| self.unsubmitted > 0) {
            self.unsubmitted = self.unsubmitted.saturating_sub(ring.submit(0).unwrap_or(0));
        }
    }

    /// The next completed read, if any.
    pub(crate) fn next(&mut self) -> Option<CompletedRead> {
        if let Some(completed) = self.completed.pop_front() {
            return Some(completed);
        }
        let ring = self.ring.as_mut().filter(|_| self.in_flight > 0)?;
        self.unsubmitted = self.unsubmitted.saturating_sub(ring.take_in());
        let (id, result) = ring.ended()?;
        self.in_flight -= 1;
        let request = RequestSlot(id as u16);
        let result = match usize::try_from(result) {
            Ok(n) => Ok(n == self.lengths[usize::from(request.0)]),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        };
        Some(CompletedRead { request, result })
    }
}

impl Drop for ReadRequests {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The handler ended in a panic: the kernel may still write to the buffers.
            std::mem::forget(std::mem::replace(&mut self.single_buffers, AlignedBuf::zeroed(1)));
            self.multi_buffers.iter_mut().for_each(|run| std::mem::forget(run.take()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_the_dram() {
        for (dram, expected) in [
            (1 << 20, ReadPlan { page_bytes: 4096, singles: 4, multis: 1, run_pages: 4 }),
            (32 << 20, ReadPlan { page_bytes: 4096, singles: 48, multis: 2, run_pages: 64 }),
            (1 << 30, ReadPlan { page_bytes: 4096, singles: 48, multis: 4, run_pages: 64 }),
        ] {
            assert_eq!(ReadPlan::new(dram, 4096, true), expected, "{dram}");
        }
        let large = ReadPlan::new(1 << 30, 16 << 10, true);
        assert_eq!((large.run_pages, large.depth()), (16, 52));
        assert_eq!(ReadPlan::new(1 << 30, 4096, false).depth(), 2, "one read at a time");
    }
}
