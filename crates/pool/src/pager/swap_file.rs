//! The file behind the memory: pages of it are slots. It has no name, so that nothing is left of it when
//! the process ends in whatever way, and nothing in it outlives the process.
//!
//! 1. Slots are given out in runs, one after the other through a stretch, so that pages that leave together
//!    are written with few transfers. The next stretch is the one with the most free slots, if seven
//!    eighths of it are free; otherwise the file grows. Under random stores it is then 2.4 times the data.
//! 2. A slot that a forked child may still read is not given out again before the child has ended.
//! 3. The file grows by stretches. It is given space before it is written, so that a full disk is an error
//!    here and not a lost page later.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::{pread, pwritev};

use super::PAGE;
use super::ranges::Slot;
use crate::descriptors::{Own, raised};
use crate::lock::lock;
use crate::message::write_line;

/// Slots of a stretch: 16 MiB.
const STRETCH: u32 = 4096;
const WORDS: usize = STRETCH as usize / 64;

/// A store of pages.
#[derive(Debug)]
pub(super) struct Store {
    /// Those of the ancestors that the process was forked from, the eldest first, and the own one.
    files: Vec<Arc<File>>,
    space: Mutex<Space>,
    limit: u64,
}

#[derive(Debug, Default)]
struct Space {
    stretches: Vec<Stretch>,
    /// Where the next run is looked for: stretch, and slot of it.
    next: (usize, u32),
    /// What children may still read; while they live, these slots stay.
    children: Vec<Child>,
}

#[derive(Debug, Clone)]
struct Stretch {
    /// Set: taken.
    taken: [u64; WORDS],
    free: u32,
}

#[derive(Debug)]
struct Child {
    /// Readable (end of file) when the child and all it forked have ended or become other programs.
    ended: Own,
    /// The slots it may read.
    sees: Vec<[u64; WORDS]>,
    /// Slots of these that have been given up here meanwhile.
    kept: Vec<u32>,
}

impl Child {
    fn sees(&self, slot: u32) -> bool {
        let (stretch, within) = ((slot / STRETCH) as usize, slot % STRETCH);
        self.sees.get(stretch).is_some_and(|taken| taken[within as usize / 64] >> (within % 64) & 1 == 1)
    }
}

impl Store {
    /// A file in this directory, of at most so many bytes.
    pub(super) fn create(directory: &Path, limit: u64) -> io::Result<Self> {
        Ok(Self { files: vec![Arc::new(open(directory)?)], space: Mutex::default(), limit })
    }

    /// That of a forked child: a file of its own, and the parent's to read from. Where it may have no file, as it has given
    /// up the right to or sees another file system, nothing can be written.
    pub(super) fn inherit(&self, directory: &Path) -> io::Result<Self> {
        if self.files.len() > usize::from(u8::MAX) {
            return Err(io::Error::other("processes are forked from each other more than 255 deep"));
        }
        let mut files = self.files.clone();
        let (own, limit) = match open(directory) {
            Ok(own) => (own, self.limit),
            Err(error) => {
                write_line(format_args!(
                    "deepram: {}: a forked process can have no file there ({error}); what it stores to stays in DRAM",
                    directory.display()
                ));
                (raised(|| rustix::fs::memfd_create("deepram-none", MemfdFlags::CLOEXEC))?.into(), 0)
            }
        };
        files.push(Arc::new(own));
        Ok(Self { files, space: Mutex::default(), limit })
    }

    fn own(&self) -> &File {
        &self.files[self.files.len() - 1]
    }

    /// The slot of that number in the own file.
    pub(super) fn slot(&self, number: u32) -> Slot {
        Slot { file: (self.files.len() - 1) as u8, number }
    }

    /// Keeps what is on the store for a child, until the pipe's other ends are closed.
    pub(super) fn keep_for(&self, ended: Own) {
        let mut space = lock(&self.space);
        let sees = space.stretches.iter().map(|stretch| stretch.taken).collect();
        space.children.push(Child { ended, sees, kept: Vec::new() });
    }

    /// In a forked child, whose siblings are its parent's matter.
    pub(super) fn forget_children(&self) {
        lock(&self.space).children.clear();
    }

