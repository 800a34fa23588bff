//! Forks: the child sees memory as it was at the fork, and pages it by itself from then on.
//!
//! The kernel gives the child the frames, but neither the registration with the userfaultfd nor any thread. So the
//! child builds a pager of its own from the parent's page states. Pages in the swap file stay readable in the parent's
//! file; the child writes to a file of its own. The parent retains the slots that the child may read until the child
//! has ended or has executed another program, which closes a pipe.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, RwLockWriteGuard};

use deepram_core::paging::ForkPolicy;
use deepram_core::paging::victim_buffer::Leaving;

use super::page_table::{PageInfo, PageState};
use super::parent_memory::ParentMemory;
use super::service::PinningSuspended;
use super::shared_memory::{MappingTable, SharedMemory};
use super::{AddressSpace, Inner, PAGE, Pager, PagerParts, Spans, VictimBuffer, contiguous_ranges};
use deepram_linux::descriptors::{OpenGuard, OwnDescriptor};
use deepram_linux::lock::lock;
use deepram_linux::uffd::{self, WatchMode};

/// Holds all locks of the pager, so that no page is in transit, from just before a fork to just after it. Either
/// [`ForkGuard::parent`] or [`ForkGuard::child`] ends it; if the fork failed, the caller drops it.
pub struct ForkGuard<'a> {
    inner: &'a Arc<Inner>,
    /// The child must not stay pinned to the processor of the forking thread.
    without_pinning: Option<PinningSuspended<'a>>,
    space: RwLockWriteGuard<'a, AddressSpace>,
    shared_table: MutexGuard<'a, MappingTable>,
    /// An evictor trims the victim buffer without the address-space lock.
    victim_buffer: MutexGuard<'a, VictimBuffer>,
    /// Frames that the stages hold, which the child does not have.
    staged: usize,
    reader: OwnDescriptor,
    /// Open as long as a process may read the parent's swap file: closed by `exec`, and when the process ends.
    writer: OwnDescriptor,
}

impl Pager {
    /// Takes all locks of the pager for a fork.
    ///
    /// # Errors
    /// No descriptors are left for a pipe.
    pub fn prepare_fork(&self) -> io::Result<ForkGuard<'_>> {
        let opening = OpenGuard::acquire();
        let (reader, writer) = io::pipe()?;
        let [reader, writer] =
            [OwnedFd::from(reader), writer.into()].map(|fd| OwnDescriptor::from(opening.move_high(fd)));
        drop(opening);
        let without_pinning = self.inner.handler_group.get().map(|group| group.suspend_pinning());
        let space = self.inner.write();
        self.inner.make_fork_room(&space);
        self.inner.split_dirty_huge_pages(&space);
        let shared_table = self.inner.shared_memory.lock();
        let victim_buffer = lock(&self.inner.victim_buffer);
        let staged = self.inner.stages.frames();
        Ok(ForkGuard {
            inner: &self.inner,
            without_pinning,
            space,
            shared_table,
            victim_buffer,
            staged,
            reader,
            writer,
        })
    }
}

impl Inner {
    /// Evicts for what a fork brings before it is charged: both processes copy at most the pages that this one has in memory.
    fn make_fork_room(&self, space: &AddressSpace) {
        let room = self.frames.fork_room().min(self.frames.paged());
        self.evict_synchronously(space, room);
    }
}

