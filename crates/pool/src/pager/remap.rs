//! Memory that moves to another address.

use super::fatal::call_failed;
use super::ranges::{Page, Place};
use super::{Ground, Inner, PAGE, runs_of};
use crate::lock::lock;

impl Inner {
    /// Moves managed memory with its states; see [`super::Pager::remap`].
    pub(super) fn moved(
        &self,
        ground: &mut Ground,
        from: usize,
        len: usize,
        remap: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        self.make_small(ground, from, from + len);
        let mut pages: Vec<(usize, Page)> = Vec::new();
        let spans = ground.layout.within(from, from + len);
        for &(start, end) in &spans {
            ground.layout.each(start, end, |address, page| pages.push((address, *page)));
        }
        // The kernel takes the watch off whatever the moved mapping becomes one with. So it must not: it is
        // told apart from its new neighbours until it is watched again.
        mark(from, len, libc::MADV_DONTDUMP);
        let Some(to) = remap() else {
            mark(from, len, libc::MADV_DODUMP);
            return None;
        };
        if to == from {
            // There was room behind it, meanwhile: everything is where it was.
            mark(from, len, libc::MADV_DODUMP);
            return Some(to);
        }
        self.forget(ground, to, to + len, true);
        ground.layout.remove(to, to + len);
        // The contents go along: nothing is given up.
        ground.layout.remove(from, from + len);
        ground.advice.set(from, from + len, None);
        ground.advice.set(to, to + len, None);
        for (start, end) in spans {
            let start = start - from + to;
            let end = end - from + to;
            if let Err(error) = ground.watch.register(start, end - start) {
                call_failed("UFFDIO_REGISTER", start, end - start, &error);
            }
            ground.layout.add(start, end);
        }
        let place = |address: usize| address - from + to;
        let mut clean = Vec::new();
        let mut policy = lock(&self.policy);
        let mut room = self.room();
        for (address, page) in pages {
            let new = place(address);
            match page.place {
                Place::Clean(_) => clean.push(new),
                Place::Waiting(number) => room.rename(number, new),
                _ => {}
            }
            if matches!(page.place, Place::Clean(_) | Place::Dirty) {
                policy.remove((address / PAGE) as u64);
                policy.insert((new / PAGE) as u64);
            }
            if let Some((mut chunk, at)) = ground.layout.chunk(new) {
                chunk[at] = page;
            }
        }
        // Protection does not move along.
        for (start, len) in runs_of(&clean) {
            ground.protect(start, len);
        }
        mark(to, len, libc::MADV_DODUMP);
        Some(to)
    }
}

/// Whether the range is part of a core dump: a mark that sets mappings apart.
fn mark(start: usize, len: usize, advice: libc::c_int) {
    // SAFETY: changes no memory. A range that is not all mapped is none of ours.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
}
