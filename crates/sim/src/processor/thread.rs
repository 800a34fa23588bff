//! A thread: its instruction front, and its loads that have not retired.
//!
//! 1. The front is the time at which instruction number `issued` issues. It advances by cycle / width
//!    per instruction, exactly: fractions of a picosecond are carried over.
//! 2. Instruction n + window issues when load n, and all before it, have their data. A load whose data
//!    are still outstanding stops the front. With `blocking`, the instruction after a load waits.
//! 3. Time on a core is computing, stalled or software, and nothing else; each picosecond is counted
//!    once.

use std::collections::VecDeque;

use super::ThreadReferences;
use super::options::ProcessorOptions;
use crate::engine::Time;
use crate::host::Slot;

/// The time of no event.
pub(super) const NEVER: Time = Time::MAX;

/// The scheduling state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// The thread waits for a core.
    Runnable,
    /// The thread runs on this core.
    Running(u32),
    /// The operating system has put the thread to sleep until an access is complete.
    Asleep,
    /// The thread's references are used up and its loads have their data.
    Done,
}

/// The reason for which a thread on a core waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The time of its front.
    Issue,
    /// The oldest load, or the access of a fault.
    Load,
    /// Room for another miss of its core.
    Mshr,
    /// Room in the write buffer.
    WriteBuffer,
    /// The line writes that precede a sync.
    Writes,
    /// The end of software on its core.
    Software,
}

/// The availability of a load's data: at a time, or at the completion of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadData {
    At(Time),
    Of(Slot),
}

#[derive(Debug, Clone, Copy)]
struct OutstandingLoad {
    index: u64,
    data: LoadData,
}

/// A step still to be performed.
#[derive(Debug, Clone, Copy)]
pub(super) enum PendingStep {
    Lines(PendingLines),
    /// A sync; with a number, it waits for all line writes that began before that number.
    Sync(Option<u64>),
    Barrier,
}

/// The lines of a reference still to issue: `line` to `last`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingLines {
    pub(super) line: u64,
    pub(super) last: u64,
    pub(super) store: bool,
}

/// The counts of a thread, and its times in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ThreadCounts {
    pub(super) instructions: u64,
    pub(super) references: u64,
    pub(super) on_core: Time,
    pub(super) computing: Time,
    pub(super) stalled: Time,
    pub(super) software: Time,
    pub(super) asleep: Time,
    pub(super) runnable: Time,
    pub(super) sleeps: u64,
    pub(super) preemptions: u64,
}

impl ThreadCounts {
    pub(super) fn since(&self, base: &ThreadCounts) -> ThreadCounts {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        ThreadCounts {
            instructions: less(self.instructions, base.instructions),
            references: less(self.references, base.references),
            on_core: less(self.on_core, base.on_core),
            computing: less(self.computing, base.computing),
            stalled: less(self.stalled, base.stalled),
            software: less(self.software, base.software),
            asleep: less(self.asleep, base.asleep),
            runnable: less(self.runnable, base.runnable),
            sleeps: less(self.sleeps, base.sleeps),
            preemptions: less(self.preemptions, base.preemptions),
        }
    }
}

pub(super) struct Thread<'t> {
    pub(super) source: ThreadReferences<'t>,
    pub(super) pending: Option<PendingStep>,
    /// Instructions to issue before the pending lines.
    pub(super) gap: u64,
    pub(super) front: Time,
    /// The fraction of a picosecond carried over, in units of 1 / width.
    fraction: u64,
    loads: VecDeque<OutstandingLoad>,
    /// Lines requested from memory.
    pub(super) lines: Vec<(u64, Slot)>,
    pub(super) state: ThreadState,
    pub(super) wait: WaitReason,
    /// The time of the thread's timer.
    pub(super) wake: Time,
    /// The time at which the thread entered its state.
    pub(super) since: Time,
    /// The lead of the front over the present when the thread was interrupted.
    pub(super) lead: Time,
    /// Accesses that the thread sleeps for.
    pub(super) sleeping: u32,
    /// Software that the thread has to run before it continues.
    pub(super) software: Time,
    pub(super) software_began: Time,
    /// Accesses that complete once that software has run.
    pub(super) finishing: Vec<Slot>,
    /// The access of a page fault, or a sync's flush: the thread issues nothing until the access is complete.
    pub(super) fault: Option<Slot>,
    /// The thread waits at a barrier.
    pub(super) at_barrier: bool,
    pub(super) ended: Time,
    pub(super) tally: ThreadCounts,
}