impl ForkGuard<'_> {
    /// Ends the fork in the parent.
    pub fn parent(self) {
        self.space.swap_file.retain_for_child(self.reader);
        self.inner.shares_with_fork.store(true, Relaxed);
        let empty = self.inner.options.policy.build(self.inner.frames.limit());
        lock(&self.inner.policy).fork(empty);
    }

    /// Ends the fork in the child and returns its own pager. The parent's pager, which the child has inherited, must be
    /// leaked (`std::mem::forget`): its threads do not exist in the child. `not_in_child` is not mapped in the child
    /// (`MADV_DONTFORK`); `zero_in_child` reads as zeros there (`MADV_WIPEONFORK`).
    ///
    /// # Errors
    /// The kernel refuses another userfaultfd, or no other file can be created in the directory.
    pub fn child(mut self, not_in_child: &Spans, zero_in_child: &Spans) -> io::Result<Pager> {
        // The child is about to start threads of its own.
        self.without_pinning = None;
        let old = self.inner;
        let space = &mut *self.space;
        let swap_file = space.swap_file.inherit(&old.options.directory)?;
        let page_table = std::mem::take(&mut space.page_table);
        let advice = std::mem::take(&mut space.advice);
        let uffd = space.uffd.for_child(WatchMode::All)?;
        space.swap_file.forget_children();
        let memory = old.proc_files.memory();
        let memory = memory.and_then(|memory| OpenGuard::acquire().duplicate(memory.as_fd()).ok());
        let parent_memory = memory.map(ParentMemory::new);
        for fd in old.thread_descriptors(space) {
            // SAFETY: the descriptor belongs to the parent's threads, which do not exist here; nothing else in this
            // process uses it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let mapped = page_table.all().flat_map(|(start, end)| not_in_child.outside(start, end));
        for (start, end) in mapped {
            uffd.register(start, end - start)?;
        }
        // No thread holds the policy's lock: it would hold the address-space lock as well.
        let mut policy =
            std::mem::replace(&mut *lock(&old.policy), ForkPolicy::new(old.options.policy.build(1)));
        let mut victim_buffer = std::mem::replace(&mut *self.victim_buffer, VictimBuffer::new(1)?);
        Inner::forget_huge_pages(&page_table, &mut policy);
        let space = AddressSpace { page_table, uffd, swap_file, advice, parent_memory };
        let left =
            leave_clean_to_parent(&space, [not_in_child, zero_in_child], &mut policy, &mut victim_buffer)?;
        policy.fork(old.options.policy.build(old.frames.limit()));
        let frames = old.frames.inherited(left + SharedMemory::counted(&self.shared_table) + self.staged);
        let inner = Arc::new(Inner::new(PagerParts {
            space,
            policy,
            victim_buffer,
            shared_memory: SharedMemory::inherited(self.shared_table, not_in_child),
            frames,
            dram: old.dram.load(Relaxed),
            forked: true,
            direct_io: old.direct_io.load(Relaxed),
            alive_pipes: old.alive_pipes.iter().copied().chain([self.writer.as_raw_fd()]).collect(),
            options: old.options.clone(),
        })?);
        {
            let mut space = inner.write();
            for (start, end) in not_in_child.iter().chain(zero_in_child.iter()) {
                inner.discard_contents(&mut space, start, end, true);
            }
            not_in_child.iter().for_each(|(start, end)| space.page_table.remove(start, end));
        }
        let pager = Pager { inner, threads: Mutex::new(None) };
        *lock(&pager.threads) = Some(pager.inner.start()?);
        pager.inner.start_sweeping(&mut pager.inner.shared_memory.lock())?;
        // Stays open as long as this process runs this program: it reads the parent's swap file.
        std::mem::forget(self.writer);
        drop(self.reader);
        std::mem::forget(self.space);
        Ok(pager)
    }
}

/// Drops from the child what is also in the parent's swap file: pages that both have in memory would be charged twice.
/// Clean pages that differ from their slots are dirty in the child. The contents of `outside` are not the child's. Returns
/// the number of frames that the child gives up.
fn leave_clean_to_parent(
    space: &AddressSpace,
    outside: [&Spans; 2],
    policy: &mut ForkPolicy<u64>,
    victim_buffer: &mut VictimBuffer,
) -> io::Result<usize> {
    let page_table = &space.page_table;
    let inside = page_table.all().flat_map(|(start, end)| outside[0].outside(start, end));
    let inside: Vec<_> = inside.flat_map(|(start, end)| outside[1].outside(start, end)).collect();
    let each = |f: &mut dyn FnMut(usize, &mut PageInfo)| {
        inside.iter().for_each(|(start, end)| page_table.each_known(*start, *end, &mut *f));
    };
    let mut unverified = Vec::new();
    each(&mut |address, page| {
        let checksum = page.unverified().filter(|_| !page.unreadable).map(|(_, checksum)| checksum);
        unverified.extend(checksum.map(|checksum| (address, checksum)));
    });
    let unchanged = space.unchanged(&unverified);
    let mut clean = Vec::new();
    each(&mut |address, page| {
        let PageState::Clean(slot) = page.state else { return };
        let is_clean = page.checksum.is_none() || unchanged.binary_search(&address).is_ok();
        page.state = if is_clean { PageState::Stored(slot) } else { PageState::Dirty };
        clean.extend(is_clean.then_some(address));
    });
    clean.iter().for_each(|address| policy.remove((address / PAGE) as u64));
    // SAFETY: managed memory of this process, whose contents are in the swap file.
    unsafe { uffd::discard(&contiguous_ranges(&clean)) }?;
    let mut removed = 0;
    while let Some(Leaving { frame, page }) = victim_buffer.oldest() {
        if let Some((mut chunk, at)) = page_table.chunk(page)
            && chunk[at].state.is_in_frame(frame)
            && let Some(slot) = victim_buffer.leave(frame)
        {
            chunk[at].state = PageState::Stored(slot);
            removed += 1;
        }
    }
    if victim_buffer.used_frames() == 0 {
        // A new buffer: the kernel would otherwise keep copies of the frames for the child when the parent writes to
        // them.
        *victim_buffer = VictimBuffer::new(victim_buffer.free_frames())?;
    }
    Ok(clean.len() + removed)
}
