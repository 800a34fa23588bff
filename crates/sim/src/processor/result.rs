//! What a processor measured.

use serde::Serialize;

use super::options::ProcessorOptions;
use super::thread::ThreadCounts;
use crate::engine::Time;
use crate::flash::FlashCounts;
use crate::metrics::{Latencies, LatencySummary};
use crate::result::counts;

counts! {
    /// Lines asked of the last-level cache, by what became of them.
    pub struct LineCounts {
        /// Lines that were there.
        pub hits: u64,
        /// Lines that the thread had asked memory for already.
        pub merged: u64,
        /// Lines asked of memory.
        pub misses: u64,
        /// Lines sent to memory: dirty ones that left, and stores where there is no cache.
        pub written: u64,
        /// Misses that waited for their thread's older loads, because they were page faults.
        pub faults: u64,
        /// Times that a thread waited for room for a miss.
        pub mshr_waits: u64,
        /// Times that a line waited for room in the write buffer.
        pub write_waits: u64,
        /// Lines on their way to memory that the device put to sleep: pages that had left before them.
        pub written_asleep: u64,
        /// Times that a core went over to another thread.
        pub switches: u64,
    }
}

impl LineCounts {
    /// Share of the lines asked for that the cache had; 0 of none.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.merged + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// What one thread did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadResult {
    /// Instructions.
    pub instructions: u64,
    /// References to memory.
    pub references: u64,
    /// Instructions a cycle, from the start of measuring to the thread's end.
    pub ipc: f64,
    /// From the start of measuring to its end.
    pub time_ns: f64,
    /// On a core, instructions issuing.
    pub computing_ns: f64,
    /// On a core, waiting for memory (or for software that the device let pass before it slept).
    pub stalled_ns: f64,
    /// On a core, in software after accesses and in switches.
    pub software_ns: f64,
    /// Asleep until an access was over.
    pub asleep_ns: f64,
    /// Wanting a core.
    pub runnable_ns: f64,
    /// Accesses that it slept for.
    pub sleeps: u64,
    /// Times that its quantum was over and another thread took the core.
    pub preemptions: u64,
}

/// What a processor did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessorResult {
    /// The processor.
    pub options: ProcessorOptions,
    /// Thread by thread.
    pub threads: Vec<ThreadResult>,
    /// Instructions of all threads.
    pub instructions: u64,
    /// References of all threads.
    pub references: u64,
    /// Cycles from the start of measuring to the end of the last thread.
    pub cycles: f64,
    /// Instructions of all threads a cycle.
    pub ipc: f64,
    /// From the start of measuring to the end of the last thread.
    pub time_ns: f64,
    /// The same in picoseconds.
    #[serde(skip)]
    pub time_ps: Time,
    /// Lines and what became of them.
    pub lines: LineCounts,
    /// Device accesses that a core waited for: from sending to data.
    pub read: LatencySummary,
    /// Device accesses that a thread slept for: from sending to the end of their software.
    pub slept: LatencySummary,
    /// Lines written to the device: from leaving to done.
    pub written: LatencySummary,
    /// Flash operations.
    #[serde(skip)]
    pub counts: FlashCounts,
}

impl ProcessorResult {
    /// Instructions a cycle relative to another run of the same work; 0 if that did nothing.
    #[must_use]
    pub fn normalised_to(&self, other: &ProcessorResult) -> f64 {
        if other.ipc > 0.0 { self.ipc / other.ipc } else { 0.0 }
    }

    /// Of all threads' time from the start of measuring to their ends, the shares of: computing, stalled
    /// on memory, in software, asleep, wanting a core. They add up to 1 where there was any time.
    #[must_use]
    pub fn time_shares(&self) -> [f64; 5] {
        let sum = |of: fn(&ThreadResult) -> f64| self.threads.iter().map(of).sum::<f64>();
        let parts = [
            sum(|t| t.computing_ns),
            sum(|t| t.stalled_ns),
            sum(|t| t.software_ns),
            sum(|t| t.asleep_ns),
            sum(|t| t.runnable_ns),
        ];
        let all: f64 = parts.iter().sum();
        parts.map(|part| if all > 0.0 { part / all } else { 0.0 })
    }
}

/// The time that an access to the device took, by how it ended.
pub(super) struct AccessLatencies {
    pub(super) read: Latencies,
    pub(super) slept: Latencies,
    pub(super) written: Latencies,
}

pub(super) fn thread_result(tally: &ThreadCounts, time: Time, cycle: Time) -> ThreadResult {
    let ns = |ps: Time| ps as f64 / 1e3;
    let cycles = time as f64 / cycle as f64;
    ThreadResult {
        instructions: tally.instructions,
        references: tally.references,
        ipc: if time == 0 { 0.0 } else { tally.instructions as f64 / cycles },
        time_ns: ns(time),
        computing_ns: ns(tally.computing),
        stalled_ns: ns(tally.stalled),
        software_ns: ns(tally.software),
        asleep_ns: ns(tally.asleep),
        runnable_ns: ns(tally.runnable),
        sleeps: tally.sleeps,
        preemptions: tally.preemptions,
    }
}
