//! Managed memory that moves to another address (`mremap`).

use super::fatal::call_failed;
use super::page_table::{PageInfo, PageState};
use super::{AddressSpace, Inner, PAGE, contiguous_ranges};
use deepram_linux::lock::lock;

impl Inner {
    /// Moves managed memory with its page states; see [`super::Pager::remap`].
    pub(super) fn remap_range(
        &self,
        space: &mut AddressSpace,
        from: usize,
        len: usize,
        remap: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        self.split_range(space, from, from + len);
        let mut pages: Vec<(usize, PageInfo)> = Vec::new();
        let spans = space.page_table.within(from, from + len);
        for &(start, end) in &spans {
            space.page_table.each_known(start, end, |address, page| pages.push((address, *page)));
        }
        // The kernel removes the userfaultfd registration from a mapping that it merges with the moved one. This mark
        // keeps the moved mapping apart from its new neighbours until it is registered again.
        set_core_dump(from, len, libc::MADV_DONTDUMP);
        let Some(to) = remap() else {
            set_core_dump(from, len, libc::MADV_DODUMP);
            return None;
        };
        if to == from {
            // Space behind the mapping became free meanwhile: nothing has moved.
            set_core_dump(from, len, libc::MADV_DODUMP);
            return Some(to);
        }
        self.discard_contents(space, to, to + len, true);
        space.page_table.remove(to, to + len);
        // The contents move along: no slot or frame is freed.
        space.page_table.remove(from, from + len);
        space.advice.set(from, from + len, None);
        space.advice.set(to, to + len, None);
        for (start, end) in spans {
            let start = start - from + to;
            let end = end - from + to;
            if let Err(error) = space.uffd.register(start, end - start) {
                call_failed("UFFDIO_REGISTER", start, end - start, &error);
            }
            space.page_table.add(start, end);
        }
        let new_address = |address: usize| address - from + to;
        let mut protected = Vec::new();
        let mut policy = lock(&self.policy);
        let mut buffer = self.victim_buffer();
        for (address, page) in pages {
            let new = new_address(address);
            match page.state {
                PageState::Clean(_) if page.checksum.is_none() => protected.push(new),
                PageState::InVictimBuffer(number) => buffer.set_address(number, new),
                _ => {}
            }
            if page.state.resident().is_some() {
                policy.remove((address / PAGE) as u64);
                policy.insert((new / PAGE) as u64);
            }
            if let Some((mut chunk, at)) = space.page_table.chunk(new) {
                chunk[at] = page;
            }
        }
        // Write protection does not move along.
        for (start, len) in contiguous_ranges(&protected) {
            space.protect(start, len);
        }
        set_core_dump(to, len, libc::MADV_DODUMP);
        Some(to)
    }
}

/// Sets whether the range is part of core dumps: a mark that keeps mappings apart.
fn set_core_dump(start: usize, len: usize, advice: libc::c_int) {
    // SAFETY: changes no memory. A range that is not fully mapped is not managed.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
}
