//! Eviction of pages that a device may be storing to: buffers of direct reads (`O_DIRECT`), and buffers registered with
//! io_uring. Write protection does not stop a device, so data that it stores after a page was copied would be lost with
//! the page. The kernel refuses to move such a page; so where there may be any, dirty pages are evicted by moving them.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::eviction::Victim;
use super::fatal::discard;
use super::page_table::PageState;
use super::{AddressSpace, Inner, PAGE, Pager};
use deepram_core::paging::SwapWatermarks;
use deepram_linux::lock::lock;
use deepram_linux::uffd::Uffd;

const AREA_BYTES: usize = SwapWatermarks::PROTECTED_TOGETHER * PAGE;

impl Pager {
    /// Announces that devices may store to managed memory from now on: by direct reads (`O_DIRECT`), or into buffers
    /// registered with io_uring. Must be called before the first of these. Eviction then costs more, and there are no
    /// huge pages.
    ///
    /// # Errors
    /// The kernel cannot move pages (before Linux 6.8): data read by direct I/O may be lost.
    pub fn expect_direct_io(&self) -> io::Result<()> {
        if self.inner.direct_io.load(Relaxed) {
            return Ok(());
        }
        // Held exclusively: no thread evicts pages meanwhile.
        let space = self.inner.write();
        if !space.uffd.can_move() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel cannot move pages, so the pages that a device stores to cannot be found; Linux 6.8 or later is \
                 needed",
            ));
        }
        // A huge page of which a part is pinned by a device cannot be moved, nor told from one that can. No page is
        // pinned yet.
        self.inner.split_range(&space, 0, usize::MAX);
        for (start, end) in space.page_table.all() {
            space.page_table.each_known(start, end, |_, page| {
                if let Some((slot, _)) = page.unverified() {
                    space.swap_file.free(slot);
                    page.state = PageState::Dirty;
                }
            });
        }
        self.inner.direct_io.store(true, Relaxed);
        Ok(())
    }
}

/// Memory to which pages are moved before they are copied into the victim buffer. A forked child does not have it.
#[derive(Debug)]
pub(super) struct MoveArea {
    start: usize,
}

impl MoveArea {
    fn new(uffd: &Uffd) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping. By number, because a library may interpose `mmap` itself.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::syscall(libc::SYS_mmap, 0, AREA_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == -1 {
            return Err(io::Error::last_os_error());
        }
        let move_area = Self { start: start as usize };
        for advice in [libc::MADV_DONTFORK, libc::MADV_NOHUGEPAGE] {
            // SAFETY: the mapping just made; changes no contents.
            unsafe { libc::syscall(libc::SYS_madvise, move_area.start, AREA_BYTES, advice) };
        }
        uffd.register_missing(move_area.start, AREA_BYTES)?;
        Ok(move_area)
    }

    fn page(&self, n: usize) -> usize {
        self.start + n * PAGE
    }
}

impl Drop for MoveArea {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; its contents are no longer needed.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, AREA_BYTES) };
    }
}

/// Result of moving a page.
enum MoveOutcome {
    Moved,
    /// A device may be storing to the page.
    Pinned,
    /// The page cannot be moved for another reason: the program itself may not store to it at present.
    Unmovable,
}

impl Inner {
    /// Moves dirty victims, at most [`SwapWatermarks::PROTECTED_TOGETHER`], out of memory and into their frames of the victim buffer.
    /// Victims to which a device may be storing stay dirty pages in memory and are taken off the list. Returns the
    /// victims that cannot be moved.
    pub(super) fn move_dirty_victims(
        &self,
        space: &AddressSpace,
        move_area: &mut Option<MoveArea>,
        victims: &mut Vec<Victim>,
    ) -> Vec<usize> {
        if move_area.is_none() {
            match MoveArea::new(&space.uffd) {
                Ok(new) => *move_area = Some(new),
                Err(error) => self.note_swap_failure(&error),
            }
        }
        let Some(move_area) = move_area else {
            // Without a move area no dirty page can leave.
            victims.retain(|victim| !victim.dirty || self.cancel_eviction(space, victim));
            return Vec::new();
        };
        let (mut moved, mut unmovable) = (0, Vec::new());
        victims.retain(|victim| {
            if !victim.dirty {
                return true;
            }
            match move_page(space, move_area.page(moved), victim.page) {
                MoveOutcome::Moved => {}
                MoveOutcome::Pinned => return self.cancel_eviction(space, victim),
                MoveOutcome::Unmovable => {
                    unmovable.push(victim.page);
                    return true;
                }
            }
            let frame = self.victim_buffer().bytes(victim.frame);
            // SAFETY: the page of the move area belongs to this function and is present; the frame is as large, and its
            // owner gave it to this function.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    std::ptr::with_exposed_provenance(move_area.page(moved)),
                    frame,
                    PAGE,
                )
            };
            moved += 1;
            true
        });
        // SAFETY: the move area's own memory; its contents have been copied.
        unsafe { discard(&[(move_area.start, moved.max(1) * PAGE)]) };
        unmovable
    }

    /// Cancels the eviction of a victim, which stays in memory as it was. Returns `false`, which takes it off the
    /// caller's list.
    pub(super) fn cancel_eviction(&self, space: &AddressSpace, victim: &Victim) -> bool {
        let Some((mut chunk, at)) = space.page_table.chunk(victim.page) else { return false };
        let info = &mut chunk[at];
        info.state.stay(self.victim_buffer().take(victim.frame));
        let fault_waiting = std::mem::take(&mut info.fault_waiting);
        lock(&self.policy).insert((victim.page / PAGE) as u64);
        drop(chunk);
        if fault_waiting {
            space.wake(victim.page, PAGE);
        }
        false
    }
}

fn move_page(space: &AddressSpace, to: usize, from: usize) -> MoveOutcome {
    let moved = |result: io::Result<()>| match result.map_err(|error| error.raw_os_error()) {
        Ok(()) => Some(MoveOutcome::Moved),
        Err(Some(libc::EBUSY)) => None,
        Err(_) => Some(MoveOutcome::Unmovable),
    };
    let again = || {
        // A page that a forked process maps too cannot be moved either: a store makes it this process's own. A page
        // that a device stores to is that already.
        space.unprotect(from, PAGE);
        // SAFETY: changes no contents. The page is present and not protected, so that no fault has to be served.
        unsafe { libc::syscall(libc::SYS_madvise, from, PAGE, libc::MADV_POPULATE_WRITE) };
        moved(space.uffd.move_page(to, from, PAGE))
    };
    moved(space.uffd.move_page(to, from, PAGE)).or_else(again).unwrap_or(MoveOutcome::Pinned)
}
