//! Serves page faults and installs pages: the steps before a read, and the steps after its bytes have arrived.

use std::io;

use deepram_core::paging::huge_pages::is_filled;
use deepram_core::paging::readahead::fresh_pages;
use deepram_core::paging::{Block, FaultAction, Window};

use super::checksum::PageChecksum;
use super::fault_recorder::FaultKind;
use super::page_table::{CHUNK_BYTES, PageInfo, PageState, PageTable, SwapSlot};
use super::service::{BATCH, Trigger, TriggerPage};
use super::stats::add;
use super::{AddressSpace, Heuristic, Inner, PAGE};
use deepram_linux::lock::lock;
use deepram_linux::uffd::Fault;

/// Attempts at a read that fails, before the process is ended.
const TRIES: usize = 3;

/// Contents of fresh pages. They are in the program's file, and so in no budget.
static ZEROS: [u8; BATCH * PAGE] = [0; BATCH * PAGE];

/// A page on its way into memory: its state is `Incoming`, and it is charged.
#[derive(Debug, Clone, Copy)]
pub(super) struct IncomingPage {
    pub(super) page: usize,
    /// Slot of the swap file from which it is read.
    pub(super) slot: SwapSlot,
    /// Whether a store waits for it: it is dirty as it arrives, and its slot is freed.
    pub(super) store: bool,
    /// Checksum of the slot, if known.
    pub(super) checksum: Option<PageChecksum>,
}

/// Result of serving a fault.
#[derive(Debug, Default)]
pub(super) struct FaultOutcome {
    /// The page that has to be read first; `None` if no read is needed.
    pub(super) read: Option<IncomingPage>,
    /// The window to read ahead.
    pub(super) window: Option<Window>,
    /// Whether the thread still waits: the page is on its way already, or is leaving.
    pub(super) waits: bool,
}

impl Inner {
    /// Queues a window for reading.
    pub(super) fn queue_window(&self, window: Window) {
        add(&self.counters.readahead_windows, 1);
        self.request_window(window);
    }

    /// Queues a window for reading, and has the memory behind a long window staged.
    pub(super) fn queue_window_and_stage(&self, space: &AddressSpace, window: Window) {
        self.queue_window(window);
        self.stage_behind(space, window);
    }

    /// Whether the page of a fault is only in the swap file.
    pub(super) fn is_stored(&self, space: &AddressSpace, fault: Fault) -> bool {
        space.page_table.contains(fault.address)
            && space.page_table.chunk(fault.address).is_some_and(|(chunk, at)| {
                chunk.staged.is_none() && matches!(chunk[at].state, PageState::Stored(_))
            })
    }

