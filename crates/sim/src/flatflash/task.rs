//! What is under way: accesses, faults, promotions, flushes and block writes as small state machines.
//!
//! A task runs until it must wait. It takes a resource (a direction of the link, a channel of DRAM, an
//! operation of flash) only while it runs, that is at the present. What it waits for wakes it, at an
//! event of that time.

use super::flash::QueueTicket;
use super::memory::FaultTask;
use super::persist::{BlockTask, BlocksTask, FlushTask};
use super::promotion::PromotionTask;
use super::{EventKind, FlatMemory};
use crate::engine::Time;
use crate::error::SimError;
use crate::host::Slot;

use super::access::LineTask;

/// The number of a task; reused after its end.
pub(super) type TaskId = u32;

/// A task and its state.
pub(super) enum Task {
    Line(LineTask),
    Fault(FaultTask),
    Promotion(PromotionTask),
    Flush(FlushTask),
    Blocks(BlocksTask),
    Block(BlockTask),
}

/// What a task waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    At(Time),
    /// The page is in the device buffer.
    Fill(u32),
    /// The page is in DRAM.
    Fault(u32),
    /// A frame of DRAM or of the device buffer may be taken, or a line has left the eviction buffer.
    Frame,
    /// A place in the write queue of a die.
    Queue(QueueTicket),
    /// Room in the write buffer.
    Room,
    /// All stores posted before the one of this number have arrived.
    Stores(u64),
    /// The end of a task that wakes this one.
    Child,
}

/// The outcome of running a task.
pub(super) enum Step {
    Done,
    Wait(Wait),
}

/// One that an event or a place in a write queue continues.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiter {
    Task(TaskId),
    /// The read that fills the device buffer with this page.
    FillRead(u32),
    /// The page's fill, one of whose conditions is met.
    FillStep(u32),
}

/// A request of the driver.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestState {
    /// Lines of unknown end.
    lines: u32,
    end: Time,
}

/// The tasks, and those that continue at the present, in order.
#[derive(Default)]
pub(super) struct Tasks {
    all: Vec<Option<Task>>,
    free: Vec<TaskId>,
    runnable: std::collections::VecDeque<TaskId>,
    requests: Vec<RequestState>,
    /// Tasks that wait for [`Wait::Frame`].
    frame: Vec<TaskId>,
}

impl Tasks {
    fn reserve(&mut self) -> TaskId {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            (self.all.len() - 1) as TaskId
        })
    }

    /// Continues a task after those that continue already.
    pub(super) fn wake(&mut self, id: TaskId) {
        self.runnable.push_back(id);
    }

    /// Continues tasks before those that continue already: what they waited for cannot be taken from
    /// them meanwhile.
    pub(super) fn wake_first(&mut self, ids: Vec<TaskId>) {
        for id in ids.into_iter().rev() {
            self.runnable.push_front(id);
        }
    }

    /// Continues the tasks that wait for a frame.
    pub(super) fn wake_for_frames(&mut self) {
        self.runnable.extend(self.frame.drain(..));
    }

    /// True if no task exists.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.len() == self.free.len()
    }
}

impl FlatMemory {
    /// Begins a request of so many lines.
    pub(super) fn begin_request(&mut self, slot: Slot, lines: u32) {
        let slot = slot as usize;
        if slot >= self.tasks.requests.len() {
            self.tasks.requests.resize(slot + 1, RequestState::default());
        }
        self.tasks.requests[slot] = RequestState { lines, end: self.now };
    }

    /// Adds a line to a request that is not complete.
    pub(super) fn add_line(&mut self, slot: Slot) {
        self.tasks.requests[slot as usize].lines += 1;
    }

    /// Records the end of a line of a request. The last line completes the request.
    #[inline]
    pub(super) fn line_done(&mut self, slot: Slot, end: Time) {
        let request = &mut self.tasks.requests[slot as usize];
        request.end = request.end.max(end);
        request.lines -= 1;
        if request.lines == 0 {
            self.outbox.push((request.end, EventKind::Complete(slot)));
        }
    }

    /// Runs a new task that knows its number.
    pub(super) fn start_numbered(&mut self, task: impl FnOnce(TaskId) -> Task) -> Result<(), SimError> {
        let id = self.tasks.reserve();
        self.run_task(task(id), Some(id))
    }

    /// Runs a new task.
    pub(super) fn start(&mut self, task: Task) -> Result<(), SimError> {
        self.run_task(task, None)
    }

    #[inline]
    fn run_task(&mut self, mut task: Task, id: Option<TaskId>) -> Result<(), SimError> {
        let step = match &mut task {
            Task::Line(line) => self.step_line(line)?,
            Task::Fault(fault) => self.step_fault(fault)?,
            Task::Promotion(promotion) => self.step_promotion(promotion)?,
            Task::Flush(flush) => self.step_flush(flush)?,
            Task::Blocks(blocks) => self.step_blocks(blocks)?,
            Task::Block(block) => self.step_block(block)?,
        };
        match step {
            Step::Done => self.tasks.free.extend(id),
            Step::Wait(wait) => {
                let id = id.unwrap_or_else(|| self.tasks.reserve());
                self.tasks.all[id as usize] = Some(task);
                self.wait(wait, id);
            }
        }
        Ok(())
    }

    fn wait(&mut self, wait: Wait, id: TaskId) {
        match wait {
            Wait::At(time) => self.outbox.push((time, EventKind::Wake(Waiter::Task(id)))),
            Wait::Fill(page) => self.fills.entry(page).or_default().waiters.push(id),
            Wait::Fault(page) => self.faults.entry(page).or_default().push(id),
            Wait::Frame => self.tasks.frame.push(id),
            Wait::Queue(ticket) => self.wait_in_queue(ticket, Waiter::Task(id)),
            Wait::Room => self.posted.waiting.push_back(id),
            Wait::Stores(before) => self.posted.fences.push((before, id)),
            Wait::Child => {}
        }
    }

    /// Has a waiter wait for a place in a write queue.
    pub(super) fn wait_in_queue(&mut self, ticket: QueueTicket, waiter: Waiter) {
        let after = ticket.remap;
        if !self.flash.wait(ticket, waiter) {
            self.outbox.push((self.now + after, EventKind::Wake(waiter)));
        }
    }

    /// Continues one that has waited.
    pub(super) fn wake(&mut self, waiter: Waiter) -> Result<(), SimError> {
        match waiter {
            Waiter::Task(id) => {
                self.tasks.wake(id);
                Ok(())
            }
            Waiter::FillRead(page) => {
                self.flash.read(page, self.now);
                Ok(())
            }
            Waiter::FillStep(page) => self.advance_fill(page),
        }
    }

    /// Runs everything that continues at the present.
    pub(super) fn settle(&mut self) -> Result<(), SimError> {
        loop {
            if let Some(id) = self.tasks.runnable.pop_front() {
                let task = self.tasks.all[id as usize].take().ok_or_else(|| SimError::Conservation {
                    law: "a task that continues exists",
                    found: format!("task {id} has ended"),
                })?;
                self.run_task(task, Some(id))?;
            } else if let Some(page) = self.flash.pages_read.pop_front() {
                self.advance_fill(page)?;
            } else if let Some((waiter, after)) = self.flash.accepted.pop_front() {
                if after == 0 {
                    self.wake(waiter)?;
                } else {
                    self.outbox.push((self.now + after, EventKind::Wake(waiter)));
                }
            } else {
                return Ok(());
            }
        }
    }
}
