//! The DRAM cache, with the stores behind it, as the fault service drives it.

use std::io;
use std::os::fd::RawFd;

use deepram_core::paging::Window;
use deepram_core::units::PAGE_BYTES;
use deepram_linux::uffd::Fault;
use deepram_linux::work_queue::WorkQueue;
use deepram_pager::service::{Backing, FaultProgress, GroupHandle, Histograms, Trigger, TriggerPage};

use super::fault::FillProgress;
use super::readahead::{IncomingSegment, ReadaheadJob};
use super::{AccessKind, Cache, Index, Permit};
use crate::error::Result;
use crate::store::{Fetched, SlotLocation};

/// Contents of a page that was never written.
static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

impl Backing for Cache {
    /// The cache's generation tells whether contents have changed during a read, so a handler holds nothing.
    type Session<'a> = ();
    type Page = IncomingSegment;
    type Fault = Permit;
    type Request = ReadaheadJob;

    fn session(&self, _group: &mut GroupHandle<'_>) {}

    fn next_fault(&self, (): &()) -> io::Result<Option<Fault>> {
        self.region.next_fault()
    }

    fn needs_read(&self, (): &(), fault: Fault) -> bool {
        !self.is_resident(self.index_at(fault))
    }

    fn begin_fault(&self, (): &(), fault: Fault) -> FaultProgress<IncomingSegment, Permit> {
        let index = self.index_at(fault);
        let access = if fault.write { AccessKind::Write } else { AccessKind::Read };
        let permit = self.permit(access);
        let queue_window = |window: Option<Window>| {
            if let Some(window) = window {
                self.queue_window(window);
                self.stage_behind(window);
            }
        };
        match self.begin_fill_for_fault(index, permit) {
            Ok((FillProgress::Served, window)) => {
                queue_window(window);
                FaultProgress::Served
            }
            Ok((FillProgress::Staged, _)) => FaultProgress::Waits,
            Ok((FillProgress::Deferred, _)) => {
                self.deferred_faults.push(index, access);
                FaultProgress::Waits
            }
            Ok((FillProgress::Read(generation, block), window)) => {
                match self.locate(index, permit, generation) {
                    Some(page) => {
                        queue_window(window);
                        let (neighbours, probe) = self.fault_around(block, index);
                        FaultProgress::Read { page, fault: permit, neighbours, probe }
                    }
                    // Memory that was never written needs no readahead.
                    None => FaultProgress::Served,
                }
            }
            Err(error) => {
                self.fail_fault(index, error);
                FaultProgress::Served
            }
        }
    }

    fn finish_fault(
        &self,
        (): &(),
        page: IncomingSegment,
        permit: Permit,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> Option<(IncomingSegment, Permit)> {
        let (store, number, segment) = self.store_of(page.index);
        let fetched = store.verify_read(number, segment, page.crc, read, bytes);
        let again = self.finish_fill(page.index, permit, page.generation, fetched, bytes)?;
        Some((self.locate(page.index, permit, again)?, permit))
    }

    fn requests(&self) -> &WorkQueue<ReadaheadJob> {
        &self.readahead_jobs
    }

    fn begin_request(
        &self,
        (): &(),
        ReadaheadJob { segments, window }: ReadaheadJob,
    ) -> (Vec<IncomingSegment>, Option<TriggerPage>) {
        (self.begin_readahead(segments), window.map(|window| (window.first, Trigger::Window)))
    }

    fn finish_request(
        &self,
        (): &(),
        run: &[IncomingSegment],
        trigger: Option<TriggerPage>,
        read: io::Result<()>,
        bytes: &mut [u8],
    ) -> bool {
        self.finish_readahead(run, trigger, read, bytes);
        false
    }

    fn are_adjacent(&self, first: &IncomingSegment, second: &IncomingSegment) -> bool {
        first.slot + 1 == second.slot && first.index / self.stride == second.index / self.stride
    }

    fn location(&self, (): &(), page: &IncomingSegment) -> Option<(RawFd, u64)> {
        let (store, ..) = self.store_of(page.index);
        Some((store.device().queue_fd()?, store.geometry().offset(page.slot)))
    }

    fn read(&self, (): &(), page: &IncomingSegment, to: &mut [u8]) -> io::Result<()> {
        let (store, ..) = self.store_of(page.index);
        store.device().read(store.geometry().offset(page.slot), to)
    }

    fn polls(&self) -> bool {
        self.faults.polling
    }

    fn histograms(&self) -> &Histograms {
        &self.counters.histograms
    }
}

impl Cache {
    fn index_at(&self, fault: Fault) -> Index {
        (self.region.offset_of(fault.address) / self.segment_bytes) as Index
    }

    /// Looks up the slot of a segment that is being filled for a fault. Returns `None` if the fill has ended without a
    /// read.
    fn locate(&self, index: Index, permit: Permit, mut generation: u64) -> Option<IncomingSegment> {
        let (store, page, segment) = self.store_of(index);
        loop {
            let fetched = match store.locate_slot(page, segment) {
                Ok(SlotLocation::Slot { slot, crc }) => {
                    return Some(IncomingSegment { index, slot, crc, generation });
                }
                Ok(SlotLocation::Unwritten) => Ok(Fetched::Zero),
                Err(error) => Err(error),
            };
            generation = self.finish_fill(index, permit, generation, fetched, &[])?;
        }
    }

    /// Ends a fill for a fault with the result of the read. If contents have changed since `generation`, returns the
    /// current generation, and the segment must be read again.
    fn finish_fill(
        &self,
        index: Index,
        permit: Permit,
        generation: u64,
        fetched: Result<Fetched>,
        bytes: &[u8],
    ) -> Option<u64> {
        let mut state = self.lock();
        let confirmed = self.revalidate(&state, index, permit);
        if confirmed.is_ok() && state.generation != generation {
            return Some(state.generation);
        }
        let access = permit.access;
        let ended = match confirmed.and(fetched) {
            Ok(Fetched::Data) => self.end_fill(&mut state, index, access, bytes),
            Ok(Fetched::Zero) => {
                let segments = self.claim_fresh(&mut state, index, access);
                self.end_fill(&mut state, index, access, &ZEROS[..segments * self.segment_bytes])
            }
            Err(error) => {
                self.fail_fill(&mut state, index, access);
                Err(error)
            }
        };
        drop(state);
        if let Err(error) = ended {
            self.fail_fault(index, error);
        }
        None
    }
}