    /// Serves a fault as far as possible without a read.
    pub(super) fn serve_fault(&self, space: &AddressSpace, fault: Fault) -> FaultOutcome {
        let (page, write) = (fault.address / PAGE * PAGE, fault.write);
        let nothing = FaultOutcome::default();
        if !space.page_table.contains(page) {
            // The memory was unmapped meanwhile: the thread gets its signal.
            space.wake(page, PAGE);
            return nothing;
        }
        let Some((mut chunk, at)) = space.page_table.chunk(page) else { return nothing };
        let first = page - at * PAGE;
        if chunk[at].state == PageState::Fresh && self.wants_huge_on_touch(space, &chunk, first) {
            drop(chunk);
            self.stage_first(space, first);
            let Some((again, _)) = space.page_table.chunk(page) else { return nothing };
            chunk = again;
        }
        if chunk.staged.is_some() {
            let kind = if chunk[at].state == PageState::Fresh { FaultKind::Fresh } else { FaultKind::Major };
            self.count_fault(page, kind, write);
            self.fault_staged(space, chunk, first, write);
            return FaultOutcome { waits: true, ..nothing };
        }
        if write && chunk.huge && matches!(chunk[at].state, PageState::Clean(_)) {
            let is_handled = self.first_store_to_huge_page(space, &mut chunk, at, first);
            if is_handled {
                drop(chunk);
                self.count_fault(page, FaultKind::WriteProtected, write);
                return nothing;
            }
        }
        let (below, above) = match chunk[at].state {
            PageState::Fresh if !self.options.record_accesses => {
                fresh_neighbours(&chunk, at, page, &space.page_table)
            }
            _ => (0, 0),
        };
        let info = &mut chunk[at];
        match info.state.fault(write) {
            FaultAction::InstallZeros => {
                chunk[at - below..at].iter_mut().for_each(|page| page.state.claim_fresh());
                chunk[at + 1..=at + above].iter_mut().for_each(|page| page.state.claim_fresh());
                // The pages behind may have been touched before: an allocator stores to the end of what it maps.
                let fills = is_filled(chunk[at + above + 1..].iter().map(|page| page.state));
                drop(chunk);
                self.count_fault(page, FaultKind::Fresh, write);
                self.reserve_frames(space, below + 1 + above);
                // Apart, so that the missed page comes even if the mapping below it is gone.
                self.install_zeros(space, page - below * PAGE, below);
                self.install_zeros(space, page, 1 + above);
                if fills {
                    self.stage_fresh(space, first, first + CHUNK_BYTES);
                }
                nothing
            }
            FaultAction::Read(slot) => {
                let incoming = IncomingPage { page, slot, store: write, checksum: info.checksum };
                drop(chunk);
                self.count_fault(page, FaultKind::Major, write);
                self.reserve_frames(space, 1);
                FaultOutcome { read: Some(incoming), ..nothing }
            }
            FaultAction::Return(number) => {
                let trigger = info.trigger.take();
                info.heat.warm();
                if trigger == Some(Trigger::ReturnProbe) {
                    lock(&self.return_around).probe_ended(page, true);
                }
                let neighbours = self.claim_buffered_neighbours(&mut chunk, first, page);
                drop(chunk);
                self.count_fault(page, FaultKind::SecondChance, write);
                for (page, number) in neighbours {
                    self.return_from_victim_buffer(space, page, number, false);
                }
                self.return_from_victim_buffer(space, page, number, write);
                let Some(trigger) = trigger.filter(|of| *of != Trigger::ReturnProbe) else { return nothing };
                add(&self.counters.readahead_windows_used, 1);
                if trigger == Trigger::Probe {
                    lock(&self.fault_around).probe_ended(page, true);
                    return nothing;
                }
                FaultOutcome { window: lock(&self.streams).record_use(page), ..nothing }
            }
            FaultAction::FirstStore(slot) => {
                space.unprotect(page, PAGE);
                space.swap_file.free(slot);
                self.count_fault(page, FaultKind::WriteProtected, write);
                nothing
            }
            FaultAction::Retry { unprotect } => {
                if unprotect {
                    space.unprotect(page, PAGE)
                } else {
                    space.wake(page, PAGE)
                }
                nothing
            }
            FaultAction::Wait => {
                info.fault_waiting = true;
                FaultOutcome { waits: true, ..nothing }
            }
        }
    }

    /// Installs fresh pages.
    fn install_zeros(&self, space: &AddressSpace, first: usize, count: usize) {
        if count > 0 {
            let installed = space.install(first, &ZEROS[..count * PAGE], false);
            let dirty = |_| (PageState::Dirty, None);
            self.finish_install(space, first, (installed, count), dirty, |_| PageState::Fresh);
        }
    }

    /// Installs a page that a fault waits for, read with the other pages of `block`, and queues the window to read ahead.
    pub(super) fn finish_fault_read(
        &self,
        space: &AddressSpace,
        incoming: IncomingPage,
        block: Block,
        bytes: &[u8],
    ) {
        self.install_read(space, &[incoming], bytes);
        if !self.options.readahead {
            return;
        }
        let window = lock(&self.streams).record_block_miss(incoming.page, (block.first, block.last()));
        if let Some(window) = window {
            self.queue_window_and_stage(space, window);
        }
    }

