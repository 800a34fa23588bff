//! The event loop of threads on cores: scheduling, sleep and wake-up, quanta.

use deepram_core::units::Picos;
use std::collections::VecDeque;

use super::llc::{LINE_BYTES, Llc};
use super::memory::{DeviceAccess, IssueOutcome};
use super::options::ProcessorOptions;
use super::result::{AccessLatencies, LineCounts, ProcessorResult, thread_result};
use super::thread::{NEVER, PendingLines, Thread, ThreadCounts, ThreadState, WaitReason};
use super::{Command, Device, SimError, ThreadReferences};
use crate::engine::Time;
use crate::flash::FlashCounts;
use crate::host::{Context, Event, Slot};
use crate::metrics::Latencies;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Core {
    thread: Option<u32>,
    last: Option<u32>,
    /// The time from which its thread's quantum counts.
    taken: Time,
    /// Misses under way, each with an MSHR.
    pub(super) misses: u32,
}

/// The counts when measuring began.
#[derive(Default)]
struct Baseline {
    time: Time,
    tallies: Vec<ThreadCounts>,
    lines: LineCounts,
    flash: FlashCounts,
}

pub(super) struct Machine<'d, 't, D: Device, F> {
    pub(super) device: &'d mut D,
    pub(super) faults: F,
    pub(super) options: ProcessorOptions,
    pub(super) hit_ps: Time,
    pub(super) threads: Vec<Thread<'t>>,
    pub(super) cores: Vec<Core>,
    pub(super) llc: Option<Llc>,
    pub(super) context: Context<D::Event>,
    pub(super) accesses: Vec<DeviceAccess>,
    pub(super) free: Vec<Slot>,
    /// Accesses that wait for room in the device's queue.
    pub(super) unsent: VecDeque<Slot>,
    pub(super) inside: u64,
    pub(super) limit: u64,
    /// Line writes under way to the device.
    pub(super) writes_under_way: u32,
    /// Evicted lines that wait for room in the write buffer, and the core whose MSHR each keeps.
    pub(super) waiting_writes: VecDeque<(u64, Option<u32>)>,
    runnable: VecDeque<u32>,
    /// Threads on cores that continue at the present.
    pub(super) ready: VecDeque<u32>,
    pub(super) lines: LineCounts,
    pub(super) times: AccessLatencies,
    /// References taken from the threads.
    taken: u64,
    /// References left until measuring begins.
    warm_up_left: u64,
    base: Baseline,
}

fn times() -> Result<AccessLatencies, SimError> {
    Ok(AccessLatencies { read: Latencies::new()?, slept: Latencies::new()?, written: Latencies::new()? })
}

impl<'d, 't, D: Device, F: Fn(&D, &Command) -> bool> Machine<'d, 't, D, F> {
    pub(super) fn new(
        device: &'d mut D,
        threads: Vec<ThreadReferences<'t>>,
        options: &ProcessorOptions,
        faults: F,
    ) -> Result<Self, SimError> {
        options.check()?;
        if threads.is_empty() || threads.len() >= 1 << 24 {
            return Err(SimError::config("threads", "must be 1 to 2^24"));
        }
        if device.capacity().0 < LINE_BYTES {
            return Err(SimError::config("capacity", "the device must hold a line of 64 B"));
        }
        let limit = device.queue_limit().max(1);
        let count = threads.len() as u32;
        Ok(Self {
            device,
            faults,
            options: options.clone(),
            hit_ps: options.hit_ps(),
            threads: threads.into_iter().map(Thread::new).collect(),
            cores: vec![Core::default(); options.cores as usize],
            llc: Llc::new(options.llc.0, options.llc_ways)?,
            context: Context::new(),
            accesses: Vec::new(),
            free: Vec::new(),
            unsent: VecDeque::new(),
            inside: 0,
            limit,
            writes_under_way: 0,
            waiting_writes: VecDeque::new(),
            runnable: (0..count).collect(),
            ready: VecDeque::new(),
            lines: LineCounts::default(),
            times: times()?,
            taken: 0,
            warm_up_left: options.warm_up,
            base: Baseline::default(),
        })
    }

