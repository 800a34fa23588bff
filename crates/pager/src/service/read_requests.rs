//! The reads in flight of one handler: by io_uring where the kernel allows it, one at a time elsewhere.
//!
//! Completions are polled: waking an idle processor takes longer than a device read (docs/performance.md).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use deepram_core::paging::ReadPlan;
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::ring::{Ring, Transfer, TransferBuffer};

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
        if ahead && self.free_single.len() <= self.plan.fault_reserve() {
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