    /// Returns the block of a missed page, and the other pages of the block that are in the swap file; their state is
    /// `Incoming` from now on.
    pub(super) fn fault_around_pages(&self, space: &AddressSpace, page: usize) -> (Block, Vec<IncomingPage>) {
        if !self.options.readahead || self.options.off.contains(Heuristic::FaultAround) {
            return (Block::around(page, 1), Vec::new());
        }
        let may_come = |pages| self.frames.excess(pages) == 0 && !lock(&self.streams).is_expected(page);
        let block = lock(&self.fault_around).record_fault(page, may_come);
        if block.pages == 1 {
            return (block, Vec::new());
        }
        (block, self.claim_stored(space, block.neighbours(page)))
    }

    /// Claims the pages in the victim buffer that come back with `page` of the chunk at `first`, all but the probe among
    /// them: their state is `Incoming` from now on. Returns them with their frames.
    fn claim_buffered_neighbours(
        &self,
        chunk: &mut [PageInfo],
        first: usize,
        page: usize,
    ) -> Vec<(usize, u32)> {
        if !self.options.readahead || self.options.off.contains(Heuristic::FaultAround) {
            return Vec::new();
        }
        let at = |page: usize| (page - first) / PAGE;
        let is_room = |pages| self.frames.excess(pages) == 0;
        let (pages, probe) = lock(&self.return_around).record_return(page, is_room, |page| {
            let info = &chunk[at(*page)];
            matches!(info.state, PageState::InVictimBuffer(_)) && info.trigger.is_none()
        });
        if let Some(probe) = probe {
            let info = &mut chunk[at(probe)];
            info.trigger = Some(Trigger::ReturnProbe);
            if let PageState::InVictimBuffer(number) = info.state {
                self.victim_buffer().await_use(number);
            }
        }
        let claim = |page: usize| chunk[at(page)].state.claim_buffered().map(|number| (page, number));
        pages.into_iter().filter_map(claim).collect()
    }

    /// Chooses the probe among these neighbours of a missed page.
    pub(super) fn choose_probe(&self, pages: &[IncomingPage]) -> Option<TriggerPage> {
        // Most misses have no neighbours to read: they spare the lock.
        if pages.is_empty() {
            return None;
        }
        let index = lock(&self.fault_around).choose_probe(pages[0].page, pages.len())?;
        Some((pages[index].page, Trigger::Probe))
    }

    /// Claims those of these pages that are only in the swap file: their state is `Incoming` from now on. Sorted by
    /// address.
    pub(super) fn claim_stored(
        &self,
        space: &AddressSpace,
        pages: impl Iterator<Item = usize>,
    ) -> Vec<IncomingPage> {
        let mut all = Vec::with_capacity(BATCH);
        for page in pages {
            if !space.page_table.contains(page) {
                continue;
            }
            let Some((mut chunk, at)) = space.page_table.chunk(page) else { continue };
            if chunk.staged.is_some() {
                // The chunk is coming through its stage; a pinned page must come whether it is used or not.
                if chunk[at].pinned {
                    self.fault_staged(space, chunk, page - at * PAGE, false);
                }
                continue;
            }
            if let Some(slot) = chunk[at].state.claim() {
                all.push(IncomingPage { page, slot, store: false, checksum: chunk[at].checksum });
            }
        }
        add(&self.counters.readahead_pages, all.len() as u64);
        if !all.is_empty() {
            self.reserve_frames(space, all.len());
        }
        all.sort_unstable_by_key(|incoming| incoming.page);
        all
    }

    /// Installs pages that were read ahead of use; neighbours are installed together. The trigger page goes to the
    /// victim buffer. Returns whether a thread waited for one of the pages.
    pub(super) fn install_readahead(
        &self,
        space: &AddressSpace,
        pages: &[IncomingPage],
        bytes: &[u8],
        trigger_page: Option<TriggerPage>,
    ) -> bool {
        let trigger = |page| trigger_page.filter(|of| self.is_trigger(page, *of)).map(|(_, trigger)| trigger);
        let together = |a: &IncomingPage, b: &IncomingPage| {
            let same_chunk = b.page < PageTable::chunk_end(a.page);
            a.page + PAGE == b.page && same_chunk && trigger(a.page).is_none() && trigger(b.page).is_none()
        };
        let mut rest = bytes;
        let mut woke = false;
        for part in pages.chunk_by(together) {
            let here;
            (here, rest) = rest.split_at(part.len() * PAGE);
            match trigger(part[0].page) {
                Some(trigger) if self.place_trigger(space, part[0], trigger, here) => {
                    if trigger == Trigger::Probe {
                        add(&self.counters.readahead_windows, 1);
                    }
                }
                _ => woke |= self.install_read(space, part, here),
            }
        }
        woke
    }