    pub(super) fn execute(mut self) -> Result<ProcessorResult, SimError> {
        self.base.tallies = vec![ThreadCounts::default(); self.threads.len()];
        self.base.flash = self.device.counts();
        self.settle()?;
        while let Some((Picos(now), event)) = self.context.queue.pop() {
            match event {
                Event::Device(event) => self.device.handle(event, &mut self.context)?,
                Event::Complete(slot) => self.context.done.push(slot),
                Event::Driver(thread) => self.wake(thread, now),
                Event::Arrive => {}
            }
            self.settle()?;
        }
        self.finish()
    }

    /// Performs everything that is due at the present.
    fn settle(&mut self) -> Result<(), SimError> {
        loop {
            // A thread that the device puts to sleep and wakes in one call has slept for no time.
            if !self.context.asleep.is_empty() {
                for slot in std::mem::take(&mut self.context.asleep) {
                    self.sleep(slot);
                }
            } else if !self.context.resumed.is_empty() {
                for (slot, software) in std::mem::take(&mut self.context.resumed) {
                    self.resume(slot, software);
                }
            } else if let Some(slot) = self.context.done.pop() {
                self.complete(slot);
            } else if self.inside < self.limit && !self.unsent.is_empty() {
                self.send_next()?;
            } else if let Some(thread) = self.ready.pop_front() {
                self.run_thread(thread)?;
            } else if !self.dispatch() {
                return Ok(());
            }
        }
    }

    /// Gives a free core to the next runnable thread. Returns false if there is no free core or no
    /// runnable thread.
    fn dispatch(&mut self) -> bool {
        if self.runnable.is_empty() {
            return false;
        }
        let Some(core) = self.cores.iter().position(|core| core.thread.is_none()) else { return false };
        let Some(number) = self.runnable.pop_front() else { return false };
        let now = self.context.now().0;
        let (place, thread) = (&mut self.cores[core], &mut self.threads[number as usize]);
        place.thread = Some(number);
        place.taken = now;
        if place.last.is_some_and(|last| last != number) {
            self.lines.switches += 1;
            thread.software += self.options.switch.0;
        }
        place.last = Some(number);
        thread.enter_state(ThreadState::Running(core as u32), now);
        if thread.software > 0 {
            self.run_software(number, now);
        } else {
            self.resume_issue(number, now);
        }
        true
    }

    /// Starts the software that a thread on a core has to run.
    fn run_software(&mut self, number: u32, now: Time) {
        let thread = &mut self.threads[number as usize];
        thread.wait = WaitReason::Software;
        thread.software_began = now;
        thread.wake = now + thread.software;
        self.context.queue.push(Picos(thread.wake), Event::Driver(number));
    }

    /// Resumes a thread on a core where it was, after its software.
    fn resume_issue(&mut self, number: u32, now: Time) {
        let thread = &mut self.threads[number as usize];
        thread.front = now + thread.lead;
        thread.lead = 0;
        thread.wait = WaitReason::Issue;
        if let ThreadState::Running(core) = thread.state {
            // The quantum counts from here, so a thread that pays for its switch still makes progress.
            self.cores[core as usize].taken = now;
        }
        self.context.done.append(&mut thread.finishing);
        self.ready.push_back(number);
    }

    /// Handles a thread's timer; has no effect if another event has superseded it.
    fn wake(&mut self, number: u32, now: Time) {
        let thread = &mut self.threads[number as usize];
        if thread.wake != now {
            return;
        }
        thread.wake = NEVER;
        if thread.wait == WaitReason::Software {
            thread.tally.software += now - thread.software_began;
            thread.software = 0;
            self.resume_issue(number, now);
        } else {
            self.ready.push_back(number);
        }
    }

