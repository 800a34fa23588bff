//! Ends the paging of a range that stays mapped.

use std::io;

use super::fatal::{call_failed, fatal};
use super::page_table::PageState;
use super::{AddressSpace, Inner, PAGE, Pager};
use deepram_linux::buffer::AlignedBuf;
use deepram_linux::lock::lock;

impl Pager {
    /// Stops paging the managed parts of the range: all their contents come into DRAM and stay there.
    ///
    /// # Errors
    /// The kernel refuses; the part that it refuses stays managed.
    pub fn stop_managing(&self, start: usize, len: usize) -> io::Result<()> {
        let mut space = self.inner.write();
        let end = start.saturating_add(len);
        self.inner.split_range(&space, start, end);
        for (from, to) in space.page_table.within(start, end) {
            self.inner.load_all(&space, from, to);
            space.page_table.each_known(from, to, |_, page| {
                if let PageState::Clean(slot) = page.state {
                    space.swap_file.free(slot);
                    page.state = PageState::Dirty;
                }
            });
            space.uffd.unprotect(from, to - from)?;
            space.uffd.unregister(from, to - from)?;
            let mut resident = Vec::new();
            space.page_table.each_known(from, to, |address, page| {
                resident.extend((page.state == PageState::Dirty).then_some(address));
            });
            let mut policy = lock(&self.inner.policy);
            resident.iter().for_each(|address| policy.remove((address / PAGE) as u64));
            drop(policy);
            self.inner.frames.release(resident.len());
            space.page_table.remove(from, to);
            space.advice.set(from, to, None);
        }
        Ok(())
    }
}

impl Inner {
    /// Brings all pages of the range that are not fresh into memory. No page is in transit.
    fn load_all(&self, space: &AddressSpace, start: usize, end: usize) {
        let mut out = Vec::new();
        space.page_table.each_known(start, end, |address, page| match page.state {
            PageState::Stored(_) | PageState::InVictimBuffer(_) => out.push(address),
            PageState::Fresh | PageState::Clean(_) | PageState::Dirty => {}
            // No page is in transit while the address-space lock is held exclusively.
            PageState::Incoming | PageState::Evicting => {
                fatal(format_args!("{page:?} at {address:#x} is in transit under the exclusive lock"))
            }
        });
        let mut bytes = AlignedBuf::zeroed(PAGE);
        for address in out {
            let Some((mut chunk, at)) = space.page_table.chunk(address) else { continue };
            let page = &mut chunk[at];
            match page.state {
                PageState::Stored(slot) => {
                    let read = space.swap_file.read(slot, &mut bytes);
                    let read = read.or_else(|_| self.retry_read(space, slot, &mut bytes));
                    if let Err(error) = read {
                        call_failed("pread", address, PAGE, &error);
                    }
                    space.swap_file.free(slot);
                    self.frames.charge(1);
                }
                PageState::InVictimBuffer(number) => {
                    let mut buffer = self.victim_buffer();
                    // SAFETY: a frame of the victim buffer that holds the page: no thread stores to it.
                    bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(buffer.bytes(number), PAGE) });
                    buffer.take(number).into_iter().for_each(|slot| space.swap_file.free(slot));
                }
                _ => continue,
            }
            page.state = PageState::Dirty;
            page.trigger = None;
            lock(&self.policy).insert((address / PAGE) as u64);
            // The caller soon notices a page that is no longer mapped.
            space.install(address, &bytes, false);
        }
    }
}
