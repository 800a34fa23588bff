//! The memory trace of valgrind's lackey tool (`--trace-mem=yes`).
//!
//! `I addr,size` is an instruction, ` L`, ` S` and ` M` a load, a store and a modification (a
//! load and a store) by the instruction before; addresses are hexadecimal. Lines that valgrind
//! itself prints begin with `==` or `--` and are skipped. A fetch counts one instruction; a load
//! or store that follows its instruction's fetch counts none.

use super::{LineParser, Parsed, ReadOptions};
use crate::record::{Access, Item, MemRef};
use crate::text::{Why, hex, shorten, trim, uint32};

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
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Why> {
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
                    Parsed::One(Item::Mem(MemRef { gap, addr, size, access: Access::Fetch }))
                } else {
                    Parsed::Skip
                }
            }
            b'L' => Parsed::One(item(Access::Load)),
            b'S' => Parsed::One(item(Access::Store)),
            b'M' => Parsed::Two(item(Access::Load), item(Access::Store)),
            _ => return Err(bad()),
        })
    }
}
