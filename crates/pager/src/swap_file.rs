//! The swap file; each of its 4 KiB pages is a slot. The file has no name, so that nothing of it remains when the
//! process ends in whatever way.
//!
//! 1. Slots are allocated in runs (`deepram_core::paging::swap_slots`). Under random stores the file's size is 2.4 times
//!    the data.
//! 2. A slot that a forked child may still read is not allocated again before the child has ended.
//! 3. The file grows by extents. Its space is allocated before it is written, so that a full disk is an error here and
//!    not a lost page later.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::{pread, pwritev};

use super::PAGE;
use super::page_table::SwapSlot;
use deepram_core::paging::swap_slots::{EXTENT_SLOTS, SlotSet, SwapSlots};
use deepram_linux::descriptors::{OwnDescriptor, open_high};
use deepram_linux::lock::lock;
use deepram_linux::message::write_line;

/// The swap files that a process reads, and the one that it writes.
#[derive(Debug)]
pub(super) struct SwapFile {
    /// The swap files of the ancestors that the process was forked from, the eldest first, and its own at the end.
    files: Vec<Arc<File>>,
    slots: Mutex<SlotAllocator>,
    limit: u64,
}

#[derive(Debug, Default)]
struct SlotAllocator {
    slots: SwapSlots,
    /// The slots that forked children may still read; they are not freed while the children live.
    children: Vec<ChildSlots>,
}

#[derive(Debug)]
struct ChildSlots {
    /// Readable (end of file) when the child and all processes forked from it have ended or executed other programs.
    ended: OwnDescriptor,
    /// The slots that the child may read.
    readable: SlotSet,
    /// Of these, the slots that were freed here meanwhile.
    retained: Vec<u32>,
}

impl SwapFile {
    /// Creates a swap file in this directory, of at most `limit` bytes.
    pub(super) fn create(directory: &Path, limit: u64) -> io::Result<Self> {
        Ok(Self { files: vec![Arc::new(open(directory)?)], slots: Mutex::default(), limit })
    }

    /// The swap files of a forked child: a new file of its own, and the parent's for reading. If the child cannot
    /// create a file, because it has given up the right to or sees another file system, nothing can be written.
    pub(super) fn inherit(&self, directory: &Path) -> io::Result<Self> {
        if self.files.len() > usize::from(u8::MAX) {
            return Err(io::Error::other("the pager supports at most 255 levels of forked processes"));
        }
        let mut files = self.files.clone();
        let (own, limit) = match open(directory) {
            Ok(own) => (own, self.limit),
            Err(error) => {
                write_line(format_args!(
                    "deepram: {}: a forked process cannot create a swap file there ({error}); pages that it \
                     writes stay in DRAM",
                    directory.display()
                ));
                (open_high(|| rustix::fs::memfd_create("deepram-none", MemfdFlags::CLOEXEC))?.into(), 0)
            }
        };
        files.push(Arc::new(own));
        Ok(Self { files, slots: Mutex::default(), limit })
    }

    fn own(&self) -> &File {
        &self.files[self.files.len() - 1]
    }

    /// The slot with this number in the process's own file.
    pub(super) fn slot(&self, number: u32) -> SwapSlot {
        SwapSlot { file: (self.files.len() - 1) as u8, number }
    }

    /// Retains the allocated slots for a child, until the other ends of the pipe `ended` are closed.
    pub(super) fn retain_for_child(&self, ended: OwnDescriptor) {
        let mut slots = lock(&self.slots);
        let readable = slots.slots.taken();
        slots.children.push(ChildSlots { ended, readable, retained: Vec::new() });
    }

    /// In a forked child: its siblings concern its parent only.
    pub(super) fn forget_children(&self) {
        lock(&self.slots).children.clear();
    }

    /// Whether slots are retained for a child.
    pub(super) fn has_children(&self) -> bool {
        let mut slots = lock(&self.slots);
        slots.release_ended_children();
        !slots.children.is_empty()
    }

    /// Allocates a run of at most `most` free slots. Returns the first slot and the length. Runs follow each other
    /// through an extent.
    pub(super) fn allocate(&self, most: u32) -> io::Result<(u32, u32)> {
        let mut slots = lock(&self.slots);
        slots.release_ended_children();
        slots.slots.allocate(most, |extent| self.grow(extent))
    }

