//! Reads of the simulated pager: for a fault, with a missed page, and ahead of a stream.

use std::ops::Range;

use deepram_core::paging::{BATCH, Block, Window};
use deepram_core::units::Picos;

use super::{PAGE_BYTES, PageState, SwapModel, SwapModelEvent, Trigger};
use crate::engine::Time;
use crate::host::Context;

/// A page on its way into memory: its state is `Incoming`, and it is charged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming {
    pub(super) page: u32,
    /// Slot of the swap file from which it is read.
    pub(super) slot: u32,
    /// Whether a store waits for it: it is dirty as it arrives, and its slot is freed.
    pub(super) store: bool,
}

/// The page whose first use is to be seen, and why.
type TriggerPage = (u32, Trigger);

/// A part of a window to read ahead.
pub(super) struct ReadRequest {
    window: Window,
    part: Range<usize>,
}

/// Pages at neighbouring slots that wait for a buffer.
pub(super) struct PendingRead {
    pages: Vec<Incoming>,
    trigger: Option<TriggerPage>,
    /// The read does not begin before this time.
    from: Time,
}

/// A read in flight.
pub(super) struct Read {
    pages: Vec<Incoming>,
    cause: Cause,
}

/// Why pages are read.
pub(super) enum Cause {
    /// A fault, with its fault-around block.
    Fault(Block),
    /// Readahead or fault-around.
    Ahead(Option<TriggerPage>),
}

impl SwapModel {
    /// Queues a window for reading, and has the memory behind a long window staged.
    pub(super) fn queue_window(&mut self, window: Window, now: Picos) {
        self.counts.readahead_windows += 1;
        self.requests.extend(window.parts(BATCH).map(|part| ReadRequest { window, part }));
        self.stage_behind(window, now);
    }

    /// Starts reads ahead of use as far as there are buffers.
    pub(super) fn take_requests(&mut self, context: &mut Context<SwapModelEvent>) {
        loop {
            while let Some(next) = self.pending.pop() {
                if !self.read_slots.acquire(next.pages.len(), true) {
                    return self.pending.push(next);
                }
                let from = next.from.max(context.now().0);
                self.start_read(next.pages, Cause::Ahead(next.trigger), from, context);
            }
            let Some(ReadRequest { window, part }) = self.requests.pop_front() else { return };
            let (pages, stall) = self.claim_stored(part.map(|n| window.page(n)), context);
            let trigger = self.page_at(window.first).map(|page| (page, Trigger::Window));
            self.enqueue(&pages, trigger, context.now().0 + stall);
        }
    }

    /// Adds pages to those that are read as buffers become free; neighbours in the swap file are read together.
    pub(super) fn enqueue(&mut self, pages: &[Incoming], trigger: Option<TriggerPage>, from: Time) {
        let most = self.read_slots.run_pages();
        let runs = pages.chunk_by(|a, b| a.slot + 1 == b.slot).rev().flat_map(|run| run.chunks(most).rev());
        self.pending.extend(runs.map(|run| PendingRead { pages: run.to_vec(), trigger, from }));
    }

    /// Claims those of the pages at these addresses that are only in the swap file. Returns them, sorted by address, and
    /// the time that it took to free frames for them.
    pub(super) fn claim_stored(
        &mut self,
        addresses: impl Iterator<Item = usize>,
        context: &mut Context<SwapModelEvent>,
    ) -> (Vec<Incoming>, Time) {
        let mut all = Vec::new();
        for page in addresses.filter_map(|address| self.page_at(address)).collect::<Vec<_>>() {
            // A staged chunk is on its way.
            if self.staging.is_staged(self.chunk(page)) {
                continue;
            }
            let info = &mut self.pages[page as usize];
            if let Some(slot) = info.state.claim() {
                info.unused = true;
                all.push(Incoming { page, slot, store: false });
            }
        }
        self.counts.readahead_pages += all.len() as u64;
        let stall = if all.is_empty() { 0 } else { self.reserve(all.len(), context) };
        all.sort_unstable_by_key(|incoming| incoming.page);
        (all, stall)
    }

    /// Starts a read that has a buffer.
    pub(super) fn start_read(
        &mut self,
        pages: Vec<Incoming>,
        cause: Cause,
        from: Time,
        context: &mut Context<SwapModelEvent>,
    ) {
        let arrived = self.device.request(from, false, pages.len() as u64 * PAGE_BYTES);
        let installed = match cause {
            Cause::Fault(_) => arrived + self.options.fault.0.div_ceil(2),
            Cause::Ahead(_) => {
                let handler = self.handlers.iter_mut().min();
                let begin = handler.as_ref().map_or(arrived, |free| arrived.max(**free));
                let end = begin + pages.len() as u64 * self.options.install.0;
                handler.into_iter().for_each(|free| *free = end);
                end
            }
        };
        let number = self.reads.add(Read { pages, cause });
        context.schedule(Picos(installed), SwapModelEvent::Read(number));
    }

    /// Ends a read: installs its pages.
    pub(super) fn finish_read(&mut self, number: u32, context: &mut Context<SwapModelEvent>) {
        let Some(Read { pages, cause }) = self.reads.take(number) else { return };
        self.counts.reads += 1;
        self.counts.bytes_read += pages.len() as u64 * PAGE_BYTES;
        match cause {
            Cause::Fault(block) => {
                // The thread continues without a further wake-up.
                let page = pages[0].page;
                let waits = self.waiting.iter().position(|(of, _)| *of == page);
                let slot = waits.map(|at| self.waiting.remove(at).1);
                self.install_read(pages[0], context);
                slot.into_iter().for_each(|slot| self.access(slot, context));
                let block = (block.first, block.last());
                if let Some(window) = self.streams.record_block_miss(self.address(page), block) {
                    self.queue_window(window, context.now());
                }
            }
            Cause::Ahead(trigger) => {
                for incoming in &pages {
                    let trigger = trigger.filter(|(page, _)| *page == incoming.page);
                    if !trigger.is_some_and(|(_, trigger)| self.place_trigger(*incoming, trigger, context)) {
                        self.install_read(*incoming, context);
                    }
                }
            }
        }
        self.read_slots.release(pages.len());
        self.take_requests(context);
    }

    fn install_read(&mut self, incoming: Incoming, context: &mut Context<SwapModelEvent>) {
        let Incoming { page, slot, store } = incoming;
        if store {
            self.slots.free(slot);
        }
        self.install(page, PageState::read(slot, store), context);
    }

    /// Puts a page whose first use is to be seen into the victim buffer. Returns `false` if it was used already, or if the
    /// buffer is full.
    fn place_trigger(
        &mut self,
        incoming: Incoming,
        trigger: Trigger,
        context: &mut Context<SwapModelEvent>,
    ) -> bool {
        let Incoming { page, slot, .. } = incoming;
        let address = self.address(page);
        if trigger == Trigger::Window && !self.streams.is_trigger(address) {
            return false;
        }
        let Some(frame) = self.buffer.insert(address, Some(slot)) else { return false };
        self.buffer.await_use(frame);
        let info = &mut self.pages[page as usize];
        (info.state, info.trigger) = (PageState::InVictimBuffer(frame), Some(trigger));
        self.counts.readahead_windows += u64::from(trigger == Trigger::Probe);
        self.wake(page..page + 1, context);
        true
    }
}
