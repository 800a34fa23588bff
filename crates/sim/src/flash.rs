//! Flash operations counted by cause, and the conservation laws that bind the counts.

use deepram_media::{Nand, NandOp, Picos, power_energy};
use serde::Serialize;

use crate::error::SimError;

/// Page reads, page programs and block erases since the start, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FlashCounts {
    /// Pages read for the host.
    pub host_reads: u64,
    /// Pages read to complete a partial write.
    pub merge_reads: u64,
    /// Pages read by reclamation and wear levelling.
    pub move_reads: u64,
    /// Pages of the mapping table read.
    pub mapping_reads: u64,
    /// Pages of data programmed for the host.
    pub host_programs: u64,
    /// Pages programmed by reclamation and wear levelling.
    pub move_programs: u64,
    /// Pages of the mapping table programmed.
    pub mapping_programs: u64,
    /// Summary pages programmed at the ends of blocks.
    pub summary_programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Multi-plane array operations.
    pub multi_plane: u64,
    /// Pages read by multi-plane operations.
    pub multi_plane_reads: u64,
    /// Pages programmed by multi-plane operations.
    pub multi_plane_programs: u64,
    /// Programs and erases suspended for a read.
    pub suspensions: u64,
    /// Hits of the mapping cache.
    pub mapping_hits: u64,
    /// Misses of the mapping cache.
    pub mapping_misses: u64,
    /// Page writes that overwrote an older version in the write buffer.
    pub buffer_overwrites: u64,
    /// Page reads served by the write buffer.
    pub buffer_read_hits: u64,
    /// Pages that the host wrote, to the write buffer or to flash.
    pub host_pages: u64,
    /// Pages that the host trimmed.
    pub trimmed_pages: u64,
}

impl FlashCounts {
    /// All pages read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.host_reads + self.merge_reads + self.move_reads + self.mapping_reads
    }

    /// All pages programmed.
    #[must_use]
    pub fn programs(&self) -> u64 {
        self.host_programs + self.move_programs + self.mapping_programs + self.summary_programs
    }

    /// Dynamic and static energy over `time` by component, in picojoules, of `packages` packages: the
    /// energy of each operation, and standby.
    pub(crate) fn energy_pj(&self, nand: &Nand, packages: u64, time: Picos) -> [(&'static str, f64, f64); 4] {
        let cost = |op: NandOp, count: u64| nand.energy(op).times(count).0;
        let standby = power_energy(nand.standby_power(), time).0 * packages as f64;
        [
            ("flash read", cost(NandOp::Read, self.reads()), 0.0),
            ("flash program", cost(NandOp::Program, self.programs()), 0.0),
            ("flash erase", cost(NandOp::Erase, self.erases), 0.0),
            ("flash standby", 0.0, standby),
        ]
    }

    /// Write amplification: all programs divided by the programs that the host's writes needed; 1 if
    /// there were none.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.host_programs == 0 { 1.0 } else { self.programs() as f64 / self.host_programs as f64 }
    }

    /// The counts after `base`, an earlier moment of the same counters.
    #[must_use]
    pub fn since(&self, base: &Self) -> Self {
        Self {
            host_reads: self.host_reads - base.host_reads,
            merge_reads: self.merge_reads - base.merge_reads,
            move_reads: self.move_reads - base.move_reads,
            mapping_reads: self.mapping_reads - base.mapping_reads,
            host_programs: self.host_programs - base.host_programs,
            move_programs: self.move_programs - base.move_programs,
            mapping_programs: self.mapping_programs - base.mapping_programs,
            summary_programs: self.summary_programs - base.summary_programs,
            erases: self.erases - base.erases,
            multi_plane: self.multi_plane - base.multi_plane,
            multi_plane_reads: self.multi_plane_reads - base.multi_plane_reads,
            multi_plane_programs: self.multi_plane_programs - base.multi_plane_programs,
            suspensions: self.suspensions - base.suspensions,
            mapping_hits: self.mapping_hits - base.mapping_hits,
            mapping_misses: self.mapping_misses - base.mapping_misses,
            buffer_overwrites: self.buffer_overwrites - base.buffer_overwrites,
            buffer_read_hits: self.buffer_read_hits - base.buffer_read_hits,
            host_pages: self.host_pages - base.host_pages,
            trimmed_pages: self.trimmed_pages - base.trimmed_pages,
        }
    }
}

/// Checks a conservation law.
/// # Errors
/// [`SimError::Conservation`] with the law unless `found == expected`.
pub(crate) fn law(law: &'static str, found: u64, expected: u64) -> Result<(), SimError> {
    if found == expected {
        return Ok(());
    }
    Err(SimError::Conservation { law, found: format!("{found}, not {expected}") })
}
