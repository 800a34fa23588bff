//! The memory of the victim buffer. Core decides about its frames; see `deepram_core::paging::victim_buffer`.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::MutexGuard;

use deepram_core::paging;
use deepram_core::paging::victim_buffer::most_idle;

use super::budget::Frames;
use super::fatal::discard;
use super::page_table::SwapSlot;
use super::{Inner, PAGE};
use deepram_linux::lock::lock;

/// The locked victim buffer. When it is dropped, frames that are backed by memory but hold no page are charged.
pub(super) struct VictimBufferGuard<'a> {
    buffer: MutexGuard<'a, VictimBuffer>,
    frames: &'a Frames,
}

impl Inner {
    pub(super) fn victim_buffer(&self) -> VictimBufferGuard<'_> {
        VictimBufferGuard { buffer: lock(&self.victim_buffer), frames: &self.frames }
    }

    /// Returns the memory of free frames, if there are more than the next victims will take.
    pub(super) fn trim_victim_buffer(&self) {
        let most = most_idle(self.headroom());
        let mut buffer = self.victim_buffer();
        if buffer.idle_frames() > most {
            buffer.trim();
        }
    }
}

impl Deref for VictimBufferGuard<'_> {
    type Target = VictimBuffer;

    fn deref(&self) -> &VictimBuffer {
        &self.buffer
    }
}

impl DerefMut for VictimBufferGuard<'_> {
    fn deref_mut(&mut self) -> &mut VictimBuffer {
        &mut self.buffer
    }
}

impl Drop for VictimBufferGuard<'_> {
    fn drop(&mut self) {
        self.frames.set_idle(self.buffer.idle_frames());
    }
}

/// The frames and the pages in them.
pub(super) struct VictimBuffer {
    memory: *mut u8,
    frames: paging::VictimBuffer<SwapSlot>,
}

// SAFETY: the memory belongs to the buffer; its bytes are accessed through the frames alone.
unsafe impl Send for VictimBuffer {}

impl VictimBuffer {
    /// Creates a buffer of `frames` frames.
    pub(super) fn new(frames: usize) -> io::Result<Self> {
        let len = frames.max(1) * PAGE;
        // SAFETY: a new anonymous mapping. By number, because a library may interpose `mmap` itself.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::syscall(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if memory == -1 {
            return Err(io::Error::last_os_error());
        }
        let memory = ptr::with_exposed_provenance_mut(memory as usize);
        Ok(Self { memory, frames: paging::VictimBuffer::new(frames) })
    }

    /// Returns the memory of free frames to the kernel.
    pub(super) fn trim(&mut self) {
        let idle = self.frames.trim();
        let run = |(first, frames): (u32, usize)| (self.bytes(first).addr(), frames * PAGE);
        let runs: Vec<(usize, usize)> = idle.into_iter().map(run).collect();
        // SAFETY: the buffer's own memory, of frames that hold no page.
        unsafe { discard(&runs) };
    }

    /// Address of the frame's bytes.
    pub(super) fn bytes(&self, number: u32) -> *mut u8 {
        let frames = self.frames.frames();
        assert!((number as usize) < frames, "frame {number} of {frames}");
        self.memory.wrapping_add(number as usize * PAGE)
    }
}

impl Deref for VictimBuffer {
    type Target = paging::VictimBuffer<SwapSlot>;

    fn deref(&self) -> &Self::Target {
        &self.frames
    }
}

impl DerefMut for VictimBuffer {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.frames
    }
}

impl Drop for VictimBuffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, unmapped once; no frame is in use any more.
        unsafe { libc::syscall(libc::SYS_munmap, self.memory, self.frames.frames().max(1) * PAGE) };
    }
}