    /// Takes a thread off its core, into `state`.
    fn leave_core(&mut self, number: u32, state: ThreadState) {
        let now = self.context.now().0;
        let thread = &mut self.threads[number as usize];
        let ThreadState::Running(core) = thread.state else { return };
        if thread.wait == WaitReason::Software {
            // The rest of the software runs later.
            let ran = now - thread.software_began;
            thread.tally.software += ran;
            thread.software -= ran;
        } else {
            thread.interrupt(now);
        }
        thread.wake = NEVER;
        thread.enter_state(state, now);
        self.cores[core as usize].thread = None;
    }

    fn sleep(&mut self, slot: Slot) {
        let access = &mut self.accesses[slot as usize];
        if access.asleep {
            return;
        }
        access.asleep = true;
        access.slept = true;
        let (core, owner) = (access.core.take(), access.thread);
        if let Some(core) = core {
            self.free_mshr(core);
        }
        let Some(number) = owner else {
            self.lines.written_asleep += 1;
            return;
        };
        let now = self.context.now().0;
        let thread = &mut self.threads[number as usize];
        thread.sleeping += 1;
        thread.tally.sleeps += 1;
        match thread.state {
            ThreadState::Running(_) => self.leave_core(number, ThreadState::Asleep),
            ThreadState::Runnable => {
                thread.enter_state(ThreadState::Asleep, now);
                self.runnable.retain(|other| *other != number);
            }
            ThreadState::Asleep | ThreadState::Done => {}
        }
    }

    fn resume(&mut self, slot: Slot, software: Time) {
        let now = self.context.now().0;
        let access = &mut self.accesses[slot as usize];
        let woken = std::mem::take(&mut access.asleep);
        let (core, asked_by) = (access.core.take(), access.thread);
        // The device and the core's hardware are done with the access, whenever its thread runs.
        self.leave_device(slot);
        if let Some(core) = core {
            self.free_mshr(core);
        }
        let owner = asked_by.filter(|number| self.threads[*number as usize].state != ThreadState::Done);
        let Some(number) = owner else {
            // No thread waits for the access, so its software delays no other.
            self.context.queue.push(Picos(now + software), Event::Complete(slot));
            return;
        };
        let thread = &mut self.threads[number as usize];
        thread.sleeping -= u32::from(woken);
        thread.finishing.push(slot);
        match thread.state {
            ThreadState::Running(_) => {
                if thread.wait == WaitReason::Software {
                    let ran = now - thread.software_began;
                    thread.tally.software += ran;
                    thread.software -= ran;
                } else {
                    thread.interrupt(now);
                }
                thread.software += software;
                self.run_software(number, now);
            }
            ThreadState::Asleep => {
                thread.software += software;
                if thread.sleeping == 0 {
                    thread.enter_state(ThreadState::Runnable, now);
                    self.runnable.push_back(number);
                }
            }
            ThreadState::Runnable | ThreadState::Done => thread.software += software,
        }
    }

    /// Continues a thread on a core if it waits for `wait`.
    pub(super) fn unblock(&mut self, number: u32, wait: WaitReason) {
        let thread = &self.threads[number as usize];
        if matches!(thread.state, ThreadState::Running(_)) && thread.wait == wait {
            self.ready.push_back(number);
        }
    }

    pub(super) fn unblock_writers(&mut self) {
        for core in 0..self.cores.len() {
            if let Some(number) = self.cores[core].thread {
                self.unblock(number, WaitReason::WriteBuffer);
            }
        }
    }

    pub(super) fn free_mshr(&mut self, core: u32) {
        self.cores[core as usize].misses -= 1;
        if let Some(number) = self.cores[core as usize].thread {
            self.unblock(number, WaitReason::Mshr);
        }
    }

    fn schedule(&mut self, number: u32) {
        let thread = &mut self.threads[number as usize];
        thread.wait = WaitReason::Issue;
        thread.wake = thread.front;
        self.context.queue.push(Picos(thread.wake), Event::Driver(number));
    }

