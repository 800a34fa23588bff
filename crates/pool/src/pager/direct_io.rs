//! Pages that a device may be storing to: the buffers of direct reads (`O_DIRECT`), and those registered with io_uring.
//! Write protection does not stop a device, so what it stores after a page was copied would be lost with the page.
//! The kernel refuses to move such a page; so where there may be any, pages that are dirty leave by being moved.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::evict::{Leaver, TOGETHER, Way};
use super::fatal::discard;
use super::ranges::Place;
use super::{Ground, Inner, PAGE, Pager};
use crate::lock::lock;
use crate::uffd::Uffd;

const BYTES: usize = TOGETHER * PAGE;

impl Pager {
    /// From now on devices may store to managed memory by themselves: direct reads (`O_DIRECT`), buffers registered with
    /// io_uring. To be called before the first of them. Pages that leave then cost more, and none are huge.
    ///
    /// # Errors
    /// The kernel cannot move pages (before Linux 6.8): what is read so may be lost.
    pub fn expect_direct(&self) -> io::Result<()> {
        if self.inner.direct.load(Relaxed) {
            return Ok(());
        }
        // Nobody takes pages out meanwhile.
        let ground = self.inner.write();
        if !ground.watch.transfers() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel cannot tell which pages a device stores to: Linux 6.8 or later can",
            ));
        }
        // A part of a huge page that is pinned cannot be moved, nor told from one that can. Nothing is pinned yet.
        self.inner.make_small(&ground, 0, usize::MAX);
        self.inner.direct.store(true, Relaxed);
        Ok(())
    }
}

/// Where pages go when they are moved, to be copied from there. A forked child does not have it.
#[derive(Debug)]
pub(super) struct Scratch {
    start: usize,
}

impl Scratch {
    fn new(watch: &Uffd) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping. By number, for a library that stands before `mmap` itself.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::syscall(libc::SYS_mmap, 0, BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == -1 {
            return Err(io::Error::last_os_error());
        }
        let scratch = Self { start: start as usize };
        for advice in [libc::MADV_DONTFORK, libc::MADV_NOHUGEPAGE] {
            // SAFETY: the mapping just made; changes no contents.
            unsafe { libc::syscall(libc::SYS_madvise, scratch.start, BYTES, advice) };
        }
        watch.register_missing(scratch.start, BYTES)?;
        Ok(scratch)
    }

    fn page(&self, n: usize) -> usize {
        self.start + n * PAGE
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; it holds nothing that is needed.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, BYTES) };
    }
}

/// What became of a page that was to move.
enum Moved {
    Gone,
    /// A device may be storing to it.
    Stays,
    /// It does not move, for other reasons: the program itself may not store to it just now.
    Never,
}

impl Inner {
    /// Moves dirty pages, at most [`TOGETHER`], out of memory and into their frames of the room. Those that do not leave, as
    /// they may be stored to, are dirty pages as before and are taken off the list. Returns those that cannot be moved.
    pub(super) fn move_out(
        &self,
        ground: &Ground,
        scratch: &mut Option<Scratch>,
        leavers: &mut Vec<Leaver>,
    ) -> Vec<usize> {
        if scratch.is_none() {
            match Scratch::new(&ground.watch) {
                Ok(new) => *scratch = Some(new),
                Err(error) => self.refused(&error),
            }
        }
        let Some(scratch) = scratch else {
            // Without memory for it nothing dirty leaves.
            leavers.retain(|leaver| !leaver.is_dirty() || self.stays(ground, leaver));
            return Vec::new();
        };
        let (mut moved, mut never) = (0, Vec::new());
        leavers.retain(|leaver| {
            let Some(number) = leaver.to.frame().filter(|_| leaver.is_dirty()) else { return true };
            match move_page(ground, scratch.page(moved), leaver.page) {
                Moved::Gone => {}
                Moved::Stays => return self.stays(ground, leaver),
                Moved::Never => {
                    never.push(leaver.page);
                    return true;
                }
            }
            let frame = self.room().bytes(number);
            // SAFETY: the scratch page is ours and there; the frame is as large, and its owner gave it to us.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    std::ptr::with_exposed_provenance(scratch.page(moved)),
                    frame,
                    PAGE,
                )
            };
            moved += 1;
            true
        });
        // SAFETY: ours; what is there has been copied.
        unsafe { discard(&[(scratch.start, moved.max(1) * PAGE)]) };
        never
    }

    /// A page that was to leave does not, and is as it was. `false`, for who takes it off a list.
    pub(super) fn stays(&self, ground: &Ground, leaver: &Leaver) -> bool {
        let Some((mut chunk, at)) = ground.layout.chunk(leaver.page) else { return false };
        let state = &mut chunk[at];
        let mut room = self.room();
        let slot = match leaver.to {
            Way::Leave(slot) => Some(slot),
            Way::Write(number) | Way::Wait(number) => {
                let slot = room.frame(number).slot;
                room.leave(number);
                slot
            }
        };
        drop(room);
        state.place = slot.map_or(Place::Dirty, Place::Clean);
        let wanted = std::mem::take(&mut state.wanted);
        lock(&self.policy).insert((leaver.page / PAGE) as u64);
        drop(chunk);
        if wanted {
            ground.wake(leaver.page, PAGE);
        }
        false
    }
}

fn move_page(ground: &Ground, to: usize, from: usize) -> Moved {
    let moved = |result: io::Result<()>| match result.map_err(|error| error.raw_os_error()) {
        Ok(()) => Some(Moved::Gone),
        Err(Some(libc::EBUSY)) => None,
        Err(_) => Some(Moved::Never),
    };
    let again = || {
        // What a forked process has as well does not move either: it becomes this process's own by being stored to. What a device
        // stores to is that already.
        ground.unprotect(from, PAGE);
        // SAFETY: changes no contents. The page is there and not protected, so that nobody has to serve this.
        unsafe { libc::syscall(libc::SYS_madvise, from, PAGE, libc::MADV_POPULATE_WRITE) };
        moved(ground.watch.transfer_one(to, from, PAGE))
    };
    moved(ground.watch.transfer_one(to, from, PAGE)).or_else(again).unwrap_or(Moved::Stays)
}
