//! Several writes under way at once: io_uring where the kernel allows it, one at a time elsewhere.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};

use super::Device;
use crate::buffer::AlignedBuf;

/// One write that has ended: `tag` as given to [`WriteQueue::write`].
pub(crate) struct Completion {
    pub(crate) tag: u64,
    pub(crate) result: io::Result<()>,
}

struct InFlight {
    id: u64,
    tag: u64,
    offset: u64,
    len: usize,
    buffer: AlignedBuf,
}

/// A queue of writes to one device. Buffers go in and come back through [`WriteQueue::buffer`].
pub(crate) struct WriteQueue {
    device: Arc<dyn Device>,
    ring: Option<IoUring>,
    depth: usize,
    next_id: u64,
    in_flight: Vec<InFlight>,
    completed: VecDeque<Completion>,
    spare: Vec<AlignedBuf>,
    buffer_len: usize,
}

impl WriteQueue {
    pub(crate) fn new(device: Arc<dyn Device>, depth: usize, buffer_len: usize) -> Self {
        let ring = device.queue_fd().and_then(|_| IoUring::new(depth as u32).ok());
        Self {
            device,
            ring,
            depth,
            next_id: 0,
            in_flight: Vec::with_capacity(depth),
            completed: VecDeque::new(),
            spare: Vec::new(),
            buffer_len,
        }
    }

    /// A buffer to fill; its contents are arbitrary.
    pub(crate) fn buffer(&mut self) -> AlignedBuf {
        self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(self.buffer_len))
    }

    /// Takes back a buffer that was not written.
    pub(crate) fn give_back(&mut self, buffer: AlignedBuf) {
        self.spare.push(buffer);
    }

    /// Starts writing the first `len` bytes of `buffer` at `offset`, waiting for a place where
    /// the queue is full. The outcome arrives through [`WriteQueue::completed`].
    pub(crate) fn write(&mut self, tag: u64, offset: u64, buffer: AlignedBuf, len: usize) {
        let Some(fd) = self.device.queue_fd().filter(|_| self.ring.is_some()) else {
            let result = self.device.write(offset, &buffer[..len]);
            self.spare.push(buffer);
            self.completed.push_back(Completion { tag, result });
            return;
        };
        while self.in_flight.len() >= self.depth {
            self.wait(1);
        }
        let id = self.next_id;
        self.next_id += 1;
        let entry = opcode::Write::new(types::Fd(fd), buffer.as_ptr(), len as u32)
            .offset(offset)
            .build()
            .user_data(id);
        self.in_flight.push(InFlight { id, tag, offset, len, buffer });
        let ring = self.ring.as_mut().expect("checked above");
        // SAFETY: the entry's buffer is owned by `in_flight` and is neither moved from its heap
        // address, read mutably nor freed until the completion for `id` was seen (`wait`, `drop`).
        let pushed = unsafe { ring.submission().push(&entry) };
        if pushed.is_err() || ring.submit().is_err() {
            // Not reached with a ring as deep as the queue; the synchronous path is always right.
            self.retreat(id);
        }
    }

    /// Outcomes so far, oldest first.
    pub(crate) fn completed(&mut self) -> Option<Completion> {
        if self.completed.is_empty() && !self.in_flight.is_empty() {
            self.reap();
        }
        self.completed.pop_front()
    }

    /// Waits until nothing is under way.
    pub(crate) fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.wait(1);
        }
    }

    fn wait(&mut self, want: usize) {
        let Some(ring) = self.ring.as_mut() else { return };
        match ring.submit_and_wait(want) {
            Ok(_) => {}
            // Interrupted, or short of kernel memory for a moment: the writes are still under way.
            Err(_) => std::thread::yield_now(),
        }
        self.reap();
    }

    fn reap(&mut self) {
        let Some(ring) = self.ring.as_mut() else { return };
        let done: Vec<(u64, i32)> =
            ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
        for (id, result) in done {
            let Some(index) = self.in_flight.iter().position(|w| w.id == id) else { continue };
            let write = self.in_flight.swap_remove(index);
            let result = match usize::try_from(result) {
                Ok(n) if n == write.len => Ok(()),
                // A short write: finish the rest in the plain way, which reports what stops it.
                Ok(n) => {
                    let n = n / super::ALIGN * super::ALIGN;
                    self.device.write(write.offset + n as u64, &write.buffer[n..write.len])
                }
                Err(_) => Err(io::Error::from_raw_os_error(-result)),
            };
            self.spare.push(write.buffer);
            self.completed.push_back(Completion { tag: write.tag, result });
        }
    }

    fn retreat(&mut self, id: u64) {
        let Some(index) = self.in_flight.iter().position(|w| w.id == id) else { return };
        let write = self.in_flight.swap_remove(index);
        let result = self.device.write(write.offset, &write.buffer[..write.len]);
        // The kernel may hold the submitted entry still: its buffer must outlive the process.
        std::mem::forget(write.buffer);
        self.completed.push_back(Completion { tag: write.tag, result });
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        self.drain();
    }
}
