//! Queues of transfers in flight, with io_uring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::{IoUring, opcode, squeue, types};

use crate::uring::{self, RETRY_PAUSE, SUBMIT_RETRIES, is_transient};

/// A transfer for a [`Ring`].
#[derive(Debug)]
pub struct Transfer {
    /// The file, open until the transfer has completed.
    pub fd: RawFd,
    /// Identity of the transfer, which its completion returns.
    pub id: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The buffer. The ring owns it until the completion has been taken.
    pub bytes: TransferBuffer,
}

/// The buffer of a transfer, with its direction.
#[derive(Debug)]
pub enum TransferBuffer {
    /// Bytes to be written to the file.
    Out(&'static [u8]),
    /// Bytes to be filled from the file.
    In(&'static mut [u8]),
}

/// A queue of transfers in flight. Tests substitute one that delays, reorders and fails transfers.
pub trait Ring: Send {
    /// Adds a transfer to the next submission; returns false if the queue is full.
    fn push(&mut self, transfer: Transfer) -> bool;
    /// Starts the added transfers, and waits until at least `want` transfers have completed. Returns the number of
    /// transfers started.
    ///
    /// # Errors
    /// Interrupted, or temporarily out of memory: transfers in flight are unaffected.
    fn submit(&mut self, want: usize) -> io::Result<usize>;
    /// Collects the completions of a quiet queue without waiting. Returns the number of transfers that it also
    /// started.
    fn take_in(&mut self) -> usize;
    /// Returns the next completed transfer: its identity, and the number of bytes transferred or a negative errno.
    fn ended(&mut self) -> Option<(u64, i32)>;
    /// Returns a descriptor that is readable when a transfer has completed.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

/// Makes a queue of `entries` transfers, if the kernel allows one. Completions on a `quiet` queue do not interrupt other
/// processors; see [`Ring::take_in`].
#[must_use]
pub fn create(entries: u32, quiet: bool) -> Option<Box<dyn Ring>> {
    let ring = if quiet { uring::coop_taskrun(entries) } else { uring::standard(entries).ok() }?;
    Some(Box::new(LinuxRing { ring, unsent: VecDeque::new(), under_way: 0, refused: false }))
}

/// An io_uring. If the kernel refuses further submissions, the unstarted transfers complete with zero bytes, and the
/// caller continues with plain system calls.
struct LinuxRing {
    ring: IoUring,
    /// Added transfers that were not started, in order.
    unsent: VecDeque<u64>,
    /// Transfers that were started and have not completed.
    under_way: usize,
    refused: bool,
}

impl LinuxRing {
    fn sent(&mut self, count: usize) -> usize {
        self.under_way += self.unsent.drain(..count.min(self.unsent.len())).count();
        count
    }
}

impl Ring for LinuxRing {
    fn push(&mut self, transfer: Transfer) -> bool {
        if self.refused {
            return false;
        }
        let fd = types::Fd(transfer.fd);
        let entry: squeue::Entry = match transfer.bytes {
            TransferBuffer::Out(bytes) => {
                opcode::Write::new(fd, bytes.as_ptr(), bytes.len() as u32).offset(transfer.offset).build()
            }
            TransferBuffer::In(bytes) => {
                opcode::Read::new(fd, bytes.as_mut_ptr(), bytes.len() as u32).offset(transfer.offset).build()
            }
        };
        // SAFETY: the buffer lives as long as its type says, and the maker of the transfer keeps all other code from
        // it until the completion has been taken.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(transfer.id)) }.is_ok();
        self.unsent.extend(pushed.then_some(transfer.id));
        pushed
    }

    fn submit(&mut self, want: usize) -> io::Result<usize> {
        for _ in 0..SUBMIT_RETRIES {
            if self.refused {
                // Started transfers complete by themselves.
                if want > 0 && self.unsent.is_empty() {
                    std::thread::sleep(RETRY_PAUSE);
                }
                return Ok(0);
            }
            match self.ring.submit_and_wait(want) {
                Ok(count) => return Ok(self.sent(count)),
                Err(error) if !is_transient(&error) => self.refused = true,
                // The next call will return the completion of the transfers in flight.
                Err(error) if self.under_way > 0 => return Err(error),
                Err(_) => std::thread::sleep(RETRY_PAUSE),
            }
        }
        self.refused = true;
        Ok(0)
    }

    fn take_in(&mut self) -> usize {
        if self.refused {
            return 0;
        }
        let count = uring::run_deferred_completions(&mut self.ring);
        self.sent(count)
    }

    fn ended(&mut self) -> Option<(u64, i32)> {
        if let Some(entry) = self.ring.completion().next() {
            self.under_way -= 1;
            return Some((entry.user_data(), entry.result()));
        }
        // The ring must not start this transfer later.
        if self.refused { self.unsent.pop_front().map(|id| (id, 0)) } else { None }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the ring, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}
