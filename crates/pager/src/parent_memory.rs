//! Memory of the process from which this one was forked: a page that is still there as it was is copied instead of read.
//!
//! A forked child leaves clean pages to its parent, and evicts others. Its copy of a page in the swap file has a checksum. If the
//! bytes at the same address of the parent have that checksum, they are the page, whatever has happened to the parent meanwhile.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::io::pread;

use deepram_core::paging::Block;
use deepram_linux::descriptors::OwnDescriptor;

use super::checksum::PageChecksum;
use super::fault::IncomingPage;
use super::service::TriggerPage;
use super::stats::add;
use super::{AddressSpace, Inner, PAGE, Pager};

/// The parent's memory.
#[derive(Debug)]
pub(super) struct ParentMemory(OwnDescriptor);

impl ParentMemory {
    /// `memory` is the parent's `/proc/self/mem`, which the parent has opened.
    pub(super) fn new(memory: OwnedFd) -> Self {
        Self(memory.into())
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The contents of a page, if the parent has it in memory, unchanged. The kernel does not wait for pages that are not in
    /// memory.
    fn copy(&self, page: &IncomingPage) -> Option<[u8; PAGE]> {
        let checksum = page.checksum?;
        let mut bytes = [0; PAGE];
        let read = pread(&self.0, &mut bytes[..], page.page as u64);
        (read == Ok(PAGE) && PageChecksum::of(&bytes) == checksum).then_some(bytes)
    }
}

impl Pager {
    /// Closes the memory of the process from which this one was forked. A program that gives up rights must not keep a way to
    /// what its parent may read. The caller must not hold up page faults.
    pub fn close_parent_memory(&self) {
        self.inner.write().parent_memory = None;
    }
}

impl Inner {
    fn copy_from_parent(&self, space: &AddressSpace, page: &IncomingPage) -> Option<[u8; PAGE]> {
        let bytes = space.parent_memory.as_ref()?.copy(page)?;
        add(&self.counters.copied_from_parent, 1);
        Some(bytes)
    }

    /// Installs a page that a fault waits for, if the parent has it. Returns whether it does.
    pub(super) fn install_from_parent(&self, space: &AddressSpace, page: IncomingPage) -> bool {
        let copied = self.copy_from_parent(space, &page);
        if let Some(bytes) = &copied {
            self.finish_fault_read(space, page, Block::around(page.page, 1), bytes);
        }
        copied.is_some()
    }

    /// Installs those pages that the parent has, and returns the others. The trigger page goes to the victim buffer.
    pub(super) fn install_ahead_from_parent(
        &self,
        space: &AddressSpace,
        mut pages: Vec<IncomingPage>,
        trigger: Option<TriggerPage>,
    ) -> Vec<IncomingPage> {
        pages.retain(|page| {
            let copied = self.copy_from_parent(space, page);
            if let Some(bytes) = &copied {
                self.install_readahead(space, std::slice::from_ref(page), bytes, trigger);
            }
            copied.is_none()
        });
        pages
    }
}
