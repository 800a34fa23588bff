//! CacheLib's block-storage traces (Tectonic).
//!
//! CSV with the header `op_time,block_id,block_id_size,io_size,io_offset,...,op_name,op_count,...`.
//! A block is a file chunk of about 8 MiB named by a string. It is placed at `hash(block_id) mod
//! 2^39` times 16 MiB, so offsets within a block stay adjacent and no table of names is needed (two
//! of a million blocks collide with probability 0.6). `get...` operations are reads, `put...`
//! writes. Time is in seconds from the first record. `op_count`, the number of requests of the same
//! second that a row combines, is not expanded.

use super::{Clock, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, comma_fields, fnv1a, mix64, shorten, time_ps, uint};
use deepram_core::units::PS_PER_S;

const HEADER: &[u8] = b"op_time,block_id,block_id_size,io_size,io_offset,";
const BLOCK_BYTES: u64 = 16 << 20;

pub(super) struct CacheLib {
    clock: Clock,
    header: bool,
}

impl CacheLib {
    pub(super) fn new(options: &ReadOptions) -> CacheLib {
        CacheLib { clock: Clock::new(options, true), header: false }
    }
}

impl LineParser for CacheLib {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        if !self.header {
            if !line.starts_with(HEADER) {
                return Err(
                    "expected the header op_time,block_id,block_id_size,io_size,io_offset,...".to_string()
                );
            }
            self.header = true;
            return Ok(Parsed::Skip);
        }
        let (f, n) = comma_fields::<11>(line);
        if n < 9 {
            return Err(format!("{n} fields, expected at least 9 as in the header"));
        }
        let time = time_ps(f[0], PS_PER_S, "op_time")?;
        if f[1].is_empty() {
            return Err("block_id is empty".to_string());
        }
        let (len, within) = (uint(f[3], "io_size")?, uint(f[4], "io_offset")?);
        if within.checked_add(len).is_none_or(|end| end > BLOCK_BYTES) {
            return Err(format!(
                "io_offset {within} plus io_size {len} passes a block's {BLOCK_BYTES} bytes"
            ));
        }
        let op = match f[7] {
            name if name.starts_with(b"get") => Op::Read,
            name if name.starts_with(b"put") => Op::Write,
            other => {
                return Err(format!("op_name is \"{}\", expected get... or put...", shorten(other, 24)));
            }
        };
        let offset = (mix64(fnv1a(f[1])) >> 25) * BLOCK_BYTES + within;
        Ok(Parsed::One(Item::Block(Request { time_ps: self.clock.at(time)?, device: 0, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
