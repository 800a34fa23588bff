//! DiskSim's ASCII format.
//!
//! `time device lba sectors flags`, separated by blanks: time in milliseconds with decimals,
//! address and length in sectors of 512 bytes, flags in hexadecimal with bit 0 set for a read.

use super::{Clock, Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{
    Reason, blank_fields, check_end, field_count, hex, in_bytes, time_ps, uint, uint32,
};
use deepram_core::units::PS_PER_MS;

pub(super) struct DiskSim {
    clock: Clock,
    unit: u64,
}

impl DiskSim {
    pub(super) fn new(options: &ReadOptions) -> DiskSim {
        DiskSim { clock: Clock::new(options, false), unit: options.unit(Format::DiskSim) }
    }
}

impl LineParser for DiskSim {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let (f, n) = blank_fields::<5>(line);
        if n != 5 {
            return Err(field_count(n, "5: time device lba sectors flags"));
        }
        let time = time_ps(f[0], PS_PER_MS, "time")?;
        let device = uint32(f[1], "device")?;
        let offset = in_bytes(uint(f[2], "lba")?, self.unit, "lba")?;
        let len = in_bytes(uint(f[3], "sectors")?, self.unit, "sectors")?;
        check_end(offset, len)?;
        let op = if hex(f[4], "flags")? & 1 == 1 { Op::Read } else { Op::Write };
        Ok(Parsed::One(Item::Block(Request { time_ps: self.clock.at(time)?, device, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
