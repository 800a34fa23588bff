//! A queue of writes in flight: with io_uring where the kernel allows it, otherwise one write at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::Device;
use super::kernel::{Ring, Transfer, TransferBuffer};
use deepram_linux::buffer::AlignedBuf;

/// A completed write, with the `tag` given to [`WriteQueue::write`].
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

/// A queue of writes to one device. The queue owns the buffers of writes in flight and returns them through
/// [`WriteQueue::buffer`].
pub(crate) struct WriteQueue {
    device: Arc<dyn Device>,
    ring: Option<Box<dyn Ring>>,
    depth: usize,
    next_id: u64,
    in_flight: Vec<InFlight>,
    completed: VecDeque<Completion>,
    spare: Vec<AlignedBuf>,
    buffer_len: usize,
}

impl WriteQueue {
    pub(crate) fn new(device: Arc<dyn Device>, depth: usize, buffer_len: usize) -> Self {
        let ring = device.queue_fd().and_then(|_| device.ring(depth as u32, false));
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

    /// Returns a buffer to fill; its contents are arbitrary.
    pub(crate) fn buffer(&mut self) -> AlignedBuf {
        self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(self.buffer_len))
    }

    /// Takes back a buffer that was not written.
    pub(crate) fn give_back(&mut self, buffer: AlignedBuf) {
        self.spare.push(buffer);
    }

    /// Starts to write the first `len` bytes of `buffer` at `offset`; waits if the queue is full.
    /// [`WriteQueue::completed`] returns the result.
    pub(crate) fn write(&mut self, tag: u64, offset: u64, buffer: AlignedBuf, len: usize) {
        let Some(fd) = self.device.queue_fd().filter(|_| self.ring.is_some()) else {
            let result = self.device.write(offset, &buffer[..len]);
            self.spare.push(buffer);
            self.completed.push_back(Completion { tag, result });
            return;
        };
        if let Err(error) = self.device.admits(offset, len) {
            self.spare.push(buffer);
            self.completed.push_back(Completion { tag, result: Err(error) });
            return;
        }
        while self.in_flight.len() >= self.depth {
            self.wait(1);
        }
        let id = self.next_id;
        self.next_id += 1;
        // SAFETY: the buffer moves to `in_flight`. Its memory is neither moved, nor accessed, nor freed until the
        // completion of this transfer has been taken (`reap`, `drop`), or no transfer was started.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), len) };
        let ring = self.ring.as_mut().expect("checked above");
        if !ring.push(Transfer { fd, id, offset, bytes: TransferBuffer::Out(bytes) }) {
            // Not reached if the ring is as deep as the queue; the synchronous path is always correct.
            let result = self.device.write(offset, &buffer[..len]);
            self.spare.push(buffer);
            self.completed.push_back(Completion { tag, result });
            return;
        }
        self.in_flight.push(InFlight { id, tag, offset, len, buffer });
        // Interrupted, or temporarily out of kernel memory: `wait` submits the write again. The write must not be
        // made in another way meanwhile, because the ring would repeat it at any later time.
        let _ = ring.submit(0);
    }

    /// Returns the next completed write, oldest first.
    pub(crate) fn completed(&mut self) -> Option<Completion> {
        if self.completed.is_empty() && !self.in_flight.is_empty() {
            self.reap();
        }
        self.completed.pop_front()
    }

    /// Waits until no write is in flight.
    pub(crate) fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.wait(1);
        }
    }

    fn wait(&mut self, want: usize) {
        let Some(ring) = self.ring.as_mut() else { return };
        match ring.submit(want) {
            Ok(_) => {}
            // Interrupted, or temporarily out of kernel memory: the writes are still in flight.
            Err(_) => std::thread::yield_now(),
        }
        self.reap();
    }

    fn reap(&mut self) {
        let Some(ring) = self.ring.as_mut() else { return };
        let done: Vec<(u64, i32)> = std::iter::from_fn(|| ring.ended()).collect();
        for (id, result) in done {
            let Some(index) = self.in_flight.iter().position(|w| w.id == id) else { continue };
            let write = self.in_flight.swap_remove(index);
            let result = match usize::try_from(result) {
                Ok(n) if n == write.len => Ok(()),
                // A short write: a plain write finishes the rest and reports any error.
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
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ALIGN, FileDevice};

    #[test]
    fn a_write_that_the_kernel_ends_with_an_error_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        drop(FileDevice::create(&path, 1 << 20).unwrap());
        // The file is not open for writing: the ring accepts the write, and the write fails with EBADF.
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, false).unwrap());
        let mut queue = WriteQueue::new(device, 2, ALIGN);
        for tag in 0..5 {
            let buffer = queue.buffer();
            queue.write(tag, 0, buffer, ALIGN);
        }
        queue.drain();
        let mut ended: Vec<(u64, Option<i32>)> = std::iter::from_fn(|| queue.completed())
            .map(|ended| (ended.tag, ended.result.err().and_then(|error| error.raw_os_error())))
            .collect();
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2, 3, 4].map(|tag| (tag, Some(9))));
    }
}
