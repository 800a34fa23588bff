//! Memory of the process from which this one was forked: a page that is still there as it was is copied instead of read.
//!
//! A forked child leaves clean pages to its parent, and evicts others. Its copy of a page in the swap file has a checksum. If the
//! bytes at the same address of the parent have that checksum, they are the page, whatever has happened to the parent meanwhile.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{PoisonError, RwLock};

use rustix::io::pread;

use deepram_core::paging::Block;
use deepram_linux::descriptors::OwnDescriptor;

use super::checksum::PageChecksum;
use super::fault::IncomingPage;
use super::service::TriggerPage;
use super::stats::add;
use super::{AddressSpace, Inner, PAGE, Pager};

/// The parent's memory; nothing if this process has no parent, or no longer reads its memory.
#[derive(Debug, Default)]
pub(super) struct ParentMemory(RwLock<Option<OwnDescriptor>>);

impl ParentMemory {
    /// `memory` is the parent's `/proc/self/mem`, which the parent has opened.
    pub(super) fn new(memory: Option<OwnDescriptor>) -> Self {
        Self(RwLock::new(memory))
    }

    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Closes the parent's memory.
    fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn is_open(&self) -> bool {
        self.descriptor().is_some()
    }

    /// Copies a page if the parent has it in memory, unchanged. The kernel does not wait for pages that are not in memory.
    fn copy(&self, page: &IncomingPage, to: &mut [u8; PAGE]) -> bool {
        let Some(checksum) = page.checksum else { return false };
        let memory = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(memory) = &*memory else { return false };
        pread(memory, &mut to[..], page.page as u64) == Ok(PAGE) && PageChecksum::of(to) == checksum
    }
}

impl Pager {
    /// Lets this process no longer read the memory of the process from which it was forked. A program that gives up rights must
    /// not keep a way to what its parent may read.
    pub fn close_parent_memory(&self) {
        self.inner.parent_memory.close();
    }
}

impl Inner {
    /// Installs a page that a fault waits for, if the parent has it. Returns whether it does.
    pub(super) fn install_from_parent(&self, space: &AddressSpace, page: &IncomingPage) -> bool {
        let mut bytes = [0; PAGE];
        let copied = self.parent_memory.copy(page, &mut bytes);
        if copied {
            add(&self.counters.copied_from_parent, 1);
            if let Some(window) = self.finish_fault_read(space, *page, Block::around(page.page, 1), &bytes) {
                self.queue_window_and_stage(space, window);
            }
        }
        copied
    }

    /// Installs those pages that the parent has, and returns the others. The trigger page goes to the victim buffer.
    pub(super) fn ahead_from_parent(
        &self,
        space: &AddressSpace,
        mut pages: Vec<IncomingPage>,
        trigger: Option<TriggerPage>,
    ) -> Vec<IncomingPage> {
        let mut bytes = [0; PAGE];
        pages.retain(|page| {
            let copied = self.parent_memory.copy(page, &mut bytes);
            if copied {
                add(&self.counters.copied_from_parent, 1);
                self.install_readahead(space, std::slice::from_ref(page), &bytes, trigger);
            }
            !copied
        });
        pages
    }
}