    /// Makes room for the extent of this number.
    fn grow(&self, extent: usize) -> io::Result<()> {
        let bytes = u64::from(EXTENT_SLOTS) * PAGE as u64;
        let offset = extent as u64 * bytes;
        if offset + bytes > self.limit || offset / PAGE as u64 + u64::from(EXTENT_SLOTS) > u64::from(u32::MAX)
        {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the swap file has reached its limit of {} bytes", self.limit),
            ));
        }
        match rustix::fs::fallocate(self.own(), FallocateFlags::empty(), offset, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.own().set_len(offset + bytes),
            result => Ok(result?),
        }
    }

    /// Frees a slot. Slots of ancestors are theirs to free.
    pub(super) fn free(&self, slot: SwapSlot) {
        if usize::from(slot.file) + 1 != self.files.len() {
            return;
        }
        lock(&self.slots).free(slot.number);
    }

    /// Location of a slot: the descriptor, which lives as long as this value, and the byte offset.
    pub(super) fn location(&self, slot: SwapSlot) -> (RawFd, u64) {
        (self.files[usize::from(slot.file)].as_raw_fd(), u64::from(slot.number) * PAGE as u64)
    }

    /// Reads whole pages from neighbouring slots.
    pub(super) fn read(&self, slot: SwapSlot, to: &mut [u8]) -> io::Result<()> {
        let file = &self.files[usize::from(slot.file)];
        let mut done = 0;
        while done < to.len() {
            let offset = u64::from(slot.number) * PAGE as u64 + done as u64;
            match pread(&**file, &mut to[done..], offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes each of `pages` to neighbouring slots of the process's own file.
    pub(super) fn write(&self, first: u32, pages: &[&[u8]]) -> io::Result<()> {
        let (mut first, mut pages) = (first, pages);
        while !pages.is_empty() {
            let now = pages.len().min(libc::UIO_MAXIOV as usize);
            let vectors: Vec<IoSlice<'_>> = pages[..now].iter().map(|page| IoSlice::new(page)).collect();
            match pwritev(self.own(), &vectors, u64::from(first) * PAGE as u64) {
                // Only whole pages count; the rest of a torn page is written again.
                Ok(n) if n >= PAGE => {
                    first += (n / PAGE) as u32;
                    pages = &pages[n / PAGE..];
                }
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Descriptors in use.
    pub(super) fn descriptors(&self) -> Vec<i32> {
        let slots = lock(&self.slots);
        let pipes = slots.children.iter().map(|child| child.ended.as_raw_fd());
        self.files.iter().map(|file| file.as_raw_fd()).chain(pipes).collect()
    }

    /// Size of the process's own file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.slots).slots.extents() as u64 * u64::from(EXTENT_SLOTS) * PAGE as u64
    }

    /// Bytes of the tables.
    pub(super) fn memory_bytes(&self) -> usize {
        let slots = lock(&self.slots);
        let retained: usize =
            slots.children.iter().map(|c| c.readable.memory_bytes() + c.retained.len() * 4).sum();
        slots.slots.memory_bytes() + retained
    }
}

impl SlotAllocator {
    /// Frees the slots that were retained for children that have ended.
    fn release_ended_children(&mut self) {
        let mut at = 0;
        while at < self.children.len() {
            if !has_ended(&self.children[at].ended) {
                at += 1;
                continue;
            }
            let child = self.children.remove(at);
            // Another child may read the slot too.
            child.retained.into_iter().for_each(|slot| self.free(slot));
        }
    }

    /// Frees a slot, or retains it for a child that may still read it.
    fn free(&mut self, slot: u32) {
        match self.children.iter_mut().find(|child| child.readable.contains(slot)) {
            Some(child) => child.retained.push(slot),
            None => self.slots.free(slot),
        }
    }
}

fn has_ended(pipe: &OwnDescriptor) -> bool {
    let mut fds = [rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
}

fn open(directory: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true);
    let unnamed = |flags: i32| {
        open_high(|| options.clone().custom_flags(libc::O_TMPFILE | flags).open(directory)).map(File::from)
    };
    match unnamed(libc::O_DIRECT) {
        // A file system without direct I/O: its page cache then holds the pages too.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => unnamed(0),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_linux::buffer::AlignedBuf;

    #[test]
    fn written_pages_are_read_back_and_runs_are_whole_while_slots_are_free() {
        let directory = tempfile::tempdir().unwrap();
        let swap_file = SwapFile::create(directory.path(), 1 << 30).unwrap();
        let (first, len) = swap_file.allocate(256).unwrap();
        assert_eq!(len, 256);
        let mut bytes = AlignedBuf::zeroed(256 * PAGE);
        for (n, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            page.fill(n as u8);
        }
        let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE).collect();
        swap_file.write(first, &pages).unwrap();
        let mut back = AlignedBuf::zeroed(PAGE);
        for n in [0, 17, 255] {
            swap_file.read(SwapSlot { file: 0, number: first + n }, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == n as u8));
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_full_swap_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let swap_file = SwapFile::create(directory.path(), u64::from(EXTENT_SLOTS) * PAGE as u64).unwrap();
        let mut left = EXTENT_SLOTS;
        while left > 0 {
            left -= swap_file.allocate(1000).unwrap().1;
        }
        assert_eq!(swap_file.allocate(1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        swap_file.free(SwapSlot { file: 0, number: 77 });
        assert_eq!(swap_file.allocate(5).unwrap(), (77, 1));
    }

    #[test]
    fn slots_that_a_child_sees_stay_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let swap_file = SwapFile::create(directory.path(), u64::from(EXTENT_SLOTS) * PAGE as u64).unwrap();
        let (first, _) = swap_file.allocate(2).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        swap_file.retain_for_child(std::os::fd::OwnedFd::from(reader).into());
        swap_file.free(SwapSlot { file: 0, number: first });
        let mut left = EXTENT_SLOTS - 2;
        while left > 0 {
            left -= swap_file.allocate(4096).unwrap().1;
        }
        assert!(swap_file.allocate(1).is_err(), "the child may read the one that was given up");
        drop(writer);
        assert_eq!(swap_file.allocate(9).unwrap(), (first, 1));
    }
}