    /// The horizon of a thread: before this time no other event can affect it, so it may run ahead.
    fn horizon(&self, core: u32) -> Time {
        let next = self.context.queue.peek().map_or(NEVER, |time| time.0);
        if !self.ready.is_empty() {
            return self.context.now().0;
        }
        if self.runnable.is_empty() {
            return next;
        }
        next.min(self.cores[core as usize].taken.saturating_add(self.options.quantum.0))
    }

    /// Issues references of a thread until it must wait.
    fn run_thread(&mut self, number: u32) -> Result<(), SimError> {
        let now = self.context.now().0;
        let thread = &mut self.threads[number as usize];
        let ThreadState::Running(core) = thread.state else { return Ok(()) };
        if thread.wait == WaitReason::Software || thread.wake != NEVER {
            return Ok(());
        }
        if thread.fault.is_some() {
            thread.wait = WaitReason::Load;
            return Ok(());
        }
        thread.stall_until(now);
        if !self.runnable.is_empty() && now - self.cores[core as usize].taken >= self.options.quantum.0 {
            self.threads[number as usize].tally.preemptions += 1;
            self.leave_core(number, ThreadState::Runnable);
            self.runnable.push_back(number);
            return Ok(());
        }
        let horizon = self.horizon(core);
        loop {
            let thread = &mut self.threads[number as usize];
            let pending = match thread.pending {
                Some(pending) => pending,
                None => match self.next_reference(number)? {
                    Some(pending) => pending,
                    None => return self.end_thread(number, now),
                },
            };
            let thread = &mut self.threads[number as usize];
            if !thread.advance(&self.options) {
                thread.wait = WaitReason::Load;
                return Ok(());
            }
            if thread.front > now && thread.front >= horizon {
                self.schedule(number);
                return Ok(());
            }
            match self.issue(number, core, pending)? {
                IssueOutcome::WithoutDevice => self.consume(number, pending)?,
                IssueOutcome::Sent => {
                    self.consume(number, pending)?;
                    // The device may already have completed the access, or scheduled an event.
                    self.threads[number as usize].wait = WaitReason::Issue;
                    self.ready.push_back(number);
                    return Ok(());
                }
                IssueOutcome::NotYet => {
                    self.schedule(number);
                    return Ok(());
                }
                IssueOutcome::Blocked(wait) => {
                    self.threads[number as usize].wait = wait;
                    return Ok(());
                }
            }
        }
    }

    /// Takes the thread's next reference, as a range of lines.
    fn next_reference(&mut self, number: u32) -> Result<Option<PendingLines>, SimError> {
        let thread = &mut self.threads[number as usize];
        let Some(reference) = thread.source.next() else { return Ok(None) };
        let reference = reference?;
        self.taken += 1;
        let end = reference.addr.saturating_add(u64::from(reference.size.max(1)));
        let lines = self.device.capacity().0 / LINE_BYTES;
        let (mut line, mut last) = (reference.addr / LINE_BYTES, (end - 1) / LINE_BYTES);
        if last >= lines {
            if !self.options.wrap || last - line >= lines {
                return Err(SimError::OutOfRange {
                    number: self.taken,
                    offset: reference.addr,
                    end,
                    capacity: self.device.capacity().0,
                });
            }
            let span = last - line;
            line = (line % lines).min(lines - 1 - span);
            last = line + span;
        }
        let pending =
            PendingLines { line, last, store: reference.access == deepram_trace::MemoryAccess::Store };
        thread.gap = u64::from(reference.gap);
        thread.pending = Some(pending);
        Ok(Some(pending))
    }

    /// Advances past a line of the reference that has been issued.
    #[inline]
    fn consume(&mut self, number: u32, pending: PendingLines) -> Result<(), SimError> {
        let thread = &mut self.threads[number as usize];
        if pending.line < pending.last {
            thread.pending = Some(PendingLines { line: pending.line + 1, ..pending });
            return Ok(());
        }
        thread.pending = None;
        thread.tally.references += 1;
        if self.warm_up_left > 0 { self.count_warm_up(number) } else { Ok(()) }
    }

