//! Processors as seen by a memory system: request rate and memory-level parallelism.

use deepram_core::units::{Bytes, Picos};

use crate::model::{InvalidFigure, kind};

kind! {
    /// A processor of equal cores that share a last-level cache.
    Processor = "processor";
    parts {}
    fields {
        /// Number of cores.
        cores: u64,
        /// Clock period.
        cycle: Picos,
        /// Instructions that a core completes in a cycle without stalls.
        width: u64,
        /// Size of the last-level cache; 0 for none.
        llc: Bytes,
        /// Ways of the last-level cache.
        llc_ways: u64,
        /// Hit latency of the last-level cache, in cycles.
        llc_hit: u64,
        /// Outstanding misses of a core.
        misses: u64,
        /// Instruction window: how many instructions a core executes past a load that waits for its
        /// data.
        window: u64,
        /// Lines in transfer from the last-level cache to memory at once.
        write_buffer: u64,
        /// Scheduling quantum: time for which a thread keeps its core while others are runnable.
        quantum: Picos,
        /// Time lost to cold caches after a core switches to another thread.
        switch: Picos,
    }
    derived {}
}

impl Processor {
    pub(crate) fn check(&self) -> Result<(), InvalidFigure> {
        if self.cores > 1 << 12 {
            return Err(InvalidFigure::new("cores", "must be at most 4096"));
        }
        if self.width > 64 {
            return Err(InvalidFigure::new("width", "must be at most 64 instructions a cycle"));
        }
        if self.cycle.0 == 0 {
            return Err(InvalidFigure::new("cycle", "must be at least 1 ps"));
        }
        if self.quantum.0 == 0 {
            return Err(InvalidFigure::new("quantum", "must be more than 0"));
        }
        if self.llc_ways > 1 << 10 {
            return Err(InvalidFigure::new("llc_ways", "must be at most 1024"));
        }
        let set = self.llc_ways.saturating_mul(64);
        if !self.llc.0.is_multiple_of(set) || self.llc.0 > 1 << 36 {
            return Err(InvalidFigure::new(
                "llc",
                format!("must be a multiple of a set, {set} B, up to 64 GiB"),
            ));
        }
        Ok(())
    }
}