    /// Installs neighbouring pages that have been read. Returns whether a thread has started to wait for one of them
    /// since it was claimed.
    fn install_read(&self, space: &AddressSpace, pages: &[IncomingPage], bytes: &[u8]) -> bool {
        let IncomingPage { page, store, .. } = pages[0];
        let protect = !store && self.protects_clean_pages();
        let checksums = if store || protect { Vec::new() } else { PageChecksum::of_pages(bytes) };
        let installed = space.install(page, bytes, protect);
        if store {
            pages[..installed].iter().for_each(|incoming| space.swap_file.free(incoming.slot));
        }
        let new_state = |n: usize| (PageState::read(pages[n].slot, store), checksums.get(n).copied());
        self.finish_install(space, page, (installed, pages.len()), new_state, |n| {
            PageState::Stored(pages[n].slot)
        })
    }

    /// Cancels reads ahead of use that failed: the pages stay in the swap file.
    pub(super) fn cancel_reads(&self, space: &AddressSpace, pages: &[IncomingPage]) {
        for incoming in pages {
            let stored = |_| PageState::Stored(incoming.slot);
            self.finish_install(space, incoming.page, (0, 1), |n| (stored(n), None), stored);
        }
    }

    /// Gives a page a second chance: installs it from the victim buffer. Its state is `Incoming`, so this thread owns
    /// its frame.
    fn return_from_victim_buffer(&self, space: &AddressSpace, page: usize, number: u32, store: bool) {
        let (bytes, slot) = {
            let buffer = self.victim_buffer();
            (buffer.bytes(number), buffer.slot(number))
        };
        // SAFETY: a frame of the victim buffer, which is given to no other page before `remove` below; a thread that
        // writes it to the swap file only reads it as well.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, PAGE) };
        // The page is not in the swap file yet: it is dirty, whatever becomes of its write.
        let clean = !store && slot.is_some();
        let protect = clean && self.protects_clean_pages();
        let checksum = (clean && !protect).then(|| PageChecksum::of(bytes));
        self.frames.charge(1);
        self.frames.change_unpopulated(1, 0);
        #[cfg(test)]
        self.test_delay();
        let installed = space.install(page, bytes, protect);
        let mut buffer = self.victim_buffer();
        let returned = buffer.returned(number, slot, store);
        self.frames.release(usize::from(returned.frame_freed));
        drop(buffer);
        // The page has memory of its own now, and its frame may still be backed.
        if self.frames.excess(0) > 0 {
            self.trim_victim_buffer();
        }
        if self.frames.excess(self.headroom()) > 0 {
            self.wake_evictors();
        }
        returned.obsolete.into_iter().for_each(|slot| space.swap_file.free(slot));
        // A page that cannot be installed was unmapped without the pager seeing it: its bytes are gone with it.
        self.finish_install(
            space,
            page,
            (installed, 1),
            |_| (returned.state(), checksum),
            |_| PageState::Fresh,
        );
    }

