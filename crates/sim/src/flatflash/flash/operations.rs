//! The operations of the drive's flash: their order in the background, and the write queue.

use super::DriveFlash;
use crate::engine::Time;
use crate::flash_array::{ChannelEvent, Notice, Operation, OperationClass};
use crate::flatflash::task::Waiter;

/// The claim of a write to a place in the write queue of its die.
#[derive(Debug, Clone, Copy)]
pub(in crate::flatflash) struct QueueTicket {
    pub(super) die: usize,
    /// The number of programmed pages with which the write is in the queue.
    pub(super) target: u64,
    /// Time for which the host applies a remap batch meanwhile.
    pub(in crate::flatflash) remap: Time,
}

/// An operation of the array.
#[derive(Debug, Clone, Copy)]
pub(super) enum FlashOperation {
    /// Reads a page into the device buffer.
    Read(u32),
    /// Reads a page that reclamation moves, and programs it then.
    MoveRead(usize),
    MoveProgram(usize),
    Program(usize),
    Erase(usize),
}

impl DriveFlash {
    fn submit(&mut self, operation: FlashOperation, class: OperationClass, die: usize, now: Time) {
        let id = self.operations.add(operation);
        if class == OperationClass::Program && self.lacks_erased_block(die) {
            let blocked = Operation {
                class,
                plane: die as u32,
                page: 0,
                bytes: self.page_bytes,
                array_time: None,
                copy_back: false,
                blocked: true,
                limited: false,
            };
            self.array.submit_operation(id, blocked, now);
            self.dies[die].held.push(id);
        } else {
            self.array.submit(id, class, die as u32, now);
        }
        self.take_notices(now);
    }

    /// True if the erase of the die's open block is not over: blocks are opened in the order of their
    /// erases.
    fn lacks_erased_block(&self, at: usize) -> bool {
        self.dies[at].erasing > self.dies[at].blocks.free()
    }

    /// Submits a background operation of a die.
    pub(super) fn submit_background(
        &mut self,
        operation: FlashOperation,
        class: OperationClass,
        die: usize,
        now: Time,
    ) {
        self.dies[die].backlog += self.work_of(operation);
        self.submit(operation, class, die, now);
    }

    /// Time that an operation takes alone.
    fn work_of(&self, operation: FlashOperation) -> Time {
        match operation {
            FlashOperation::Read(_) | FlashOperation::MoveRead(_) => self.read,
            FlashOperation::MoveProgram(_) | FlashOperation::Program(_) => self.program,
            FlashOperation::Erase(_) => self.erase,
        }
    }

    /// Begins to read a page; it is among [`DriveFlash::pages_read`] when it is in the device buffer.
    pub(in crate::flatflash) fn read(&mut self, page: u32, now: Time) {
        self.counts.host_reads += 1;
        let (die, ..) = self.split(self.place(page));
        self.submit(FlashOperation::Read(page), OperationClass::Demand, die, now);
    }

    /// Handles an event of the array that is due.
    pub(in crate::flatflash) fn handle(&mut self, event: ChannelEvent, now: Time) {
        self.array.handle(event, now);
        self.take_notices(now);
    }

    fn take_notices(&mut self, now: Time) {
        while !self.array.notices.is_empty() {
            let Notice::Done(id) = self.array.notices.remove(0) else { continue };
            let Some(operation) = self.operations.take(id) else { continue };
            let die = match operation {
                FlashOperation::Read(page) => {
                    self.pages_read.push_back(page);
                    continue;
                }
                FlashOperation::MoveRead(die) => {
                    // Its program is in the backlog since the block was picked.
                    let program = FlashOperation::MoveProgram(die);
                    self.submit(program, OperationClass::Program, die, now);
                    die
                }
                FlashOperation::Program(die) => {
                    self.dies[die].programmed += 1;
                    die
                }
                FlashOperation::MoveProgram(die) => die,
                FlashOperation::Erase(die) => {
                    self.dies[die].erasing -= 1;
                    if !self.lacks_erased_block(die) {
                        for id in std::mem::take(&mut self.dies[die].held) {
                            self.array.wake(id, now);
                        }
                    }
                    die
                }
            };
            let work = self.work_of(operation);
            let die = &mut self.dies[die];
            die.backlog -= work;
            while let Some((ticket, waiter)) = die.waiting.front().copied()
                && ticket.target <= die.programmed
            {
                die.waiting.pop_front();
                self.accepted.push_back((waiter, ticket.remap));
            }
        }
    }

    /// True if the queue has accepted the write.
    pub(in crate::flatflash) fn has_accepted(&self, ticket: QueueTicket) -> bool {
        self.dies[ticket.die].programmed >= ticket.target
    }

    /// Has `waiter` wait for a claim. Returns false if the queue has accepted the page already.
    pub(in crate::flatflash) fn wait(&mut self, ticket: QueueTicket, waiter: Waiter) -> bool {
        let waits = !self.has_accepted(ticket);
        if waits {
            let die = &mut self.dies[ticket.die];
            let place = die.waiting.partition_point(|(other, _)| other.target <= ticket.target);
            die.waiting.insert(place, (ticket, waiter));
        }
        waits
    }
}
