//! Memory of the process from which this one was forked: a page that is still there as it was is copied instead of read.
//!
//! A forked child leaves clean pages to its parent, and evicts others. Its copy of a page in the swap file has a checksum. If the
//! bytes at the same address of the parent have that checksum, they are the page, whatever has happened to the parent meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;

use deepram_core::paging::Block;

use super::checksum::PageChecksum;
use super::fault::IncomingPage;
use super::service::TriggerPage;
use super::stats::add;
use super::{AddressSpace, Inner, PAGE};

/// The parent's memory.
#[derive(Debug)]
pub(super) struct ParentMemory(File);

impl ParentMemory {
    /// `memory` is the parent's `/proc/self/mem`, which the parent has opened.
    pub(super) fn new(memory: File) -> Self {
        Self(memory)
    }

    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Copies a page if the parent has it in memory, unchanged. The kernel does not wait for pages that are not in memory.
    fn copy(&self, page: &IncomingPage, to: &mut [u8; PAGE]) -> bool {
        let Some(checksum) = page.checksum else { return false };
        self.0.read_exact_at(to, page.page as u64).is_ok() && PageChecksum::of(to) == checksum
    }
}

impl Inner {
    /// Installs a page that a fault waits for, if the parent has it. Returns whether it does.
    pub(super) fn install_from_parent(&self, space: &AddressSpace, page: &IncomingPage) -> bool {
        let mut bytes = [0; PAGE];
        let copied = self.parent_memory.as_ref().is_some_and(|parent| parent.copy(page, &mut bytes));
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
        let Some(parent) = &self.parent_memory else { return pages };
        let mut bytes = [0; PAGE];
        pages.retain(|page| {
            let copied = parent.copy(page, &mut bytes);
            if copied {
                add(&self.counters.copied_from_parent, 1);
                self.install_readahead(space, std::slice::from_ref(page), &bytes, trigger);
            }
            !copied
        });
        pages
    }
}