    /// Completes the installation of `count` neighbouring pages of a chunk, whose frames are charged: the first `installed_pages`
    /// have memory and get their new state, the others their old state. Returns whether a thread faulted on one of them meanwhile.
    fn finish_install(
        &self,
        space: &AddressSpace,
        page: usize,
        (installed_pages, count): (usize, usize),
        new_state: impl Fn(usize) -> (PageState, Option<PageChecksum>),
        old_state: impl Fn(usize) -> PageState,
    ) -> bool {
        let mut fault_waited = false;
        self.frames.change_unpopulated(0, count);
        if let Some((mut chunk, at)) = space.page_table.chunk(page) {
            let mut policy = lock(&self.policy);
            for (n, info) in chunk[at..at + count].iter_mut().enumerate() {
                (info.state, info.checksum) =
                    if n < installed_pages { new_state(n) } else { (old_state(n), None) };
                if n < installed_pages {
                    let key = (page / PAGE + n) as u64;
                    policy.insert(key);
                    (0..info.heat.touches()).for_each(|_| policy.touch(key));
                }
                if std::mem::take(&mut info.fault_waiting) {
                    // The fault came meanwhile, and may need more than was done.
                    space.wake(page + n * PAGE, PAGE);
                    fault_waited = true;
                }
            }
        }
        if installed_pages < count {
            space.wake(page + installed_pages * PAGE, (count - installed_pages) * PAGE);
            self.frames.release(count - installed_pages);
        }
        fault_waited
    }

    /// Retries a read that was incomplete, synchronously. Returns the error of the last attempt.
    pub(super) fn retry_read(&self, space: &AddressSpace, slot: SwapSlot, to: &mut [u8]) -> io::Result<()> {
        let mut result = Ok(());
        for _ in 0..TRIES {
            add(&self.counters.io_errors, 1);
            result = space.swap_file.read(slot, to);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Charges `count` frames of pages on their way into memory, after evicting pages if too few are free.
    fn reserve_frames(&self, space: &AddressSpace, count: usize) {
        if !self.frames.try_charge(count) {
            add(&self.counters.eviction_stalls, 1);
            self.evict_synchronously(space, count);
            self.frames.wait_for_members(count);
            self.frames.charge(count);
        }
        self.frames.change_unpopulated(count, 0);
        if self.frames.excess(self.headroom()) > 0 {
            self.wake_evictors();
        }
    }

    /// Whether the page's first use still has to be seen. The trigger of a window may have been used already.
    fn is_trigger(&self, page: usize, (trigger_page, trigger): TriggerPage) -> bool {
        page == trigger_page && (trigger == Trigger::Probe || lock(&self.streams).is_trigger(page))
    }

    /// Puts a trigger page into the victim buffer. Returns `false` if the buffer is full.
    fn place_trigger(
        &self,
        space: &AddressSpace,
        incoming: IncomingPage,
        trigger: Trigger,
        bytes: &[u8],
    ) -> bool {
        let IncomingPage { page, slot, .. } = incoming;
        let Some((mut chunk, at)) = space.page_table.chunk(page) else { return false };
        let mut buffer = self.victim_buffer();
        let Some(number) = buffer.insert(page, Some(slot)) else {
            return false;
        };
        buffer.await_use(number);
        // SAFETY: the frame was free; no other thread knows of it before the state below names it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.bytes(number), PAGE) };
        drop(buffer);
        self.frames.change_unpopulated(0, 1);
        let info = &mut chunk[at];
        info.state = PageState::InVictimBuffer(number);
        info.trigger = Some(trigger);
        if std::mem::take(&mut info.fault_waiting) {
            space.wake(page, PAGE);
        }
        true
    }

    /// Brings the stored pages of a range into memory in the background.
    pub(super) fn will_need(&self, start: usize, len: usize) {
        let stride = PAGE.cast_signed();
        let spans = self.read().page_table.within(start / PAGE * PAGE, start + len);
        for (from, to) in spans {
            let count = (to - from).div_ceil(PAGE);
            self.queue_window(Window { first: from, stride, count });
        }
    }
}

/// The fresh pages of the chunk that come with a missed fresh page: how many below it, and how many above it.
fn fresh_neighbours(chunk: &[PageInfo], at: usize, page: usize, page_table: &PageTable) -> (usize, usize) {
    let first = page - at * PAGE;
    let spans = page_table.within(first, first + CHUNK_BYTES);
    let span = spans.into_iter().find(|(start, end)| (*start..*end).contains(&page)).unwrap_or((page, page));
    fresh_pages(|distance| {
        let address = page.wrapping_add_signed(distance * PAGE.cast_signed());
        let managed = span.0 <= address && address < span.1;
        managed.then(|| chunk[(address - first) / PAGE].state == PageState::Fresh)
    })
}
