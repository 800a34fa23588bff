//! The reads in flight of one handler: by io_uring where the kernel allows it, one at a time elsewhere.
//!
//! Completions are polled: waking an idle processor takes longer than a device read (docs/performance.md).

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};

use super::page_table::SwapSlot;
use super::swap_file::SwapFile;
use super::{BATCH, PAGE};
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::uring::{self, RETRY_PAUSE, SUBMIT_RETRIES, is_transient};

/// Number of single-page reads in flight at once.
const SINGLE_READS: usize = 48;
/// Of these, the number reserved for faults: readahead leaves them free.
const FAULT_RESERVE: usize = 16;
/// Largest number of multi-page reads in flight at once.
const MULTI_READS: usize = 4;
/// The buffers of multi-page reads take one part in this many of the DRAM for each handler, and at least one buffer.
const MULTI_READS_SHARE: usize = 64;

/// A request slot and its buffer, which belongs to the request until the slot is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestSlot(u16);

/// A read that has completed.
pub(super) struct CompletedRead {
    pub(super) request: RequestSlot,
    /// Whether all bytes were read.
    pub(super) complete: bool,
}

/// The request slots of a handler, with their buffers.
pub(super) struct ReadRequests {
    ring: Option<IoUring>,
    single_buffers: AlignedBuf,
    multi_buffers: [Option<AlignedBuf>; MULTI_READS],
    free_single: Vec<RequestSlot>,
    free_multi: Vec<RequestSlot>,
    /// Bytes requested, by request slot.
    lengths: [u32; SINGLE_READS + MULTI_READS],
    /// Requests that the ring has not submitted yet, in the order of their start.
    unsent: VecDeque<RequestSlot>,
    /// The kernel no longer allows this ring. Its descriptor stays open.
    refused: bool,
    in_flight: usize,
    completed: VecDeque<CompletedRead>,
}

impl ReadRequests {
    /// Creates the request slots, with a ring of their own; reads are synchronous if the kernel refuses the ring, or
    /// `ring` is false. For `multi_reads` see [`ReadRequests::multi_reads`].
    pub(super) fn new(ring: bool, multi_reads: usize) -> Self {
        let ring = if ring { uring::coop_taskrun((SINGLE_READS + MULTI_READS) as u32) } else { None };
        Self {
            ring,
            single_buffers: AlignedBuf::zeroed(SINGLE_READS * PAGE),
            multi_buffers: [const { None }; MULTI_READS],
            free_single: (0..SINGLE_READS as u16).rev().map(RequestSlot).collect(),
            free_multi: (SINGLE_READS as u16..(SINGLE_READS + multi_reads) as u16)
                .rev()
                .map(RequestSlot)
                .collect(),
            lengths: [0; SINGLE_READS + MULTI_READS],
            unsent: VecDeque::new(),
            refused: false,
            in_flight: 0,
            completed: VecDeque::new(),
        }
    }

    /// Number of multi-page reads that may be in flight with `dram` bytes of DRAM.
    pub(super) fn multi_reads(dram: usize) -> usize {
        (dram / MULTI_READS_SHARE / (BATCH * PAGE)).clamp(1, MULTI_READS)
    }

    /// Bytes of all buffers with this many multi-page reads, once all of them have been used.
    pub(super) fn buffer_bytes(multi_reads: usize) -> usize {
        (SINGLE_READS + multi_reads * BATCH) * PAGE
    }

    /// Whether several reads can be in flight at once.
    pub(super) fn is_concurrent(&self) -> bool {
        self.ring.is_some()
    }

