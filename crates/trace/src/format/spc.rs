//! SPC traces, as in the UMass repository (Financial, WebSearch).
//!
//! `ASU,LBA,size,opcode,timestamp[,...]`: the application storage unit is the device, the address
//! counts blocks of 512 bytes, the size is in bytes, the time in seconds.

use super::{Clock, Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{
    Reason, check_end, comma_fields, field_count, in_bytes, shorten, time_ps, uint, uint32,
};
use deepram_core::units::PS_PER_S;

pub(super) struct Spc {
    clock: Clock,
    unit: u64,
}

impl Spc {
    pub(super) fn new(options: &ReadOptions) -> Spc {
        Spc { clock: Clock::new(options, false), unit: options.unit(Format::Spc) }
    }
}

impl LineParser for Spc {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let (f, n) = comma_fields::<5>(line);
        if n < 5 {
            return Err(field_count(n, "at least 5: asu,lba,size,R|W,time"));
        }
        let device = uint32(f[0], "ASU")?;
        let offset = in_bytes(uint(f[1], "LBA")?, self.unit, "LBA")?;
        let len = uint(f[2], "size")?;
        check_end(offset, len)?;
        let op = match f[3] {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            other => {
                return Err(format!("opcode is \"{}\", expected R or W", shorten(other, 24)));
            }
        };
        let time_ps = self.clock.at(time_ps(f[4], PS_PER_S, "time")?)?;
        Ok(Parsed::One(Item::Block(Request { time_ps, device, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
