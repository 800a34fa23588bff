//! Loads and stores of SPEC programs: `l|s 0xADDR instructions`.
//!
//! The last field is the number of instructions since the previous access. The format has no size;
//! [`ReadOptions::access_bytes`] provides it.

use super::{LineParser, Parsed, ReadOptions};
use crate::record::{Item, MemRef, MemoryAccess};
use crate::text_fields::{Reason, blank_fields, field_count, hex, shorten, uint32};

pub(super) struct SpecLs {
    size: u32,
}

impl SpecLs {
    pub(super) fn new(options: &ReadOptions) -> SpecLs {
        SpecLs { size: options.access_bytes }
    }
}

impl LineParser for SpecLs {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let (f, n) = blank_fields::<3>(line);
        if n != 3 {
            return Err(field_count(n, "3: l|s 0xADDR instructions"));
        }
        let access = match f[0] {
            b"l" => MemoryAccess::Load,
            b"s" => MemoryAccess::Store,
            other => {
                return Err(format!("access is \"{}\", expected l or s", shorten(other, 24)));
            }
        };
        let (addr, gap) = (hex(f[1], "address")?, uint32(f[2], "instructions")?);
        Ok(Parsed::One(Item::Mem(MemRef { gap, addr, size: self.size, access })))
    }
}
