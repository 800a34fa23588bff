//! The victim buffer: frames of pages that have left memory and are still in DRAM.
//!
//! A page that is used again while it is in the buffer gets a second chance: it comes back without I/O. Pages leave the
//! buffer in the order in which they entered, once they are in the swap file. The pages that come back show the
//! replacement policy which pages are used.

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::MutexGuard;

use super::budget::Frames;
use super::fatal::discard;
use super::page_table::SwapSlot;
use super::{Inner, PAGE};
use deepram_linux::lock::lock;

/// Largest number of frames that keep their memory while they hold no page.
const MAX_IDLE: usize = 256;

/// A frame of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Address of the page; meaningless in a free frame.
    pub(super) page: usize,
    /// Slot of the page in the swap file, once it is written.
    pub(super) slot: Option<SwapSlot>,
    pub(super) state: FrameState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameState {
    /// Holds no page.
    Free,
    /// Holds a page that can come back.
    Buffered,
    /// Holds a page that is being written to the swap file.
    Writing,
    /// Being written to the swap file, although its page has gone back to memory.
    WritingReturned,
}

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
        let most = MAX_IDLE.min(self.headroom() / 2);
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
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Largest number of frames in use at once since the last trim: these frames are backed by memory.
    touched: usize,
    /// Pages in the order of arrival; may name frames whose page has gone, or that hold another page by now.
    queue: VecDeque<(u32, usize)>,
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
        let free = Frame { page: 0, slot: None, state: FrameState::Free };
        Ok(Self {
            memory: ptr::with_exposed_provenance_mut(memory as usize),
            frames: vec![free; frames],
            free: (0..frames as u32).rev().collect(),
            touched: 0,
            queue: VecDeque::with_capacity(frames),
        })
    }

    /// Frames that hold a page.
    pub(super) fn used_frames(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Free frames that are still backed by memory: the next ones to be used.
    pub(super) fn idle_frames(&self) -> usize {
        self.touched - self.used_frames()
    }

    /// Returns the memory of free frames to the kernel.
    pub(super) fn trim(&mut self) {
        // Backed frames are at the end of the free list, where frames are taken first.
        let mut free = self.free.split_off(self.free.len() - self.idle_frames());
        free.sort_unstable();
        let run = |run: &[u32]| (self.bytes(run[0]).addr(), run.len() * PAGE);
        let runs: Vec<(usize, usize)> = free.chunk_by(|a, b| a + 1 == *b).map(run).collect();
        // SAFETY: the buffer's own memory, of frames that hold no page.
        unsafe { discard(&runs) };
        self.free.extend(free.into_iter().rev());
        self.touched = self.used_frames();
    }

    /// Whether any frame is being written.
    pub(super) fn has_writes(&self) -> bool {
        self.frames
            .iter()
            .any(|frame| matches!(frame.state, FrameState::Writing | FrameState::WritingReturned))
    }

    /// Frames that hold no page.
    pub(super) fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// Inserts a page and returns its frame, whose bytes the caller fills; `None` if the buffer is full.
    pub(super) fn insert(&mut self, page: usize, slot: Option<SwapSlot>, state: FrameState) -> Option<u32> {
        let number = self.free.pop()?;
        self.touched = self.touched.max(self.used_frames());
        self.frames[number as usize] = Frame { page, slot, state };
        self.queue.push_back((number, page));
        Some(number)
    }

    /// The page that has been in the buffer longest and is in the swap file; it stays in the buffer.
    pub(super) fn oldest(&mut self) -> Option<(u32, Frame)> {
        let mut unwritten = Vec::new();
        let mut found = None;
        while let Some((number, page)) = self.queue.pop_front() {
            let frame = self.frames[number as usize];
            if frame.state == FrameState::Free || frame.page != page {
                continue;
            }
            if frame.state == FrameState::Buffered && frame.slot.is_some() {
                found = Some((number, frame));
                break;
            }
            unwritten.push((number, page));
        }
        for entry in unwritten.into_iter().rev() {
            self.queue.push_front(entry);
        }
        found
    }

    pub(super) fn frame(&mut self, number: u32) -> &mut Frame {
        &mut self.frames[number as usize]
    }

    /// Changes the address of the page in a frame.
    pub(super) fn set_address(&mut self, number: u32, page: usize) {
        self.frames[number as usize].page = page;
        self.queue.push_back((number, page));
    }

    /// Frees a frame.
    pub(super) fn remove(&mut self, number: u32) {
        debug_assert!(self.frames[number as usize].state != FrameState::Free, "frame {number} is free");
        self.frames[number as usize].state = FrameState::Free;
        self.free.push(number);
    }

    /// Address of the frame's bytes.
    pub(super) fn bytes(&self, number: u32) -> *mut u8 {
        assert!((number as usize) < self.frames.len(), "frame {number} of {}", self.frames.len());
        self.memory.wrapping_add(number as usize * PAGE)
    }

    /// Bytes of the tables.
    pub(super) fn memory_bytes(&self) -> usize {
        self.frames.len() * (size_of::<Frame>() + 4) + self.queue.capacity() * size_of::<(u32, usize)>()
    }
}

impl Drop for VictimBuffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, unmapped once; no frame is in use any more.
        unsafe { libc::syscall(libc::SYS_munmap, self.memory, self.frames.len().max(1) * PAGE) };
    }
}
