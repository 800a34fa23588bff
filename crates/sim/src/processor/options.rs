//! Options of the processor and of its run.

use deepram_core::units::{Bytes, Picos};
use deepram_media::Processor;
use serde::Serialize;

use crate::engine::Time;
use crate::error::SimError;

/// The processor and its run. The figures come from a preset ([`ProcessorOptions::new`]), which gives
/// the source of each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessorOptions {
    /// Number of cores. More threads than cores take turns.
    pub cores: u32,
    /// Time of a clock cycle, in picoseconds.
    #[serde(rename = "cycle_ps", serialize_with = "crate::quantity::picos")]
    pub cycle: Picos,
    /// Instructions per cycle of a core that is not stalled.
    pub width: u64,
    /// Size of the last-level cache, bytes; 0 for none.
    #[serde(rename = "llc_bytes", serialize_with = "crate::quantity::bytes")]
    pub llc: Bytes,
    /// Ways of the last-level cache.
    pub llc_ways: u64,
    /// Cycles from a load to its data on a hit in the last-level cache. A miss adds them to the memory's
    /// time.
    pub llc_hit_cycles: u64,
    /// Maximum misses of a core under way.
    pub mshrs: u32,
    /// Instruction window: instruction n + window waits for load n.
    pub window: u64,
    /// Blocking loads, as in a walk along pointers: nothing issues past a load before its data arrive.
    pub blocking: bool,
    /// Maximum line writes to memory under way.
    pub write_buffer: u32,
    /// Scheduling quantum: the time for which a thread keeps its core while others wait, in picoseconds.
    #[serde(rename = "quantum_ps", serialize_with = "crate::quantity::picos")]
    pub quantum: Picos,
    /// Time that a core loses when it switches to another thread, in picoseconds. The operating system's
    /// own time is not included: devices that put threads to sleep count it.
    #[serde(rename = "switch_ps", serialize_with = "crate::quantity::picos")]
    pub switch: Picos,
    /// Wraps addresses past the device's end around instead of reporting an error.
    pub wrap: bool,
}

impl ProcessorOptions {
    /// The processor of a preset, with non-blocking loads and no wrapping.
    ///
    /// # Errors
    /// A figure is too large for its field.
    pub fn new(processor: &Processor) -> Result<Self, SimError> {
        let small = |key: &str, value: u64| {
            u32::try_from(value)
                .map_err(|_| SimError::config(key, format!("{value} is too many: at most 2^32 - 1")))
        };
        Ok(Self {
            cores: small("cores", processor.cores)?,
            cycle: processor.cycle,
            width: processor.width,
            llc: processor.llc,
            llc_ways: processor.llc_ways,
            llc_hit_cycles: processor.llc_hit,
            mshrs: small("misses", processor.misses)?,
            window: processor.window,
            blocking: false,
            write_buffer: small("write_buffer", processor.write_buffer)?,
            quantum: processor.quantum,
            switch: processor.switch,
            wrap: false,
        })
    }

    pub(super) fn check(&self) -> Result<(), SimError> {
        for (key, value) in [
            ("cores", u64::from(self.cores)),
            ("cycle_ps", self.cycle.0),
            ("width", self.width),
            ("mshrs", u64::from(self.mshrs)),
            ("window", self.window),
            ("write_buffer", u64::from(self.write_buffer)),
            ("quantum_ps", self.quantum.0),
        ] {
            if value == 0 {
                return Err(SimError::config(key, "must be at least 1"));
            }
        }
        if self.cores > 1 << 12 {
            return Err(SimError::config("cores", format!("{} are too many: at most 4096", self.cores)));
        }
        if self.cycle.0 > 1 << 40 || self.width > 1 << 10 || self.llc_hit_cycles > 1 << 20 {
            return Err(SimError::config(
                "cycle_ps, width, llc_hit_cycles",
                "must be at most 2^40 ps, 1024 instructions and 2^20 cycles",
            ));
        }
        Ok(())
    }

    /// Time from a load to its data on a hit in the last-level cache; 0 without a cache.
    pub(super) fn hit_ps(&self) -> Time {
        if self.llc.0 == 0 { 0 } else { self.llc_hit_cycles * self.cycle.0 }
    }
}
