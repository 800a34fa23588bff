//! The swap file; each of its 4 KiB pages is a slot. The file has no name, so that nothing of it remains when the
//! process ends in whatever way.
//!
//! 1. Slots are allocated in runs, one after the other through an extent, so that pages that are evicted together are
//!    written with few requests. The next extent is the one with the most free slots, if seven eighths of it are free;
//!    otherwise the file grows. Under random stores its size is then 2.4 times the data.
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
use deepram_linux::descriptors::{OwnDescriptor, open_high};
use deepram_linux::lock::lock;
use deepram_linux::message::write_line;

/// Slots of an extent: 16 MiB.
const EXTENT_SLOTS: u32 = 4096;
const WORDS: usize = EXTENT_SLOTS as usize / 64;

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
    extents: Vec<Extent>,
    /// Where the search for the next run starts: extent, and slot in it.
    next: (usize, u32),
    /// The slots that forked children may still read; they are not freed while the children live.
    children: Vec<ChildSlots>,
}

#[derive(Debug, Clone)]
struct Extent {
    /// One bit for each slot; set: allocated.
    taken: [u64; WORDS],
    free: u32,
}

#[derive(Debug)]
struct ChildSlots {
    /// Readable (end of file) when the child and all processes forked from it have ended or executed other programs.
    ended: OwnDescriptor,
    /// The slots that the child may read.
    readable: Vec<[u64; WORDS]>,
    /// Of these, the slots that were freed here meanwhile.
    retained: Vec<u32>,
}

impl ChildSlots {
    fn may_read(&self, slot: u32) -> bool {
        let (extent, within) = ((slot / EXTENT_SLOTS) as usize, slot % EXTENT_SLOTS);
        self.readable.get(extent).is_some_and(|taken| taken[within as usize / 64] >> (within % 64) & 1 == 1)
    }
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
        let readable = slots.extents.iter().map(|extent| extent.taken).collect();
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
        loop {
            let (at, from) = slots.next;
            if let Some(extent) = slots.extents.get_mut(at)
                && let Some((first, len)) = extent.run(from, most)
            {
                extent.take(first, len);
                slots.next = (at, first + len);
                return Ok((at as u32 * EXTENT_SLOTS + first, len));
            }
            let best = (0..slots.extents.len()).max_by_key(|at| slots.extents[*at].free);
            // Disk space is cheap: a mostly full extent would give short runs.
            let roomy = best.filter(|at| slots.extents[*at].free >= EXTENT_SLOTS / 8 * 7);
            let at = match roomy {
                Some(at) => at,
                None => match self.grow(&mut slots) {
                    Ok(at) => at,
                    Err(error) => best.filter(|at| slots.extents[*at].free > 0).ok_or(error)?,
                },
            };
            slots.next = (at, 0);
        }
    }

    fn grow(&self, slots: &mut SlotAllocator) -> io::Result<usize> {
        let at = slots.extents.len();
        let bytes = u64::from(EXTENT_SLOTS) * PAGE as u64;
        let offset = at as u64 * bytes;
        if offset + bytes > self.limit || offset / PAGE as u64 + u64::from(EXTENT_SLOTS) > u64::from(u32::MAX)
        {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the swap file has reached its limit of {} bytes", self.limit),
            ));
        }
        match rustix::fs::fallocate(self.own(), FallocateFlags::empty(), offset, bytes) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => self.own().set_len(offset + bytes)?,
            Err(error) => return Err(error.into()),
        }
        slots.extents.push(Extent { taken: [0; WORDS], free: EXTENT_SLOTS });
        Ok(at)
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
        lock(&self.slots).extents.len() as u64 * u64::from(EXTENT_SLOTS) * PAGE as u64
    }

    /// Bytes of the tables.
    pub(super) fn memory_bytes(&self) -> usize {
        let slots = lock(&self.slots);
        let retained: usize =
            slots.children.iter().map(|c| c.readable.len() * WORDS * 8 + c.retained.len() * 4).sum();
        slots.extents.len() * size_of::<Extent>() + retained
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
        match self.children.iter_mut().find(|child| child.may_read(slot)) {
            Some(child) => child.retained.push(slot),
            None => self.mark_free(slot),
        }
    }

    fn mark_free(&mut self, slot: u32) {
        let extent = &mut self.extents[(slot / EXTENT_SLOTS) as usize];
        let within = slot % EXTENT_SLOTS;
        debug_assert!(extent.taken[within as usize / 64] >> (within % 64) & 1 == 1, "slot {slot} is free");
        extent.taken[within as usize / 64] &= !(1 << (within % 64));
        extent.free += 1;
    }
}

impl Extent {
    /// The first run of free slots from `from` on, of at most `most` slots.
    fn run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let first = self.find(from, false)?;
        let end = self.find(first, true).unwrap_or(EXTENT_SLOTS);
        Some((first, (end - first).min(most)))
    }

    /// The first slot from `from` on that is allocated (`taken`) or free.
    fn find(&self, from: u32, taken: bool) -> Option<u32> {
        let mut at = from;
        while at < EXTENT_SLOTS {
            let word = self.taken[at as usize / 64];
            let wanted = if taken { word } else { !word } >> (at % 64);
            if wanted != 0 {
                return Some(at + wanted.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    fn take(&mut self, first: u32, len: u32) {
        for slot in first..first + len {
            self.taken[slot as usize / 64] |= 1 << (slot % 64);
        }
        self.free -= len;
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
    use proptest::prelude::*;

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

    proptest! {
        /// No slot is allocated twice.
        #[test]
        fn slots_are_taken_once(steps in proptest::collection::vec((1u32..600, any::<u32>()), 1..60)) {
            let directory = tempfile::tempdir().unwrap();
            let swap_file = SwapFile::create(directory.path(), 1 << 30).unwrap();
            let mut taken = std::collections::BTreeSet::new();
            for (most, pick) in steps {
                let (first, len) = swap_file.allocate(most).unwrap();
                prop_assert!(len >= 1 && len <= most);
                for slot in first..first + len {
                    prop_assert!(taken.insert(slot), "{} is taken", slot);
                }
                let give = taken.iter().copied().filter(|slot| slot.wrapping_mul(pick | 1) % 3 == 0);
                for slot in give.collect::<Vec<_>>() {
                    swap_file.free(SwapSlot { file: 0, number: slot });
                    taken.remove(&slot);
                }
            }
        }
    }
}
