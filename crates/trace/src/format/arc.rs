//! Traces of the ARC paper (`.lis`).
//!
//! `start count ignored sequence`: the first block and the number of blocks of a request, an unused
//! field, and the number of the request. A block has 512 bytes. In OLTP and other traces whose
//! counts are all 1 it stands for a page; set [`ReadOptions::unit_bytes`] accordingly. The traces
//! have no times and no operations: all records are reads.

use super::{Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, blank_fields, check_end, field_count, in_bytes, uint};

pub(super) struct Arc {
    unit: u64,
}

impl Arc {
    pub(super) fn new(options: &ReadOptions) -> Arc {
        Arc { unit: options.unit(Format::Arc) }
    }
}

impl LineParser for Arc {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let (f, n) = blank_fields::<4>(line);
        if n != 4 {
            return Err(field_count(n, "4: start count ignored sequence"));
        }
        let offset = in_bytes(uint(f[0], "start")?, self.unit, "start")?;
        let len = in_bytes(uint(f[1], "count")?, self.unit, "count")?;
        check_end(offset, len)?;
        uint(f[2], "third field")?;
        uint(f[3], "sequence")?;
        Ok(Parsed::One(Item::Block(Request { time_ps: None, device: 0, offset, len, op: Op::Read })))
    }
}
