//! The ASCII format of SSDsim and MQSim.
//!
//! `time device lba sectors op`, separated by blanks: time in nanoseconds, address and length in
//! sectors of 512 bytes, op 1 for a read and 0 for a write.

use super::{Clock, Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, blank_fields, check_end, field_count, in_bytes, shorten, uint, uint32};
use deepram_core::units::PS_PER_NS;

pub(super) struct Mqsim {
    clock: Clock,
    unit: u64,
}

impl Mqsim {
    pub(super) fn new(options: &ReadOptions) -> Mqsim {
        Mqsim { clock: Clock::new(options, false), unit: options.unit(Format::Mqsim) }
    }
}

impl LineParser for Mqsim {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let (f, n) = blank_fields::<5>(line);
        if n != 5 {
            return Err(field_count(n, "5: time device lba sectors op"));
        }
        let time = u128::from(uint(f[0], "time")?) * u128::from(PS_PER_NS);
        let device = uint32(f[1], "device")?;
        let offset = in_bytes(uint(f[2], "lba")?, self.unit, "lba")?;
        let len = in_bytes(uint(f[3], "sectors")?, self.unit, "sectors")?;
        check_end(offset, len)?;
        let op = match f[4] {
            b"1" => Op::Read,
            b"0" => Op::Write,
            other => {
                return Err(format!("op is \"{}\", expected 1 (read) or 0 (write)", shorten(other, 24)));
            }
        };
        Ok(Parsed::One(Item::Block(Request { time_ps: self.clock.at(time)?, device, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
