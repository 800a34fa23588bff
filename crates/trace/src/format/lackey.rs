//! The memory trace of valgrind's lackey tool (`--trace-mem=yes`).
//!
//! `I addr,size` is an instruction fetch; ` L`, ` S` and ` M` are a load, a store and a
//! modification (a load and a store) by the previous instruction. Addresses are hexadecimal.
//! valgrind's own lines begin with `==` or `--` and are skipped. A fetch counts as one instruction;
//! a load or store after its instruction's fetch counts as none.

use super::{LineParser, Parsed, ReadOptions};
use crate::record::{Item, MemRef, MemoryAccess};
use crate::text_fields::{Reason, hex, shorten, trim, uint32};

pub(super) struct Lackey {
    fetches: bool,
    gap: u32,
}

impl Lackey {
    pub(super) fn new(options: &ReadOptions) -> Lackey {
        Lackey { fetches: options.fetches, gap: 0 }
    }
}

impl LineParser for Lackey {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        if line.starts_with(b"==") || line.starts_with(b"--") {
            return Ok(Parsed::Skip);
        }
        let wanted = "I, L, S or M, then address,size";
        let bad = || format!("\"{}\", expected {wanted}", shorten(line, 24));
        let (kind, rest) = line.split_first().ok_or_else(bad)?;
        if !rest.first().is_some_and(u8::is_ascii_whitespace) {
            return Err(bad());
        }
        let rest = trim(rest);
        let comma = rest.iter().position(|b| *b == b',').ok_or_else(bad)?;
        let addr = hex(&rest[..comma], "address")?;
        let size = uint32(&rest[comma + 1..], "size")?;
        let mut item = |access| {
            let gap = std::mem::take(&mut self.gap);
            Item::Mem(MemRef { gap, addr, size, access })
        };
        Ok(match kind {
            b'I' => {
                self.gap = self.gap.saturating_add(1);
                if self.fetches {
                    let gap = std::mem::take(&mut self.gap);
                    Parsed::One(Item::Mem(MemRef { gap, addr, size, access: MemoryAccess::Fetch }))
                } else {
                    Parsed::Skip
                }
            }
            b'L' => Parsed::One(item(MemoryAccess::Load)),
            b'S' => Parsed::One(item(MemoryAccess::Store)),
            b'M' => Parsed::Two(item(MemoryAccess::Load), item(MemoryAccess::Store)),
            _ => return Err(bad()),
        })
    }
}
