//! A thread: the front of its instructions, and the loads that have not retired.
//!
//! 1. The front is the moment at which instruction number `issued` issues. It moves on by cycle / width
//!    an instruction, exactly: fractions of a picosecond are carried.
//! 2. Instruction n + window issues when the load n, and all before it, have their data. A load that is
//!    still in memory's hands stops the front. With `blocking`, the instruction after a load waits.
//! 3. Time on a core is computing, stalled or software, and nothing else; each picosecond is counted once.

use std::collections::VecDeque;

use super::ThreadReferences;
use super::options::ProcessorOptions;
use crate::engine::Time;
use crate::host::Slot;

/// No moment.
pub(super) const NEVER: Time = Time::MAX;

/// Where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// It wants a core.
    Runnable,
    /// It has this one.
    Running(u32),
    /// The operating system put it to sleep until an access is over.
    Asleep,
    /// Its references are used up and its loads have their data.
    Done,
}

/// What a thread on a core waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// Its front.
    Issue,
    /// The oldest load, or the access of a fault.
    Load,
    /// Room for another miss of its core.
    Mshr,
    /// Room in the write buffer.
    WriteBuffer,
    /// The end of software on its core.
    Software,
}

/// When a load's data are there.
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

/// What is left of a reference: lines from `line` to `last`.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingLines {
    pub(super) line: u64,
    pub(super) last: u64,
    pub(super) store: bool,
}

/// What a thread did and where its time went, in picoseconds.
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
    pub(super) pending: Option<PendingLines>,
    /// Instructions before the piece issues.
    pub(super) gap: u64,
    pub(super) front: Time,
    /// Of a picosecond, in 1 / width.
    fraction: u64,
    loads: VecDeque<OutstandingLoad>,
    /// Lines that it has asked memory for.
    pub(super) lines: Vec<(u64, Slot)>,
    pub(super) state: ThreadState,
    pub(super) wait: WaitReason,
    /// When it goes on by itself.
    pub(super) wake: Time,
    /// Since when it is in its state.
    pub(super) since: Time,
    /// How far the front was ahead when the thread was interrupted.
    pub(super) lead: Time,
    /// Accesses that it sleeps for.
    pub(super) sleeping: u32,
    /// Software that it has to run before it goes on.
    pub(super) software: Time,
    pub(super) software_began: Time,
    /// Accesses over once that software has run.
    pub(super) finishing: Vec<Slot>,
    /// The access of a page fault: nothing is issued until it is over.
    pub(super) fault: Option<Slot>,
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
            ended: 0,
            tally: ThreadCounts::default(),
        }
    }

    #[inline]
    fn issue(&mut self, instructions: u64, options: &ProcessorOptions) {
        let parts = self.fraction + instructions * options.cycle_ps;
        let time = parts / options.width;
        self.fraction = parts % options.width;
        self.front += time;
        self.tally.computing += time;
        self.tally.instructions += instructions;
        self.gap -= instructions;
    }

    /// The front waits until `time`.
    #[inline]
    pub(super) fn stall_until(&mut self, time: Time) {
        if time > self.front {
            self.tally.stalled += time - self.front;
            self.front = time;
            self.fraction = 0;
        }
    }

    /// Moves the front to the next reference. False if it must wait for memory.
    #[inline]
    pub(super) fn advance(&mut self, options: &ProcessorOptions) -> bool {
        let window = if options.blocking { 0 } else { options.window };
        while let Some(head) = self.loads.front() {
            let limit = head.index + window;
            let issued = self.tally.instructions;
            // A load takes a place of the window, whatever it counts.
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

    /// Lets all loads retire. False if one must wait for memory.
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

    /// The data of `slot` are there at `time`.
    pub(super) fn arrived(&mut self, slot: Slot, time: Time) {
        for load in &mut self.loads {
            if load.data == LoadData::Of(slot) {
                load.data = LoadData::At(time);
            }
        }
    }

    /// The core turns to something else at `now`.
    pub(super) fn interrupt(&mut self, now: Time) {
        self.lead = self.front.saturating_sub(now);
        self.stall_until(now);
    }

    /// The tally as of `now`, the time in the present state included.
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

    /// Goes over into another state.
    pub(super) fn enter_state(&mut self, state: ThreadState, now: Time) {
        self.tally = self.tally_at(now);
        self.since = now;
        self.state = state;
    }
}
