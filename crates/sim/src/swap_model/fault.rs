//! Accesses and page faults of the simulated pager.

use deepram_core::paging::huge_pages::{CHUNK_BYTES, CHUNK_PAGES, is_filled};
use deepram_core::paging::readahead::fresh_pages;
use deepram_core::paging::{Block, FaultAction, PAGE, Resident};

use super::reads::{Cause, Incoming};
use super::{PAGE_BYTES, PageState, SwapModel, SwapModelEvent, Trigger};
use crate::host::{Context, Slot};
use crate::memory_accesses::MemoryAccess;

impl SwapModel {
    /// Makes the access to the current page of a slot's request.
    pub(super) fn access(&mut self, slot: Slot, context: &mut Context<SwapModelEvent>) {
        let MemoryAccess { write, at, .. } = self.accesses.get(slot);
        let page = (at / PAGE_BYTES) as u32;
        self.note_use_of_readahead(page);
        let info = &mut self.pages[page as usize];
        match (info.state.resident(), &mut info.changed) {
            (Some(Resident::Clean(_)), None) if write => {}
            (Some(_), changed) => {
                changed.iter_mut().for_each(|changed| *changed |= write);
                return Self::complete_at(context, slot, self.options.hit.0);
            }
            (None, _) => {}
        }
        self.note_chunk(page);
        self.fault(page, write, slot, context);
    }

    fn fault(&mut self, page: u32, write: bool, slot: Slot, context: &mut Context<SwapModelEvent>) {
        if self.fault_on_staged(page, write, slot, context) {
            return;
        }
        let clean = matches!(self.pages[page as usize].state, PageState::Clean(_));
        if write && clean && self.first_store_to_huge_page(page) {
            self.counts.faults_write_protected += 1;
            return Self::complete_at(context, slot, self.options.protect.0 + self.options.hit.0);
        }
        let (below, above) = match self.pages[page as usize].state {
            PageState::Fresh => self.fresh_neighbours(page),
            _ => (0, 0),
        };
        let hit = self.options.hit.0;
        match self.pages[page as usize].state.fault(write) {
            FaultAction::InstallZeros => {
                self.counts.faults_fresh += 1;
                let (fresh, all) = (below + 1 + above, page - below as u32..=page + above as u32);
                let neighbours = all.clone().filter(|other| *other != page);
                neighbours.for_each(|page| self.pages[page as usize].state.claim_fresh());
                let stall = self.reserve(fresh, context);
                all.for_each(|page| self.install(page, PageState::Dirty, context));
                let software = self.options.fresh.0 + (fresh as u64 - 1) * self.options.install.0;
                Self::complete_at(context, slot, stall + software + hit);
                let chunk = self.chunk(page);
                let behind = page as usize + above + 1;
                let end = page as usize + CHUNK_PAGES - self.address(page) % CHUNK_BYTES / PAGE;
                if is_filled(self.states(behind..end.min(self.pages.len()))) {
                    self.stage_fresh(chunk, chunk + 1, context.now());
                }
            }
            FaultAction::Read(from) => {
                let incoming = Incoming { page, slot: from, store: write };
                self.counts.faults_major += 1;
                self.waiting.push((page, slot));
                let stall = self.reserve(1, context);
                let (block, neighbours) = self.fault_around(page, context);
                self.read_slots.acquire(1, false);
                // Half of the software time passes before the device's, half after it; only their sum is measured.
                let from = context.now().0 + stall + self.options.fault.0 / 2;
                self.start_read(vec![incoming], Cause::Fault(block), from, context);
                let probe = self.choose_probe(&neighbours);
                self.enqueue(&neighbours, probe, from);
                self.take_requests(context);
            }
            FaultAction::Return(frame) => {
                self.counts.victim_buffer_hits += 1;
                let neighbours = self.return_from_buffer(page, frame, write, context);
                let software = self.options.second_chance.0 + neighbours * self.options.install.0;
                Self::complete_at(context, slot, software + hit);
            }
            FaultAction::FirstStore(from) => {
                self.counts.faults_write_protected += 1;
                self.slots.free(from);
                Self::complete_at(context, slot, self.options.protect.0 + hit);
            }
            FaultAction::Retry { .. } => Self::complete_at(context, slot, hit),
            FaultAction::Wait => self.waiting.push((page, slot)),
        }
    }

    /// Counts the first use of a page that was read ahead, unless the page has left DRAM again.
    fn note_use_of_readahead(&mut self, page: u32) {
        let info = &mut self.pages[page as usize];
        let used = std::mem::take(&mut info.unused) && !matches!(info.state, PageState::Stored(_));
        self.counts.readahead_pages_used += u64::from(used);
    }