impl<'t> Thread<'t> {
    pub(super) fn new(source: ThreadReferences<'t>) -> Self {
        Self {
            source,
            pending: None,
            gap: 0,
            front: 0,
            fraction: 0,
            loads: VecDeque::new(),
            lines: Vec::new(),
            state: ThreadState::Runnable,
            wait: WaitReason::Issue,
            wake: NEVER,
            since: 0,
            lead: 0,
            sleeping: 0,
            software: 0,
            software_began: 0,
            finishing: Vec::new(),
            fault: None,
            at_barrier: false,
            ended: 0,
            tally: ThreadCounts::default(),
        }
    }

    #[inline]
    fn issue(&mut self, instructions: u64, options: &ProcessorOptions) {
        let parts = self.fraction + instructions * options.cycle.0;
        let time = parts / options.width;
        self.fraction = parts % options.width;
        self.front += time;
        self.tally.computing += time;
        self.tally.instructions += instructions;
        self.gap -= instructions;
    }

    /// Stalls the front until `time`.
    #[inline]
    pub(super) fn stall_until(&mut self, time: Time) {
        if time > self.front {
            self.tally.stalled += time - self.front;
            self.front = time;
            self.fraction = 0;
        }
    }

    /// Advances the front to the next reference. Returns false if it must wait for memory.
    #[inline]
    pub(super) fn advance(&mut self, options: &ProcessorOptions) -> bool {
        let window = if options.blocking { 0 } else { options.window };
        while let Some(head) = self.loads.front() {
            let limit = head.index + window;
            let issued = self.tally.instructions;
            // A load occupies an entry of the window regardless of its instruction count.
            if limit > issued + self.gap && (self.loads.len() as u64) < options.window {
                break;
            }
            let data = head.data;
            self.issue(limit.saturating_sub(issued).min(self.gap), options);
            match data {
                LoadData::At(time) => self.stall_until(time),
                LoadData::Of(_) => return false,
            }
            self.loads.pop_front();
        }
        self.issue(self.gap, options);
        true
    }

    /// Retires all loads. Returns false if one must wait for memory.
    pub(super) fn drain(&mut self) -> bool {
        while let Some(head) = self.loads.front() {
            let LoadData::At(time) = head.data else { return false };
            self.stall_until(time);
            self.loads.pop_front();
        }
        true
    }

    #[inline]
    pub(super) fn load(&mut self, data: LoadData) {
        self.loads.push_back(OutstandingLoad { index: self.tally.instructions, data });
    }

    /// Sets the arrival time of the data of request `slot`.
    pub(super) fn arrived(&mut self, slot: Slot, time: Time) {
        for load in &mut self.loads {
            if load.data == LoadData::Of(slot) {
                load.data = LoadData::At(time);
            }
        }
    }

    /// Interrupts the thread at `now`.
    pub(super) fn interrupt(&mut self, now: Time) {
        self.lead = self.front.saturating_sub(now);
        self.stall_until(now);
    }

    /// The counts as of `now`, including the time in the present state.
    pub(super) fn tally_at(&self, now: Time) -> ThreadCounts {
        let mut tally = self.tally;
        let time = now - self.since.min(now);
        match self.state {
            ThreadState::Runnable => tally.runnable += time,
            ThreadState::Running(_) => tally.on_core += time,
            ThreadState::Asleep => tally.asleep += time,
            ThreadState::Done => {}
        }
        tally
    }

    /// Enters another state at `now`.
    pub(super) fn enter_state(&mut self, state: ThreadState, now: Time) {
        self.tally = self.tally_at(now);
        self.since = now;
        self.state = state;
    }
}
