//! Operations of a drive on flash, each on one page or block, and their way to the array and back.

use deepram_core::units::Picos;
use deepram_media::NandOp;

use super::parallel::{EventKind, ParallelEvent, ParallelSsd};
use crate::error::SimError;
use crate::flash_array::blocks::{FrontierUse, PageAddress};
use crate::flash_array::{ChannelEvent, Notice, Operation as ArrayOperation, OperationClass};
use crate::host::Context;

/// The cause of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationSource {
    Host,
    Buffer,
    Merge,
    Move,
    Mapping,
}

/// An operation on one page or block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) op: NandOp,
    pub(super) source: OperationSource,
    /// The operation is a copy-back: a read and a program in one, without the bus.
    pub(super) copy_back: bool,
    /// The operation must not start before the read that it waits for.
    pub(super) blocked: bool,
    /// The address of the page, or of the block's first page.
    pub(super) address: PageAddress,
    /// Logical page, mapping page, or block.
    pub(super) key: u32,
    /// Bytes transferred over the bus.
    pub(super) bytes: u32,
    /// The command of the operation, or the operation that waits for it.
    pub(super) owner: u32,
}

impl Operation {
    /// An operation that transfers `bytes` over the bus; it is neither blocked nor a copy-back.
    pub(super) fn new(
        op: NandOp,
        source: OperationSource,
        address: PageAddress,
        key: u32,
        bytes: u32,
        owner: u32,
    ) -> Self {
        Self { op, source, copy_back: false, blocked: false, address, key, bytes, owner }
    }

    /// The operation as the array sees it. Blocks have `pages` pages.
    pub(super) fn for_array(&self, pages: u32) -> ArrayOperation {
        let class = match (self.op, self.source) {
            (NandOp::Read, OperationSource::Mapping) => OperationClass::MapRead,
            (NandOp::Read, OperationSource::Move) => OperationClass::Move,
            (NandOp::Read, _) => OperationClass::Demand,
            (NandOp::Program, OperationSource::Mapping) => OperationClass::MapProgram,
            (NandOp::Program, OperationSource::Move) => OperationClass::MoveProgram,
            (NandOp::Program, _) => OperationClass::Program,
            (NandOp::Erase, _) => OperationClass::Erase,
        };
        ArrayOperation {
            class,
            plane: self.address.plane,
            page: self.address.physical - self.address.block * pages,
            bytes: self.bytes,
            array_time: None,
            copy_back: self.copy_back,
            blocked: self.blocked,
            limited: matches!(self.source, OperationSource::Host | OperationSource::Buffer),
        }
    }
}

/// The error for a number that no operation under way has.
pub(super) fn not_under_way(number: u32) -> SimError {
    SimError::Conservation {
        law: "an operation of the array is under way",
        found: format!("number {number}"),
    }
}

impl ParallelSsd {
    /// Queues an operation at the array.
    pub(super) fn enqueue(
        &mut self,
        number: u32,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let operation = self.operations.get(number).ok_or_else(|| not_under_way(number))?;
        let operation = operation.for_array(self.planes.pages);
        self.array.submit_operation(number, operation, context.now().0);
        self.schedule_array(context);
        Ok(())
    }

    /// Schedules the array's events.
    #[inline]
    pub(super) fn schedule_array(&mut self, context: &mut Context<ParallelEvent>) {
        if !self.array.events.is_empty() {
            self.schedule_events(context);
        }
    }

    fn schedule_events(&mut self, context: &mut Context<ParallelEvent>) {
        for (time, event) in self.array.events.drain(..) {
            context.schedule(Picos(time), ParallelEvent(EventKind::Array(event)));
        }
    }

    /// Handles an event of the array, and what depends on the operations that it completes.
    pub(super) fn array_event(
        &mut self,
        event: ChannelEvent,
        context: &mut Context<ParallelEvent>,
    ) -> Result<(), SimError> {
        let now = context.now().0;
        self.array.advance(event, now);
        self.schedule_array(context);
        for index in 0..self.array.notices.len() {
            if let Notice::Done(number) = self.array.notices[index] {
                self.finish(number, context)?;
            }
        }
        self.array.notices.clear();
        self.array.settle(now);
        self.schedule_array(context);
        Ok(())
    }

    /// Allocates a page, as the blocks do, and tells the array if the plane then has nearly
    /// no free block.
    pub(super) fn allocate(
        &mut self,
        plane: u32,
        purpose: FrontierUse,
        key: u32,
    ) -> Option<(PageAddress, bool)> {
        let allocated = self.planes.allocate(plane, purpose, key);
        self.note_urgency(plane);
        allocated
    }

    /// Tells the array whether a plane of the target has nearly no free block.
    pub(super) fn note_urgency(&mut self, plane: u32) {
        if self.planes.lowest() < self.urgent_below {
            let urgent = |plane| self.planes.free(plane) < self.urgent_below;
            let urgent = self.array.planes_of_target(plane).any(urgent);
            self.array.set_urgent(plane, urgent);
        }
    }
}
