//! The memories: latency of loads, and one queue for each memory's bandwidth.
//!
//! A batch is the lines that a core moves in one go. Its loads overlap, up to the core's limit. Reads, writes and flushed
//! lines take their turn in one queue, in the order in which batches begin. A core does not wait for lines that it only
//! writes, unless they are to be durable, but it can be ahead of the memory by no more than its limit.

use deepram_media::{Bandwidth, Picos};

use crate::engine::Time;
use crate::processor::LINE_BYTES;

/// A memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Dram = 0,
    Persistent = 1,
}

/// Lines that a core moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    /// Processor time, in which loads overlap.
    pub(super) core: Time,
    /// The memory of the loads.
    pub(super) medium: Medium,
    /// Lines whose data the core needs.
    pub(super) loads: u64,
    /// Further lines read from or written to each memory.
    pub(super) others: [u64; 2],
    /// The batch ends when the memory has taken all of its lines.
    pub(super) wait: bool,
}

impl Batch {
    /// Processor time without any line.
    pub(super) fn core(core: Time, medium: Medium) -> Self {
        Self { core, medium, loads: 0, others: [0; 2], wait: false }
    }
}

/// Busy time and lines of a memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemoryTotals {
    pub(super) busy: Time,
    pub(super) lines: u64,
}

struct Queue {
    line: Time,
    latency: Time,
    free: Time,
    totals: MemoryTotals,
}

/// The memories of a server.
pub(super) struct Memories {
    queues: [Queue; 2],
    overlap: u64,
}

impl Memories {
    /// Memories of these bandwidths and load latencies, DRAM first; a core loads `overlap` lines at once.
    pub(super) fn new(of: [(Bandwidth, Picos); 2], overlap: u64) -> Self {
        let queues = of.map(|(bandwidth, latency)| Queue {
            line: ((LINE_BYTES as f64 / bandwidth.0 * 1e12).round() as u64).max(1),
            latency: latency.0,
            free: 0,
            totals: MemoryTotals::default(),
        });
        Self { queues, overlap: overlap.max(1) }
    }

    /// Begins a batch at `now`. Returns its end.
    pub(super) fn begin(&mut self, now: Time, batch: &Batch) -> Time {
        let mut end = now + batch.core;
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let loads = if at == batch.medium as usize { batch.loads } else { 0 };
            let lines = loads + batch.others[at];
            if lines == 0 {
                continue;
            }
            let start = queue.free.max(now);
            queue.free = start + lines * queue.line;
            queue.totals.busy += lines * queue.line;
            queue.totals.lines += lines;
            if loads > 0 {
                let issued = now + (loads - 1) * queue.latency / self.overlap;
                end = end.max(issued.max(start + (loads - 1) * queue.line) + queue.latency);
            }
            let ahead = if batch.wait { 0 } else { self.overlap * queue.line };
            end = end.max(queue.free.saturating_sub(ahead));
        }
        end
    }

    /// The totals of a memory since the start.
    pub(super) fn totals(&self, medium: Medium) -> MemoryTotals {
        self.queues[medium as usize].totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: u64 = 300_000;
    /// 64 B at 6.4 GB/s.
    const LINE: u64 = 10_000;

    fn memories() -> Memories {
        Memories::new([(Bandwidth(51.2e9), Picos(150_000)), (Bandwidth(6.4e9), Picos(LATENCY))], 10)
    }

    fn batch(loads: u64, written: u64) -> Batch {
        Batch { loads, others: [0, written], ..Batch::core(0, Medium::Persistent) }
    }

    #[test]
    fn loads_overlap_up_to_the_limit_of_the_core_and_to_the_bandwidth() {
        assert_eq!(memories().begin(7, &batch(1, 0)), 7 + LATENCY);
        // The last of 11 loads is issued when the first returns.
        assert_eq!(memories().begin(0, &batch(11, 0)), 2 * LATENCY);
        let mut slow = memories();
        slow.overlap = 1000;
        assert_eq!(slow.begin(0, &batch(101, 0)), 100 * LINE + LATENCY);
        let longer = Batch { core: 900_000, ..batch(1, 0) };
        assert_eq!(memories().begin(0, &longer), 900_000);
    }

    #[test]
    fn a_core_is_ahead_of_its_writes_by_ten_lines_unless_it_waits_for_them() {
        assert_eq!(memories().begin(0, &batch(0, 10)), 0);
        assert_eq!(memories().begin(0, &batch(0, 25)), 15 * LINE);
        assert_eq!(memories().begin(0, &Batch { wait: true, ..batch(0, 25) }), 25 * LINE);
    }

    #[test]
    fn batches_queue_for_the_bandwidth_of_their_memory_alone() {
        let mut memories = memories();
        memories.begin(0, &batch(0, 1000));
        assert_eq!(memories.begin(5, &batch(1, 0)), 1000 * LINE + LATENCY);
        assert_eq!(memories.begin(5, &Batch { medium: Medium::Dram, ..batch(1, 0) }), 150_005);
        assert_eq!(memories.totals(Medium::Persistent), MemoryTotals { busy: 1001 * LINE, lines: 1001 });
    }
}
