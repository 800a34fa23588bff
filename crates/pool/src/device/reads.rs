//! A queue of reads in flight, from any of the pool's devices: with io_uring where the kernel allows it, otherwise
//! one read at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use super::Device;
use super::kernel::{Ring, Transfer, TransferBuffer};
use crate::buffer_pool::ReadBuffer;
use deepram_linux::lock::lock;

/// A wait for completions waits for one part in this many of the reads in flight, so that one call starts that many
/// new reads: the system call, its wake-up and the device's doorbell cost as much for one read as for several.
const WAIT_SHARE: usize = 8;

/// A completed read.
pub(crate) struct CompletedRead<B = ReadBuffer> {
    /// The request number given to [`ReadQueue::start`].
    pub(crate) request: usize,
    /// The buffer, with the bytes if there is no error.
    pub(crate) slot: B,
    pub(crate) result: io::Result<()>,
}

struct ReadInFlight<B> {
    device: Arc<dyn Device>,
    offset: u64,
    slot: B,
}

/// A queue of reads into buffers, whose memory does not move with them. Each read in flight has its own request number.
pub(crate) struct ReadQueue<B: AsMut<[u8]> = ReadBuffer> {
    ring: Option<Box<dyn Ring>>,
    in_flight: Vec<Option<ReadInFlight<B>>>,
    free: Vec<usize>,
    /// Reads started but not yet submitted.
    pushed: usize,
    ended: VecDeque<CompletedRead<B>>,
}

impl<B: AsMut<[u8]>> ReadQueue<B> {
    /// Makes a queue of `depth` reads from this device and others of its kind; of one read at a time if `ring` is
    /// false or the device has no ring.
    pub(crate) fn new(device: &Arc<dyn Device>, depth: u16, ring: bool) -> Self {
        let ring = if ring { device.ring(u32::from(depth), true) } else { None };
        let mut in_flight = Vec::new();
        in_flight.resize_with(usize::from(depth), || None);
        let free = (0..usize::from(depth)).rev().collect();
        Self { ring, in_flight, free, pushed: 0, ended: VecDeque::new() }
    }

    /// Returns a free request number for [`ReadQueue::start`], if there is one; [`ReadQueue::release_request`] or the
    /// completion of the read frees it.
    pub(crate) fn request(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Frees a request number with which no read was started.
    pub(crate) fn release_request(&mut self, request: usize) {
        self.free.push(request);
    }

    /// Returns whether no read is in flight and no completion is waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.in_flight.len()
    }

    /// Starts to fill a buffer from a device. [`ReadQueue::next`] submits the read.
    pub(crate) fn start(&mut self, request: usize, device: &Arc<dyn Device>, offset: u64, mut slot: B) {
        let (at, len) = (slot.as_mut().as_mut_ptr(), slot.as_mut().len());
        let pushed = self.ring.as_mut().zip(device.queue_fd()).is_some_and(|(ring, fd)| {
            // SAFETY: the buffer stays in `in_flight`, where no code accesses it, until the read has completed
            // (`next`, `drop`), and its memory does not move with it. The descriptor belongs to a device that is kept
            // with it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at, len) };
            ring.push(Transfer { fd, id: request as u64, offset, bytes: TransferBuffer::In(bytes) })
        });
        if pushed {
            self.pushed += 1;
            self.in_flight[request] = Some(ReadInFlight { device: Arc::clone(device), offset, slot });
        } else {
            let result = device.read(offset, slot.as_mut());
            self.ended.push_back(CompletedRead { request, slot, result });
        }
    }

    /// Waits for the next completed read; `None` if no read is in flight.
    pub(crate) fn next(&mut self) -> Option<CompletedRead<B>> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                self.free.push(ended.request);
                return Some(ended);
            }
            let in_flight = self.in_flight.len() - self.free.len();
            let ring = self.ring.as_mut().filter(|_| in_flight > 0)?;
            // Interrupted, or temporarily out of kernel memory: the reads are still in flight.
            match ring.submit((in_flight / WAIT_SHARE).max(1)) {
                Ok(sent) => self.pushed = self.pushed.saturating_sub(sent),
                Err(_) => std::thread::yield_now(),
            }
            self.collect();
        }
    }

    /// Collects the completions of the ring.
    fn collect(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while let Some((request, result)) = ring.ended() {
            let request = request as usize;
            let Some(mut read) = self.in_flight.get_mut(request).and_then(Option::take) else { continue };
            let result = match usize::try_from(result) {
                Ok(n) if n == read.slot.as_mut().len() => Ok(()),
                // A short read: a plain read finishes it and reports any error.
                Ok(_) => read.device.read(read.offset, read.slot.as_mut()),
                Err(_) => Err(io::Error::from_raw_os_error(-result)),
            };
            self.ended.push_back(CompletedRead { request, slot: read.slot, result });
        }
    }
}

impl<B: AsMut<[u8]>> Drop for ReadQueue<B> {
    fn drop(&mut self) {
        // The kernel may write to the buffers until their reads have completed.
        while self.next().is_some() {}
    }
}

/// A pool of idle read queues, because making a queue takes longer than a read.
pub(crate) struct ReadQueues {
    idle: Mutex<Vec<ReadQueue>>,
    device: Arc<dyn Device>,
    depth: u16,
}

impl ReadQueues {
    /// Makes a pool of queues with `depth` reads each, from this device and others of its kind.
    pub(crate) fn new(device: &Arc<dyn Device>, depth: u16) -> Self {
        Self { idle: Mutex::new(Vec::new()), device: Arc::clone(device), depth }
    }

    /// Takes a queue, which must be idle when it is given back.
    pub(crate) fn take(&self) -> ReadQueue {
        let idle = lock(&self.idle).pop();
        idle.unwrap_or_else(|| ReadQueue::new(&self.device, self.depth, true))
    }

    /// Takes a queue back.
    pub(crate) fn give_back(&self, queue: ReadQueue) {
        debug_assert!(queue.is_idle());
        let mut idle = lock(&self.idle);
        // More threads rarely gather at once, and the kernel holds memory for each queue.
        if idle.len() < 64 {
            idle.push(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer_pool::BufferPool;
    use crate::device::{ALIGN, FileDevice};

    #[test]
    fn a_read_that_the_kernel_fails_or_cuts_short_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let device: Arc<dyn Device> = Arc::new(FileDevice::create(&path, 4 * ALIGN as u64).unwrap());
        let mut slots = BufferPool::new(1, 2 * ALIGN).unwrap();
        let mut queue = ReadQueue::new(&device, 2, true);
        let mut read = |offset: u64| {
            let (request, slot) =
                (queue.request().unwrap(), slots.take_spare().or_else(|| slots.grow()).unwrap());
            queue.start(request, &device, offset, slot);
            let ended = queue.next().unwrap();
            slots.give_back(ended.slot);
            ended.result.map_err(|error| (error.kind(), error.raw_os_error()))
        };
        assert_eq!(read(0), Ok(()));
        // An invalid offset: EINVAL.
        assert_eq!(read(1 << 63), Err((io::ErrorKind::InvalidInput, Some(22))));
        // The file ends in the middle of the read.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(ALIGN as u64).unwrap();
        assert_eq!(read(0), Err((io::ErrorKind::UnexpectedEof, None)));
    }
}