    /// Whether a child may still read what is kept for it.
    pub(super) fn has_children(&self) -> bool {
        let mut space = lock(&self.space);
        space.settle();
        !space.children.is_empty()
    }

    /// A run of at most `most` free slots: the first, and how many. Runs follow each other through a stretch.
    pub(super) fn take(&self, most: u32) -> io::Result<(u32, u32)> {
        let mut space = lock(&self.space);
        space.settle();
        loop {
            let (at, from) = space.next;
            if let Some(stretch) = space.stretches.get_mut(at)
                && let Some((first, len)) = stretch.run(from, most)
            {
                stretch.take(first, len);
                space.next = (at, first + len);
                return Ok((at as u32 * STRETCH + first, len));
            }
            let best = (0..space.stretches.len()).max_by_key(|at| space.stretches[*at].free);
            // Space is cheap: a stretch that is mostly full would give short runs.
            let roomy = best.filter(|at| space.stretches[*at].free >= STRETCH / 8 * 7);
            let at = match roomy {
                Some(at) => at,
                None => match self.grow(&mut space) {
                    Ok(at) => at,
                    Err(error) => best.filter(|at| space.stretches[*at].free > 0).ok_or(error)?,
                },
            };
            space.next = (at, 0);
        }
    }

    fn grow(&self, space: &mut Space) -> io::Result<usize> {
        let at = space.stretches.len();
        let bytes = u64::from(STRETCH) * PAGE as u64;
        let offset = at as u64 * bytes;
        if offset + bytes > self.limit || offset / PAGE as u64 + u64::from(STRETCH) > u64::from(u32::MAX) {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the memory store has its limit of {} bytes", self.limit),
            ));
        }
        match rustix::fs::fallocate(self.own(), FallocateFlags::empty(), offset, bytes) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => self.own().set_len(offset + bytes)?,
            Err(error) => return Err(error.into()),
        }
        space.stretches.push(Stretch { taken: [0; WORDS], free: STRETCH });
        Ok(at)
    }

    /// Gives a slot up. Those of ancestors are theirs.
    pub(super) fn give_up(&self, slot: Slot) {
        if usize::from(slot.file) + 1 != self.files.len() {
            return;
        }
        lock(&self.space).give_up(slot.number);
    }

    /// Where a slot is: the descriptor, which lives as long as the store, and the byte.
    pub(super) fn place(&self, slot: Slot) -> (RawFd, u64) {
        (self.files[usize::from(slot.file)].as_raw_fd(), u64::from(slot.number) * PAGE as u64)
    }

    /// Reads whole pages from neighbouring slots.
    pub(super) fn read(&self, slot: Slot, to: &mut [u8]) -> io::Result<()> {
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

    /// Writes pages, each of these, to neighbouring slots of the own file.
    pub(super) fn write(&self, first: u32, pages: &[&[u8]]) -> io::Result<()> {
        let (mut first, mut pages) = (first, pages);
        while !pages.is_empty() {
            let now = pages.len().min(libc::UIO_MAXIOV as usize);
            let vectors: Vec<IoSlice<'_>> = pages[..now].iter().map(|page| IoSlice::new(page)).collect();
            match pwritev(self.own(), &vectors, u64::from(first) * PAGE as u64) {
                // Whole pages only; what is left of a torn one is written again.
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
        let space = lock(&self.space);
        let pipes = space.children.iter().map(|child| child.ended.as_raw_fd());
        self.files.iter().map(|file| file.as_raw_fd()).chain(pipes).collect()
    }

    /// Bytes of the own file.
    pub(super) fn bytes(&self) -> u64 {
        lock(&self.space).stretches.len() as u64 * u64::from(STRETCH) * PAGE as u64
    }

    /// Bytes of tables.
    pub(super) fn memory_bytes(&self) -> usize {
        let space = lock(&self.space);
        let kept: usize = space.children.iter().map(|c| c.sees.len() * WORDS * 8 + c.kept.len() * 4).sum();
        space.stretches.len() * size_of::<Stretch>() + kept
    }
}

impl Space {
    /// Frees what was kept for children that have ended.
    fn settle(&mut self) {
        let mut at = 0;
        while at < self.children.len() {
            if !has_ended(&self.children[at].ended) {
                at += 1;
                continue;
            }
            let child = self.children.remove(at);
            // Another child may see them as well.
            child.kept.into_iter().for_each(|slot| self.give_up(slot));
        }
    }

    /// Frees a slot, or keeps it for a child that may still read it.
    fn give_up(&mut self, slot: u32) {
        match self.children.iter_mut().find(|child| child.sees(slot)) {
            Some(child) => child.kept.push(slot),
            None => self.free(slot),
        }
    }

    fn free(&mut self, slot: u32) {
        let stretch = &mut self.stretches[(slot / STRETCH) as usize];
        let within = slot % STRETCH;
        debug_assert!(stretch.taken[within as usize / 64] >> (within % 64) & 1 == 1, "slot {slot} is free");
        stretch.taken[within as usize / 64] &= !(1 << (within % 64));
        stretch.free += 1;
    }
}

impl Stretch {
    /// The first run of free slots from `from` on, of at most `most` slots.
    fn run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let first = self.find(from, false)?;
        let end = self.find(first, true).unwrap_or(STRETCH);
        Some((first, (end - first).min(most)))
    }

    /// The first slot from `from` on that is `taken` or not.
    fn find(&self, from: u32, taken: bool) -> Option<u32> {
        let mut at = from;
        while at < STRETCH {
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

fn has_ended(pipe: &Own) -> bool {
    let mut fds = [rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN)];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
}

fn open(directory: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true);
    let unnamed = |flags: i32| {
        raised(|| options.clone().custom_flags(libc::O_TMPFILE | flags).open(directory)).map(File::from)
    };
    match unnamed(libc::O_DIRECT) {
        // A file system without direct transfers: its own cache is then beside ours.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => unnamed(0),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::AlignedBuf;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_runs_are_whole_while_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path(), 1 << 30).unwrap();
        let (first, len) = store.take(256).unwrap();
        assert_eq!(len, 256);
        let mut bytes = AlignedBuf::zeroed(256 * PAGE);
        for (n, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
            page.fill(n as u8);
        }
        let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE).collect();
        store.write(first, &pages).unwrap();
        let mut back = AlignedBuf::zeroed(PAGE);
        for n in [0, 17, 255] {
            store.read(Slot { file: 0, number: first + n }, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == n as u8));
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_full_store_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path(), u64::from(STRETCH) * PAGE as u64).unwrap();
        let mut left = STRETCH;
        while left > 0 {
            left -= store.take(1000).unwrap().1;
        }
        assert_eq!(store.take(1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        store.give_up(Slot { file: 0, number: 77 });
        assert_eq!(store.take(5).unwrap(), (77, 1));
    }

    #[test]
    fn slots_that_a_child_sees_stay_until_it_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path(), u64::from(STRETCH) * PAGE as u64).unwrap();
        let (first, _) = store.take(2).unwrap();
        let (reader, writer) = io::pipe().unwrap();
        store.keep_for(std::os::fd::OwnedFd::from(reader).into());
        store.give_up(Slot { file: 0, number: first });
        let mut left = STRETCH - 2;
        while left > 0 {
            left -= store.take(4096).unwrap().1;
        }
        assert!(store.take(1).is_err(), "the child may read the one that was given up");
        drop(writer);
        assert_eq!(store.take(9).unwrap(), (first, 1));
    }

    proptest! {
        /// No slot is ever given out twice.
        #[test]
        fn slots_are_taken_once(steps in proptest::collection::vec((1u32..600, any::<u32>()), 1..60)) {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::create(directory.path(), 1 << 30).unwrap();
            let mut taken = std::collections::BTreeSet::new();
            for (most, pick) in steps {
                let (first, len) = store.take(most).unwrap();
                prop_assert!(len >= 1 && len <= most);
                for slot in first..first + len {
                    prop_assert!(taken.insert(slot), "{} is taken", slot);
                }
                let give = taken.iter().copied().filter(|slot| slot.wrapping_mul(pick | 1) % 3 == 0);
                for slot in give.collect::<Vec<_>>() {
                    store.give_up(Slot { file: 0, number: slot });
                    taken.remove(&slot);
                }
            }
        }
    }
}