    /// The fresh pages of the chunk that come with a missed fresh page: how many below it, and how many above it.
    fn fresh_neighbours(&self, page: u32) -> (usize, usize) {
        let within = self.address(page) % CHUNK_BYTES / PAGE;
        fresh_pages(|distance| {
            let place = within.checked_add_signed(distance)?;
            let page = (page as usize).checked_add_signed(distance)?;
            let page = self.pages.get(page).filter(|_| place < CHUNK_PAGES)?;
            Some(page.state == PageState::Fresh)
        })
    }

    /// Gives a page a second chance, and those of its neighbours that come back with it. Returns their number.
    fn return_from_buffer(
        &mut self,
        page: u32,
        frame: u32,
        write: bool,
        context: &mut Context<SwapModelEvent>,
    ) -> u64 {
        let trigger = self.pages[page as usize].trigger.take();
        let info = &mut self.pages[page as usize];
        info.heat.warm();
        let address = self.address(page);
        if trigger == Some(Trigger::ReturnProbe) {
            self.return_around.probe_ended(address, true);
        }
        let neighbours = self.claim_buffered_neighbours(page);
        for (page, frame) in &neighbours {
            self.install_from_buffer(*page, *frame, false, context);
        }
        self.install_from_buffer(page, frame, write, context);
        match trigger {
            None | Some(Trigger::ReturnProbe) => {}
            Some(Trigger::Probe) => {
                self.counts.readahead_windows_used += 1;
                self.fault_around.probe_ended(address, true);
            }
            Some(Trigger::Window) => {
                self.counts.readahead_windows_used += 1;
                if let Some(window) = self.streams.record_use(address) {
                    self.queue_window(window, context.now());
                    self.take_requests(context);
                }
            }
        }
        neighbours.len() as u64
    }

    /// Claims the pages that come back from the victim buffer with `page`. Returns them with their frames.
    fn claim_buffered_neighbours(&mut self, page: u32) -> Vec<(u32, u32)> {
        if !self.options.fault_around {
            return Vec::new();
        }
        let (address, first) = (self.address(page), self.options.address.0 as usize);
        let is_room = self.room();
        let buffered = |address: &usize| {
            let info = address.checked_sub(first).and_then(|offset| self.pages.get(offset / PAGE));
            info.is_some_and(|of| matches!(of.state, PageState::InVictimBuffer(_)) && of.trigger.is_none())
        };
        let (pages, probe) = self.return_around.record_return(address, is_room, buffered);
        if let Some(probe) = probe.and_then(|probe| self.page_at(probe)) {
            let info = &mut self.pages[probe as usize];
            info.trigger = Some(Trigger::ReturnProbe);
            if let PageState::InVictimBuffer(frame) = info.state {
                self.buffer.await_use(frame);
            }
        }
        let claim = |address| {
            let page = self.page_at(address)?;
            Some((page, self.pages[page as usize].state.claim_buffered()?))
        };
        pages.into_iter().filter_map(claim).collect()
    }

    /// Installs a page from the victim buffer.
    fn install_from_buffer(
        &mut self,
        page: u32,
        frame: u32,
        store: bool,
        context: &mut Context<SwapModelEvent>,
    ) {
        let slot = self.buffer.slot(frame);
        self.charged += 1;
        let returned = self.buffer.returned(frame, slot, store);
        self.charged -= usize::from(returned.frame_freed);
        if self.excess(0) > 0 {
            self.trim_buffer();
        }
        if self.excess(self.watermarks.headroom()) > 0 {
            self.wake_evictors(context);
        }
        returned.obsolete.into_iter().for_each(|slot| self.slots.free(slot));
        self.install(page, returned.state(), context);
    }

    /// The block of a missed page, and the other pages of the block that are in the swap file and are read with it.
    fn fault_around(&mut self, page: u32, context: &mut Context<SwapModelEvent>) -> (Block, Vec<Incoming>) {
        let address = self.address(page);
        if !self.options.fault_around {
            return (Block::around(address, 1), Vec::new());
        }
        let is_room = self.room();
        let may_come = |pages| is_room(pages) && !self.streams.is_expected(address);
        let block = self.fault_around.record_fault(address, may_come);
        if block.pages == 1 {
            return (block, Vec::new());
        }
        (block, self.claim_stored(block.neighbours(address), context).0)
    }

    fn choose_probe(&mut self, pages: &[Incoming]) -> Option<(u32, Trigger)> {
        let address = self.address(pages.first()?.page);
        let index = self.fault_around.choose_probe(address, pages.len())?;
        Some((pages[index].page, Trigger::Probe))
    }
}
