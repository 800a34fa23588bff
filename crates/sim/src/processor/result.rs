//! The measurements of a processor.

use deepram_core::units::Picos;
use serde::Serialize;

use super::options::ProcessorOptions;
use super::thread::ThreadCounts;
use crate::engine::Time;
use crate::flash::FlashCounts;
use crate::metrics::{Latencies, LatencySummary};
use crate::result::counts;

counts! {
    /// Lines requested from the last-level cache, by outcome.
    pub struct LineCounts {
        /// Lines that hit.
        pub hits: u64,
        /// Lines merged with an earlier miss of the same thread.
        pub merged: u64,
        /// Lines requested from memory.
        pub misses: u64,
        /// Lines written to memory: evicted dirty lines, and stores where there is no cache.
        pub written: u64,
        /// Misses that were page faults and so waited for their thread's older loads.
        pub faults: u64,
        /// Waits of a thread for an MSHR.
        pub mshr_waits: u64,
        /// Waits of a line for room in the write buffer.
        pub write_waits: u64,
        /// Line writes that the device put to sleep because their page had left memory.
        pub written_asleep: u64,
        /// Syncs.
        pub syncs: u64,
        /// Dirty lines that syncs wrote to memory.
        pub synced: u64,
        /// Switches of a core to another thread.
        pub switches: u64,
    }
}

impl LineCounts {
    /// Hits divided by all lines requested; 0 without requests.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.merged + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// The measurements of one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadResult {
    /// Instructions.
    pub instructions: u64,
    /// References to memory.
    pub references: u64,
    /// Instructions per cycle, from the start of measuring to the thread's end.
    pub ipc: f64,
    /// Time from the start of measuring to the thread's end.
    pub time_ns: f64,
    /// Time on a core issuing instructions.
    pub computing_ns: f64,
    /// Time on a core stalled on memory (or on software before a sleep, whose time the device let pass).
    pub stalled_ns: f64,
    /// Time on a core in software after accesses and in switches.
    pub software_ns: f64,
    /// Time asleep until an access was complete.
    pub asleep_ns: f64,
    /// Time runnable, waiting for a core.
    pub runnable_ns: f64,
    /// Accesses that the thread slept for.
    pub sleeps: u64,
    /// Preemptions: the quantum had expired and another thread took the core.
    pub preemptions: u64,
}

/// The measurements of a processor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessorResult {
    /// The processor.
    pub options: ProcessorOptions,
    /// The measurements of each thread.
    pub threads: Vec<ThreadResult>,
    /// Instructions of all threads.
    pub instructions: u64,
    /// References of all threads.
    pub references: u64,
    /// Cycles from the start of measuring to the end of the last thread.
    pub cycles: f64,
    /// Instructions of all threads per cycle.
    pub ipc: f64,
    /// From the start of measuring to the end of the last thread.
    pub time_ns: f64,
    /// The measured time, exact.
    #[serde(skip)]
    pub time: Picos,
    /// Lines by outcome.
    pub lines: LineCounts,
    /// Device accesses without sleep: from sending to the arrival of the data.
    pub read: LatencySummary,
    /// Device accesses with sleep: from sending to the end of their software.
    pub slept: LatencySummary,
    /// Line writes to the device: from sending to completion.
    pub written: LatencySummary,
    /// Flushes of the device by syncs: from sending to the end of their software.
    pub synced: LatencySummary,
    /// Flash operations.
    #[serde(skip)]
    pub counts: FlashCounts,
}

impl ProcessorResult {
    /// Instructions per cycle relative to another run of the same work; 0 if the other run executed
    /// none.
    #[must_use]
    pub fn normalised_to(&self, other: &ProcessorResult) -> f64 {
        if other.ipc > 0.0 { self.ipc / other.ipc } else { 0.0 }
    }

    /// The shares of all threads' time, from the start of measuring to their ends, that were spent
    /// computing, stalled on memory, in software, asleep and runnable. They add up to 1 where there was
    /// any time.
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

/// Latencies of device accesses, by kind.
pub(super) struct AccessLatencies {
    pub(super) read: Latencies,
    pub(super) slept: Latencies,
    pub(super) written: Latencies,
    pub(super) synced: Latencies,
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