    /// Readable when a read has completed.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open as long as the ring, which lives as long as the borrow.
        self.ring.as_ref().map(|ring| unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) })
    }

    /// Takes a request slot for one page, or for up to [`BATCH`] pages; `ahead` of use, or for a fault.
    pub(super) fn acquire(&mut self, pages: usize, ahead: bool) -> Option<RequestSlot> {
        if pages > 1 {
            return self.free_multi.pop();
        }
        if ahead && self.free_single.len() <= FAULT_RESERVE {
            return None;
        }
        self.free_single.pop()
    }

    /// Releases the request slot and its buffer.
    pub(super) fn release(&mut self, request: RequestSlot) {
        let free =
            if usize::from(request.0) < SINGLE_READS { &mut self.free_single } else { &mut self.free_multi };
        free.push(request);
    }

    /// The buffer of a request.
    pub(super) fn bytes(&mut self, request: RequestSlot, pages: usize) -> &mut [u8] {
        let n = usize::from(request.0);
        match n.checked_sub(SINGLE_READS) {
            None => &mut self.single_buffers[n * PAGE..(n + pages) * PAGE],
            Some(run) => {
                let buffer = self.multi_buffers[run].get_or_insert_with(|| AlignedBuf::zeroed(BATCH * PAGE));
                &mut buffer[..pages * PAGE]
            }
        }
    }

    /// Starts to read pages from neighbouring slots of the swap file. [`ReadRequests::submit`] submits the request.
    pub(super) fn start(&mut self, swap_file: &SwapFile, slot: SwapSlot, request: RequestSlot, pages: usize) {
        let bytes = self.bytes(request, pages);
        let (at, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
        self.lengths[usize::from(request.0)] = len;
        let (fd, offset) = swap_file.location(slot);
        let entry = opcode::Read::new(types::Fd(fd), at, len).offset(offset).build();
        let entry = entry.user_data(u64::from(request.0));
        let pushed = match self.ring.as_mut().filter(|_| !self.refused) {
            // SAFETY: the buffer belongs to this value, at a stable address; it is neither lent nor freed before the
            // read has completed (`bytes` is called only for the request's owner; `drop` leaks it). The descriptor is
            // the swap file's, which lives as long as the pager.
            Some(ring) => unsafe { ring.submission().push(&entry) }.is_ok(),
            None => false,
        };
        if pushed {
            self.unsent.push_back(request);
            self.in_flight += 1;
        } else {
            let complete = swap_file.read(slot, self.bytes(request, pages)).is_ok();
            self.completed.push_back(CompletedRead { request, complete });
        }
    }

    /// Submits the started requests. A request that the kernel refuses to start completes as incomplete.
    pub(super) fn submit(&mut self) {
        let mut tries = 0;
        while let Some(ring) = self.ring.as_mut().filter(|_| !self.unsent.is_empty()) {
            match ring.submit() {
                Ok(sent) if sent > 0 => self.sent(sent),
                // Submission is retried when a request in flight completes.
                result if result.as_ref().err().is_none_or(is_transient) && tries < SUBMIT_RETRIES => {
                    if self.in_flight > self.unsent.len() {
                        return;
                    }
                    tries += 1;
                    std::thread::sleep(RETRY_PAUSE);
                }
                _ => {
                    // The ring must not start these requests later.
                    self.refused = true;
                    self.in_flight -= self.unsent.len();
                    self.completed.extend(
                        self.unsent.drain(..).map(|request| CompletedRead { request, complete: false }),
                    );
                }
            }
        }
    }

    fn sent(&mut self, count: usize) {
        self.unsent.drain(..count.min(self.unsent.len()));
    }

    /// The next completed read, if any.
    pub(super) fn next(&mut self) -> Option<CompletedRead> {
        if let Some(completed) = self.completed.pop_front() {
            return Some(completed);
        }
        let ring = self.ring.as_mut()?;
        let sent = if self.refused { 0 } else { uring::run_deferred_completions(ring) };
        let entry = ring.completion().next();
        self.sent(sent);
        let entry = entry?;
        self.in_flight -= 1;
        let request = RequestSlot(entry.user_data() as u16);
        let complete = u32::try_from(entry.result()) == Ok(self.lengths[usize::from(request.0)]);
        Some(CompletedRead { request, complete })
    }
}

impl Drop for ReadRequests {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            // The handler ended in a panic: the kernel may still write to the buffers.
            std::mem::forget(std::mem::replace(&mut self.single_buffers, AlignedBuf::zeroed(PAGE)));
            self.multi_buffers.iter_mut().for_each(|run| std::mem::forget(run.take()));
        }
    }
}
