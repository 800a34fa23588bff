//! The waiting room: frames of pages that have left memory and are still in DRAM.
//!
//! A page that is wanted again while it waits comes back without a transfer. Pages leave the room in the
//! order in which they came, once they are on the store. How long they wait tells the replacement policy
//! which pages are used: those that come back.

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::MutexGuard;

use super::budget::Frames;
use super::fatal::discard;
use super::ranges::Slot;
use super::{Inner, PAGE};
use crate::lock::lock;

/// Most frames that keep their memory while no page is in them.
const IDLE: usize = 256;

/// A frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// The page's address; meaningless in a free frame.
    pub(super) page: usize,
    /// Where the page is on the store, once it is.
    pub(super) slot: Option<Slot>,
    pub(super) state: FrameState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameState {
    /// Nobody's.
    Free,
    /// Its page waits here.
    Waiting,
    /// Being written to the store.
    Writing,
    /// Being written, though its page has gone back to memory.
    Left,
}

/// The room while a thread has it. What frames have memory though no page is in them counts against the budget.
pub(super) struct RoomGuard<'a> {
    room: MutexGuard<'a, Room>,
    frames: &'a Frames,
}

impl Inner {
    pub(super) fn room(&self) -> RoomGuard<'_> {
        RoomGuard { room: lock(&self.room), frames: &self.frames }
    }

    /// Gives back memory of frames that no page is in, if there are more than the next pages that leave will take.
    pub(super) fn trim_room(&self) {
        let most = IDLE.min(self.headroom() / 2);
        let mut room = self.room();
        if room.idle() > most {
            room.trim();
        }
    }
}

impl Deref for RoomGuard<'_> {
    type Target = Room;

    fn deref(&self) -> &Room {
        &self.room
    }
}

impl DerefMut for RoomGuard<'_> {
    fn deref_mut(&mut self) -> &mut Room {
        &mut self.room
    }
}

impl Drop for RoomGuard<'_> {
    fn drop(&mut self) {
        self.frames.set_idle(self.room.idle());
    }
}

/// The frames, and who is in them.
pub(super) struct Room {
    memory: *mut u8,
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Frames that have ever been somebody's at once: so many have memory.
    touched: usize,
    /// In the order of arrival; may name frames whose page has gone, or that are another's by now.
    queue: VecDeque<(u32, usize)>,
}

// SAFETY: the memory is the room's own; its bytes are reached through the frames alone.
unsafe impl Send for Room {}

impl Room {
    /// A room of so many frames.
    pub(super) fn new(frames: usize) -> io::Result<Self> {
        let len = frames.max(1) * PAGE;
        // SAFETY: a new anonymous mapping. By number, for a library that stands before `mmap` itself.
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

    /// Frames that are somebody's.
    pub(super) fn used(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Frames that are nobody's and have memory all the same: the next ones to be taken.
    pub(super) fn idle(&self) -> usize {
        self.touched - self.used()
    }

    /// Gives back the memory of frames that are nobody's.
    pub(super) fn trim(&mut self) {
        // Those that have memory are the first to be taken.
        let mut free = self.free.split_off(self.free.len() - self.idle());
        free.sort_unstable();
        let run = |run: &[u32]| (self.bytes(run[0]).addr(), run.len() * PAGE);
        let runs: Vec<(usize, usize)> = free.chunk_by(|a, b| a + 1 == *b).map(run).collect();
        // SAFETY: the room's own memory, of frames that nobody holds.
        unsafe { discard(&runs) };
        self.free.extend(free.into_iter().rev());
        self.touched = self.used();
    }

    /// Whether any of them is being written.
    pub(super) fn is_written(&self) -> bool {
        self.frames.iter().any(|frame| matches!(frame.state, FrameState::Writing | FrameState::Left))
    }

    /// Frames that are nobody's.
    pub(super) fn vacant(&self) -> usize {
        self.free.len()
    }

    /// Lets a page in: its frame, whose bytes the caller fills. None if the room is full.
    pub(super) fn admit(&mut self, page: usize, slot: Option<Slot>, state: FrameState) -> Option<u32> {
        let number = self.free.pop()?;
        self.touched = self.touched.max(self.used());
        self.frames[number as usize] = Frame { page, slot, state };
        self.queue.push_back((number, page));
        Some(number)
    }

    /// The page that has waited longest and is on the store; it is not taken out.
    pub(super) fn oldest(&mut self) -> Option<(u32, Frame)> {
        let mut unwritten = Vec::new();
        let mut found = None;
        while let Some((number, page)) = self.queue.pop_front() {
            let frame = self.frames[number as usize];
            if frame.state == FrameState::Free || frame.page != page {
                continue;
            }
            if frame.state == FrameState::Waiting && frame.slot.is_some() {
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

    /// The page in the frame is at another address from now on.
    pub(super) fn rename(&mut self, number: u32, page: usize) {
        self.frames[number as usize].page = page;
        self.queue.push_back((number, page));
    }

    /// Gives the frame up.
    pub(super) fn leave(&mut self, number: u32) {
        debug_assert!(self.frames[number as usize].state != FrameState::Free, "frame {number} is free");
        self.frames[number as usize].state = FrameState::Free;
        self.free.push(number);
    }

    /// The frame's bytes.
    pub(super) fn bytes(&self, number: u32) -> *mut u8 {
        assert!((number as usize) < self.frames.len(), "frame {number} of {}", self.frames.len());
        self.memory.wrapping_add(number as usize * PAGE)
    }

    /// Bytes of the tables.
    pub(super) fn memory_bytes(&self) -> usize {
        self.frames.len() * (size_of::<Frame>() + 4) + self.queue.capacity() * size_of::<(u32, usize)>()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, unmapped once; nobody holds a frame any more.
        unsafe { libc::syscall(libc::SYS_munmap, self.memory, self.frames.len().max(1) * PAGE) };
    }
}
