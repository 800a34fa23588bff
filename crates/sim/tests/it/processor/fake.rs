//! Test devices simple enough to be correct by inspection: one with fixed latencies, and one with random behaviour.

use deepram_core::units::{Bytes, Picos};
use deepram_sim::SimError;
use deepram_sim::flash::FlashCounts;
use deepram_sim::host::{Command, Context, Device, Slot};
use deepram_trace::Op;
use deepram_trace::workload::Rng;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Sleep(Slot),
    Wake(Slot),
    Done(Slot),
}

/// A memory with fixed latencies, whose accesses stall or sleep.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) capacity: u64,
    /// Latencies of stalling reads and writes, picoseconds.
    pub(crate) read: u64,
    pub(crate) write: u64,
    /// Software time before the sleep, sleep, and software time after it, picoseconds. Reads sleep if `sleep` is not 0.
    pub(crate) before: u64,
    pub(crate) sleep: u64,
    pub(crate) after: u64,
    pub(crate) limit: u64,
    pub(crate) inside: u64,
    pub(crate) writes: u64,
    pub(crate) most: u64,
    pub(crate) most_writes: u64,
    pub(crate) log: Vec<(u64, Command)>,
    /// Number of an access that never completes.
    pub(crate) lose: Option<usize>,
    pub(crate) is_write: Vec<bool>,
}

impl Fake {
    pub(crate) fn stalling(read: u64) -> Self {
        Self { capacity: 1 << 40, read, write: read, limit: u64::MAX, ..Self::default() }
    }

    pub(crate) fn sleeping(before: u64, sleep: u64, after: u64) -> Self {
        Self { before, sleep, after, ..Self::stalling(before + sleep + after) }
    }

    pub(crate) fn reads(&self) -> usize {
        self.log.iter().filter(|(_, command)| command.op == Op::Read).count()
    }

    fn ends(&mut self, slot: Slot) {
        self.inside -= 1;
        self.writes -= u64::from(self.is_write[slot as usize]);
    }
}

impl Device for Fake {
    type Event = Step;

    fn capacity(&self) -> Bytes {
        Bytes(self.capacity)
    }

    fn queue_limit(&self) -> u64 {
        self.limit
    }

    fn submit(&mut self, slot: Slot, command: Command, context: &mut Context<Step>) -> Result<(), SimError> {
        let len = if command.op == Op::Flush { 0 } else { 64 };
        assert_eq!((command.len, command.offset % 64), (len, 0));
        let now = context.now().0;
        self.log.push((now, command));
        let write = command.op == Op::Write;
        self.is_write.resize(self.is_write.len().max(slot as usize + 1), false);
        self.is_write[slot as usize] = write;
        self.inside += 1;
        self.writes += u64::from(write);
        self.most = self.most.max(self.inside);
        self.most_writes = self.most_writes.max(self.writes);
        assert!(self.inside <= self.limit);
        if self.lose == Some(self.log.len() - 1) {
            return Ok(());
        }
        if self.sleep > 0 && !write {
            context.schedule(Picos(now + self.before), Step::Sleep(slot));
        } else {
            let latency = if write { self.write } else { self.read };
            context.schedule(Picos(now + latency), Step::Done(slot));
        }
        Ok(())
    }

    fn handle(&mut self, step: Step, context: &mut Context<Step>) -> Result<(), SimError> {
        match step {
            Step::Sleep(slot) => {
                context.sleep(slot);
                context.schedule(Picos(context.now().0 + self.sleep), Step::Wake(slot));
            }
            Step::Wake(slot) => {
                self.ends(slot);
                context.resume(slot, Picos(self.after));
            }
            Step::Done(slot) => {
                self.ends(slot);
                context.complete(slot);
            }
        }
        Ok(())
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts::default()
    }

    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}

/// A device whose accesses at random complete at once, stall, sleep, or wake up without having slept.
pub(crate) struct Chaos {
    pub(crate) random: Rng,
    pub(crate) limit: u64,
    pub(crate) inside: u64,
}

impl Device for Chaos {
    type Event = Step;

    fn capacity(&self) -> Bytes {
        Bytes(1 << 20)
    }

    fn queue_limit(&self) -> u64 {
        self.limit
    }

    fn submit(&mut self, slot: Slot, _: Command, context: &mut Context<Step>) -> Result<(), SimError> {
        self.inside += 1;
        let later = context.now().0 + self.random.below(20_000);
        match self.random.below(5) {
            0 => {
                self.inside -= 1;
                context.complete(slot);
            }
            1 => context.schedule(Picos(later), Step::Done(slot)),
            2 => context.schedule(Picos(later), Step::Wake(slot)),
            _ => context.schedule(Picos(later), Step::Sleep(slot)),
        }
        Ok(())
    }

    fn handle(&mut self, step: Step, context: &mut Context<Step>) -> Result<(), SimError> {
        let later = context.now().0 + self.random.below(30_000);
        match step {
            Step::Sleep(slot) => {
                context.sleep(slot);
                match self.random.below(4) {
                    0 => self.handle(Step::Wake(slot), context)?,
                    1 => context.schedule(Picos(later), Step::Done(slot)),
                    _ => context.schedule(Picos(later), Step::Wake(slot)),
                }
            }
            Step::Wake(slot) => {
                self.inside -= 1;
                context.resume(slot, Picos(self.random.below(3) * 4000));
            }
            Step::Done(slot) => {
                self.inside -= 1;
                context.complete(slot);
            }
        }
        Ok(())
    }

    fn counts(&self) -> FlashCounts {
        FlashCounts::default()
    }

    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}
