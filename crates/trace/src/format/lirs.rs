//! Traces of the LIRS paper.
//!
//! Each line is a block number; `*` separates phases and is skipped. A block is read as a page of 4
//! KiB. The traces have no times and no operations: all records are reads.

use super::{Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, check_end, in_bytes, uint};

pub(super) struct Lirs {
    unit: u64,
}

impl Lirs {
    pub(super) fn new(options: &ReadOptions) -> Lirs {
        Lirs { unit: options.unit(Format::Lirs) }
    }
}

impl LineParser for Lirs {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        if line == b"*" {
            return Ok(Parsed::Skip);
        }
        let offset = in_bytes(uint(line, "block number")?, self.unit, "block")?;
        check_end(offset, self.unit)?;
        Ok(Parsed::One(Item::Block(Request {
            time_ps: None,
            device: 0,
            offset,
            len: self.unit,
            op: Op::Read,
        })))
    }
}