    /// Counts references of the warm-up, and begins measuring after the last.
    fn count_warm_up(&mut self, number: u32) -> Result<(), SimError> {
        self.warm_up_left -= 1;
        if self.warm_up_left > 0 {
            return Ok(());
        }
        let time = self.threads[number as usize].front;
        self.device.begin_measuring();
        self.base = Baseline {
            time,
            tallies: self.threads.iter().map(|thread| thread.tally_at(time)).collect(),
            lines: self.lines,
            flash: self.device.counts(),
        };
        self.times = times()?;
        Ok(())
    }

    /// Ends a thread whose references are used up, once its loads have their data.
    fn end_thread(&mut self, number: u32, now: Time) -> Result<(), SimError> {
        let thread = &mut self.threads[number as usize];
        if !thread.drain() {
            thread.wait = WaitReason::Load;
        } else if thread.front > now {
            self.schedule(number);
        } else {
            thread.ended = now;
            self.leave_core(number, ThreadState::Done);
        }
        Ok(())
    }

    fn finish(self) -> Result<ProcessorResult, SimError> {
        self.check()?;
        let end = self.threads.iter().map(|thread| thread.ended).max().unwrap_or(0);
        let (base, cycle) = (&self.base, self.options.cycle.0);
        let time = end.saturating_sub(base.time);
        let tallies: Vec<ThreadCounts> =
            self.threads.iter().zip(&base.tallies).map(|(thread, then)| thread.tally.since(then)).collect();
        let threads = self
            .threads
            .iter()
            .zip(&tallies)
            .map(|(thread, tally)| thread_result(tally, thread.ended.saturating_sub(base.time), cycle))
            .collect();
        let instructions = tallies.iter().map(|tally| tally.instructions).sum();
        let cycles = time as f64 / cycle as f64;
        Ok(ProcessorResult {
            threads,
            instructions,
            references: tallies.iter().map(|tally| tally.references).sum(),
            cycles,
            ipc: if time == 0 { 0.0 } else { instructions as f64 / cycles },
            time_ns: time as f64 / 1e3,
            time: Picos(time),
            lines: self.lines.since(&base.lines),
            read: self.times.read.summary(),
            slept: self.times.slept.summary(),
            written: self.times.written.summary(),
            counts: self.device.counts().since(&base.flash),
            options: self.options,
        })
    }

    /// Checks the conservation laws at the end of the run.
    fn check(&self) -> Result<(), SimError> {
        let broken = |law, found| Err(SimError::Conservation { law, found });
        if self.context.queue.late() != 0 {
            let found = format!("{} were", self.context.queue.late());
            return broken("no event is scheduled into the past", found);
        }
        let under_way = self.accesses.len() - self.free.len();
        let misses: u32 = self.cores.iter().map(|core| core.misses).sum();
        if under_way != 0 || misses != 0 || self.writes_under_way != 0 || !self.waiting_writes.is_empty() {
            return broken(
                "every access sent to the device completes",
                format!(
                    "{under_way} are under way, {misses} MSHRs and {} entries of the write buffer are in use, {} lines wait",
                    self.writes_under_way,
                    self.waiting_writes.len()
                ),
            );
        }
        for (number, thread) in self.threads.iter().enumerate() {
            if thread.state != ThreadState::Done {
                return broken(
                    "every thread ends",
                    format!("thread {number} is {:?}, waiting for {:?}", thread.state, thread.wait),
                );
            }
            let tally = &thread.tally;
            let (on_core, life) = (tally.computing + tally.stalled + tally.software, thread.ended);
            if on_core != tally.on_core || tally.on_core + tally.asleep + tally.runnable != life {
                return broken(
                    "a thread's time is computing, stalled, software, asleep and runnable",
                    format!("thread {number}: {tally:?} in {life} ps"),
                );
            }
        }
        if let Some(llc) = &self.llc {
            llc.check()?;
        }
        self.device.check()
    }
}
