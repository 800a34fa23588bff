//! VMware vscsiStats records, as libCacheSim stores them.
//!
//! Version 1, 32 bytes: `u32` serial number, `u32` length in bytes, `u32` scatter-gather elements,
//! `u16` SCSI operation code, `u16` version (1 in the high byte), `u64` block of 512 bytes, `u64`
//! time in microseconds. Version 2, 40 bytes: `u16` operation, `u16` version (2 in the high byte),
//! then the `u32` fields, block and time as above, and the `u64` response time. All fields are
//! little-endian. Operation codes that move no data (such as inquiry) are skipped. Time counts from
//! the first record.

use super::{Clock, Format, Parsed, ReadOptions, RecordParser};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, check_end, in_bytes};
use deepram_core::units::PS_PER_US;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    V1,
    V2,
}

impl Version {
    const fn size(self) -> usize {
        match self {
            Version::V1 => 32,
            Version::V2 => 40,
        }
    }

    /// Recognises the version that all of the first records carry.
    pub(super) fn of(prefix: &[u8]) -> Option<Version> {
        let fits = |version: Version| {
            let records = prefix.chunks_exact(version.size()).take(64);
            let mut any = false;
            for record in records {
                let number = u16_at(record, if version == Version::V1 { 14 } else { 2 })?;
                if number >> 8 != if version == Version::V1 { 1 } else { 2 } {
                    return None;
                }
                any = true;
            }
            any.then_some(version)
        };
        fits(Version::V1).or_else(|| fits(Version::V2))
    }
}

fn u16_at(r: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(r.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(r: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(r.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(r: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(r.get(at..at + 8)?.try_into().ok()?))
}

/// Maps a SCSI operation code to an operation (SBC-4: read, write, write and verify, write same,
/// unmap, synchronize cache, in their 6- to 16-byte forms).
pub(super) fn scsi_op(code: u16) -> Option<Op> {
    match code {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 => Some(Op::Write),
        0x42 => Some(Op::Trim),
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}

pub(super) struct Vscsi {
    clock: Clock,
    unit: u64,
    version: Version,
}

impl Vscsi {
    pub(super) fn new(options: &ReadOptions, prefix: &[u8]) -> Vscsi {
        let version = Version::of(prefix).unwrap_or(Version::V1);
        Vscsi { clock: Clock::new(options, true), unit: options.unit(Format::Vscsi), version }
    }

    fn parse(&mut self, r: &[u8]) -> Option<Result<Parsed, Reason>> {
        let (version, code, len, block, time) = match self.version {
            Version::V1 => (u16_at(r, 14)?, u16_at(r, 12)?, u32_at(r, 4)?, u64_at(r, 16)?, u64_at(r, 24)?),
            Version::V2 => (u16_at(r, 2)?, u16_at(r, 0)?, u32_at(r, 8)?, u64_at(r, 16)?, u64_at(r, 24)?),
        };
        Some(self.request(version >> 8, code, len.into(), block, time))
    }

    fn request(&mut self, version: u16, code: u16, len: u64, block: u64, us: u64) -> Result<Parsed, Reason> {
        let wanted = if self.version == Version::V1 { 1 } else { 2 };
        if version != wanted {
            return Err(format!("version is {version}, expected {wanted}"));
        }
        let Some(op) = scsi_op(code) else {
            return Ok(Parsed::Skip);
        };
        let offset = in_bytes(block, self.unit, "block")?;
        check_end(offset, len)?;
        let time_ps = self.clock.at(u128::from(us) * u128::from(PS_PER_US))?;
        Ok(Parsed::One(Item::Block(Request { time_ps, device: 0, offset, len, op })))
    }
}

impl RecordParser for Vscsi {
    fn size(&self) -> usize {
        self.version.size()
    }

    fn record(&mut self, record: &[u8]) -> Result<Parsed, Reason> {
        self.parse(record).unwrap_or_else(|| Err("too short".to_string()))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
