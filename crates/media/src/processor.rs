//! Processors, as far as a memory system feels them: how fast they ask, how much they keep under way.

use deepram_core::units::{Bytes, Picos};

use crate::model::{Fault, kind};

kind! {
    /// A processor of equal cores that share a last-level cache.
    Processor = "processor";
    parts {}
    fields {
        /// Cores.
        cores: u64,
        /// Time of a clock cycle.
        cycle: Picos,
        /// Instructions that a core completes in a cycle when nothing stalls it.
        width: u64,
        /// Bytes of the last-level cache; 0 for none.
        llc: Bytes,
        /// Lines of a set of the last-level cache.
        llc_ways: u64,
        /// Cycles from a load to its data out of the last-level cache.
        llc_hit: u64,
        /// Misses that a core has under way at once.
        misses: u64,
        /// Instructions under way at once: how far a core runs on past a load whose data are not there.
        window: u64,
        /// Lines on their way from the last-level cache to memory at once.
        write_buffer: u64,
        /// Time for which a thread keeps its core when others want it.
        quantum: Picos,
        /// Time that a core is slow after it went over to another thread, because its caches are cold.
        switch: Picos,
    }
    derived {}
}

impl Processor {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.cores > 1 << 12 {
            return Err(Fault::new("cores", "must be at most 4096"));
        }
        if self.width > 64 {
            return Err(Fault::new("width", "must be at most 64 instructions a cycle"));
        }
        if self.cycle.0 == 0 {
            return Err(Fault::new("cycle", "must be at least 1 ps"));
        }
        if self.quantum.0 == 0 {
            return Err(Fault::new("quantum", "must be longer than nothing"));
        }
        if self.llc_ways > 1 << 10 {
            return Err(Fault::new("llc_ways", "must be at most 1024"));
        }
        let set = self.llc_ways.saturating_mul(64);
        if !self.llc.0.is_multiple_of(set) || self.llc.0 > 1 << 36 {
            return Err(Fault::new("llc", format!("must be a multiple of a set, {set} B, up to 64 GiB")));
        }
        Ok(())
    }
}
