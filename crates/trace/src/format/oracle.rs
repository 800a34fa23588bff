//! libCacheSim's oracleGeneral: packed little-endian records of 24 bytes.
//!
//! `u32` time in seconds, `u64` object id, `u32` size in bytes, `i64` number of the record that
//! next uses the object, or -1 for never (some writers use the largest number). The next access is
//! discarded. Time counts from the first record. All records are reads.

use super::{Clock, Parsed, ReadOptions, RecordParser};
use crate::record::{Item, ObjectRef, Op};
use crate::text_fields::Reason;
use deepram_core::units::PS_PER_S;

pub(super) const RECORD: usize = 24;

pub(super) struct Oracle {
    clock: Clock,
}

impl Oracle {
    pub(super) fn new(options: &ReadOptions) -> Oracle {
        Oracle { clock: Clock::new(options, true) }
    }
}

struct Fields {
    seconds: u32,
    id: u64,
    size: u32,
    next: i64,
}

fn fields(r: &[u8]) -> Option<Fields> {
    Some(Fields {
        seconds: u32::from_le_bytes(r.get(0..4)?.try_into().ok()?),
        id: u64::from_le_bytes(r.get(4..12)?.try_into().ok()?),
        size: u32::from_le_bytes(r.get(12..16)?.try_into().ok()?),
        next: i64::from_le_bytes(r.get(16..24)?.try_into().ok()?),
    })
}

/// Whether the first records can be in this format: time advances without large gaps, sizes are
/// plausible, and the next access is -1 or later than this one.
pub(super) fn plausible(prefix: &[u8]) -> bool {
    let mut last = None;
    for (number, record) in prefix.chunks_exact(RECORD).take(256).enumerate() {
        let Some(f) = fields(record) else {
            return false;
        };
        let later = f.next == -1 || f.next > number as i64;
        let forward = last.is_none_or(|t| f.seconds >= t && f.seconds - t < 1 << 26);
        if !later || !forward || f.size > 1 << 30 {
            return false;
        }
        last = Some(f.seconds);
    }
    last.is_some()
}

impl RecordParser for Oracle {
    fn size(&self) -> usize {
        RECORD
    }

    fn record(&mut self, record: &[u8]) -> Result<Parsed, Reason> {
        let f = fields(record).ok_or("too short")?;
        if f.next < -1 {
            return Err(format!("next access is {}, expected -1 or a later record", f.next));
        }
        let time_ps = self.clock.at(u128::from(f.seconds) * u128::from(PS_PER_S))?;
        Ok(Parsed::One(Item::Object(ObjectRef { time_ps, id: f.id, size: f.size.into(), op: Op::Read })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
