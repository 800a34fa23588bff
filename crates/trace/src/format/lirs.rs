//! The traces of the LIRS paper.
//!
//! One block number a line; `*` stands between phases and is skipped. A block is read as a page
//! of 4 KiB. There is no time and no operation: all are reads.

use super::{Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text::{Why, check_end, in_bytes, uint};

pub(super) struct Lirs {
    unit: u64,
}

impl Lirs {
    pub(super) fn new(options: &ReadOptions) -> Lirs {
        Lirs { unit: options.unit(Format::Lirs) }
    }
}

impl LineParser for Lirs {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Why> {
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
