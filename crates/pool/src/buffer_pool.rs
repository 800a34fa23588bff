//! A pool of equal-sized buffers that devices read into. Each buffer has one owner at a time; the kernel provides its
//! memory on first use.

use std::io;
use std::sync::Arc;

use crate::region::{Region, WatchError};

/// A buffer of the pool. Its owner is its only user.
pub(crate) struct ReadBuffer {
    memory: Arc<Region>,
    offset: usize,
    len: usize,
}

impl ReadBuffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies in the mapping, which `memory` keeps alive and which reads as zeros where nothing was
        // stored. Only this buffer refers to the range (`BufferPool` hands out each range once, and a buffer is not
        // `Clone`), and a shared borrow of it excludes `bytes_mut`.
        unsafe { std::slice::from_raw_parts(self.memory.base().add(self.offset), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the exclusive borrow of the only buffer with this range makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base().add(self.offset), self.len) }
    }
}

impl AsMut<[u8]> for ReadBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

/// All buffers of the pool, of which at most `capacity` are backed by memory.
pub(crate) struct BufferPool {
    memory: Arc<Region>,
    /// Bytes of each buffer.
    buffer_bytes: usize,
    capacity: usize,
    /// Buffers that have been handed out at least once.
    handed_out: usize,
    /// Buffers backed by memory, including those in use.
    backed: usize,
    spare: Vec<ReadBuffer>,
    /// Buffers whose memory was returned to the kernel.
    unbacked: Vec<ReadBuffer>,
}

impl BufferPool {
    /// Creates a pool of at most `capacity` buffers of `buffer_bytes` bytes each.
    pub(crate) fn new(capacity: usize, buffer_bytes: usize) -> io::Result<Self> {
        let memory = Region::map(None, capacity * buffer_bytes).map_err(|error| match error {
            WatchError::Address { source, .. } | WatchError::System { source, .. } => source,
            other => io::Error::other(other),
        })?;
        let (spare, unbacked) = (Vec::new(), Vec::new());
        Ok(Self {
            memory: Arc::new(memory),
            buffer_bytes,
            capacity,
            handed_out: 0,
            backed: 0,
            spare,
            unbacked,
        })
    }

    /// Largest number of buffers that may be backed by memory.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the largest number of backed buffers, to no more than the initial number. More buffers may stay backed
    /// until they are given back.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        debug_assert!(capacity * self.buffer_bytes <= self.memory.len(), "{capacity} buffers");
        self.capacity = capacity;
    }

    /// Number of buffers backed by memory.
    pub(crate) fn backed(&self) -> usize {
        self.backed
    }

    /// Whether [`BufferPool::grow`] may back another buffer.
    pub(crate) fn may_grow(&self) -> bool {
        self.backed < self.capacity
    }

    /// Takes a backed buffer that is not in use.
    pub(crate) fn take_spare(&mut self) -> Option<ReadBuffer> {
        self.spare.pop()
    }

    /// Backs one more buffer and takes it.
    pub(crate) fn grow(&mut self) -> Option<ReadBuffer> {
        if !self.may_grow() {
            return None;
        }
        let buffer = self.unbacked.pop().unwrap_or_else(|| {
            self.handed_out += 1;
            let offset = (self.handed_out - 1) * self.buffer_bytes;
            ReadBuffer { memory: Arc::clone(&self.memory), offset, len: self.buffer_bytes }
        });
        self.backed += 1;
        Some(buffer)
    }

    /// Takes back a buffer and keeps its memory.
    pub(crate) fn give_back(&mut self, buffer: ReadBuffer) {
        self.spare.push(buffer);
    }

    /// Returns the memory of a buffer to the kernel. Returns `false` if the kernel refuses; the buffer then stays in
    /// the pool with its memory.
    pub(crate) fn release_memory(&mut self, buffer: ReadBuffer) -> bool {
        if self.memory.discard(&[(buffer.offset, buffer.len)]).is_err() {
            self.spare.push(buffer);
            return false;
        }
        self.backed -= 1;
        self.unbacked.push(buffer);
        true
    }

    /// Bytes of the pool's own tables.
    pub(crate) fn memory_bytes(&self) -> usize {
        (self.spare.capacity() + self.unbacked.capacity()) * size_of::<ReadBuffer>()
    }
}
