//! Several reads under way at once, of any of the pool's devices: io_uring where the kernel allows it, one at a time
//! elsewhere.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use super::Device;
use super::kernel::{Bytes, Ring, Transfer};
use crate::buffer_pool::ReadBuffer;
use crate::lock::lock;

/// The part of the reads under way that is waited for, so that as many are started with one call: the system call, its
/// wake-up and the device's doorbell cost as much for one as for several.
const BATCH: usize = 8;

/// A read that has ended.
pub(crate) struct Ended {
    /// As given to [`ReadQueue::start`].
    pub(crate) berth: usize,
    /// With the bytes, if there is no error.
    pub(crate) slot: ReadBuffer,
    pub(crate) result: io::Result<()>,
}

struct Read {
    device: Arc<dyn Device>,
    offset: u64,
    slot: ReadBuffer,
}

/// A queue of reads. Each has a berth of its own while it is under way.
pub(crate) struct ReadQueue {
    ring: Option<Box<dyn Ring>>,
    under_way: Vec<Option<Read>>,
    free: Vec<usize>,
    /// Started, and not sent off yet.
    pushed: usize,
    ended: VecDeque<Ended>,
}

impl ReadQueue {
    /// A queue of so many reads of this device and others of its kind; of one at a time if the device has no
    /// `ring`, or none is wanted.
    pub(crate) fn new(device: &Arc<dyn Device>, depth: u16, ring: bool) -> Self {
        let ring = if ring { device.ring(u32::from(depth), true) } else { None };
        let mut under_way = Vec::new();
        under_way.resize_with(usize::from(depth), || None);
        let free = (0..usize::from(depth)).rev().collect();
        Self { ring, under_way, free, pushed: 0, ended: VecDeque::new() }
    }

    /// Readable when a read has ended; `None` if they are read one at a time.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|ring| ring.as_fd())
    }

    /// A berth for [`ReadQueue::start`], if one is free; [`ReadQueue::leave`] or the read's end gives it back.
    pub(crate) fn berth(&mut self) -> Option<usize> {
        self.free.pop()
    }

    /// Gives back a berth in which nothing was started.
    pub(crate) fn leave(&mut self, berth: usize) {
        self.free.push(berth);
    }

    /// Whether nothing is under way, nor has ended unseen.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.under_way.len()
    }

    /// Starts to fill a slot from a device. [`ReadQueue::next`] or [`ReadQueue::poll`] sends it off.
    pub(crate) fn start(
        &mut self,
        berth: usize,
        device: &Arc<dyn Device>,
        offset: u64,
        mut slot: ReadBuffer,
    ) {
        let (at, len) = (slot.bytes_mut().as_mut_ptr(), slot.bytes().len());
        let pushed = self.ring.as_mut().zip(device.queue_fd()).is_some_and(|(ring, fd)| {
            // SAFETY: the slot is kept in `under_way`, where nobody touches it, until the read has ended (`next`,
            // `drop`); its memory does not move with it. The descriptor is that of a device kept with it.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at, len) };
            ring.push(Transfer { fd, id: berth as u64, offset, bytes: Bytes::In(bytes) })
        });
        if pushed {
            self.pushed += 1;
            self.under_way[berth] = Some(Read { device: Arc::clone(device), offset, slot });
        } else {
            let result = device.read(offset, slot.bytes_mut());
            self.ended.push_back(Ended { berth, slot, result });
        }
    }

    /// The next read that has ended; waits for one. `None` if there is none under way.
    pub(crate) fn next(&mut self) -> Option<Ended> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                self.free.push(ended.berth);
                return Some(ended);
            }
            let under_way = self.under_way.len() - self.free.len();
            let ring = self.ring.as_mut().filter(|_| under_way > 0)?;
            // Interrupted, or short of kernel memory for a moment: the reads are still under way.
            match ring.submit((under_way / BATCH).max(1)) {
                Ok(sent) => self.pushed = self.pushed.saturating_sub(sent),
                Err(_) => std::thread::yield_now(),
            }
            self.collect();
        }
    }

    /// Sends off what was started.
    pub(crate) fn submit(&mut self) {
        if let Some(ring) = self.ring.as_mut().filter(|_| self.pushed > 0) {
            // As above; what is left is sent off the next time.
            self.pushed = self.pushed.saturating_sub(ring.submit(0).unwrap_or(0));
        }
    }

    /// The next read that has ended, if there is one already.
    pub(crate) fn poll(&mut self) -> Option<Ended> {
        self.submit();
        if let Some(ring) = self.ring.as_mut() {
            self.pushed = self.pushed.saturating_sub(ring.take_in());
            self.collect();
        }
        let ended = self.ended.pop_front()?;
        self.free.push(ended.berth);
        Some(ended)
    }

    /// Takes note of the reads that the kernel has ended.
    fn collect(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        while let Some((berth, result)) = ring.ended() {
            let berth = berth as usize;
            let Some(mut read) = self.under_way.get_mut(berth).and_then(Option::take) else { continue };
            let result = match usize::try_from(result) {
                Ok(n) if n == read.slot.bytes().len() => Ok(()),
                // A short read: the plain way reports what stops it.
                Ok(_) => read.device.read(read.offset, read.slot.bytes_mut()),
                Err(_) => Err(io::Error::from_raw_os_error(-result)),
            };
            self.ended.push_back(Ended { berth, slot: read.slot, result });
        }
    }
}

impl Drop for ReadQueue {
    fn drop(&mut self) {
        // The kernel may write to the slots until their reads have ended.
        while self.next().is_some() {}
    }
}

/// Queues that nobody is using: making one takes longer than a read.
pub(crate) struct Queues {
    idle: Mutex<Vec<ReadQueue>>,
    device: Arc<dyn Device>,
    depth: u16,
}

impl Queues {
    /// For so many reads at a time each, of this device and others of its kind.
    pub(crate) fn new(device: &Arc<dyn Device>, depth: u16) -> Self {
        Self { idle: Mutex::new(Vec::new()), device: Arc::clone(device), depth }
    }

    /// A queue, to be given back when it is idle.
    pub(crate) fn take(&self) -> ReadQueue {
        let idle = lock(&self.idle).pop();
        idle.unwrap_or_else(|| ReadQueue::new(&self.device, self.depth, true))
    }

    /// Takes a queue back.
    pub(crate) fn give_back(&self, queue: ReadQueue) {
        debug_assert!(queue.is_idle());
        let mut idle = lock(&self.idle);
        // As many threads as gather at once on most machines; the kernel has memory for each.
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
            let (berth, slot) =
                (queue.berth().unwrap(), slots.take_spare().or_else(|| slots.grow()).unwrap());
            queue.start(berth, &device, offset, slot);
            let ended = queue.next().unwrap();
            slots.give_back(ended.slot);
            ended.result.map_err(|error| (error.kind(), error.raw_os_error()))
        };
        assert_eq!(read(0), Ok(()));
        // An offset that no file has: EINVAL.
        assert_eq!(read(1 << 63), Err((io::ErrorKind::InvalidInput, Some(22))));
        // The file ends in the middle.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(ALIGN as u64).unwrap();
        assert_eq!(read(0), Err((io::ErrorKind::UnexpectedEof, None)));
    }
}
