//! The default text output of blkparse.
//!
//! `maj,min cpu sequence seconds pid action rwbs [sector + sectors] [process]`. One action counts
//! as the request ([`ReadOptions::blkparse_action`], `Q` by default); other events, and everything
//! from the per-CPU summary on, are skipped. In `rwbs`, `D` is a discard, `R` a read, `W` a write,
//! and `F` alone a flush. Sectors have 512 bytes; the device number is the kernel's, `major << 20 |
//! minor`.

use super::{Clock, Format, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, blank_fields, check_end, in_bytes, shorten, time_ps, uint};
use deepram_core::units::PS_PER_S;

pub(super) struct Blkparse {
    clock: Clock,
    unit: u64,
    action: u8,
    summary: bool,
    events: bool,
}

impl Blkparse {
    pub(super) fn new(options: &ReadOptions) -> Blkparse {
        Blkparse {
            clock: Clock::new(options, false),
            unit: options.unit(Format::Blkparse),
            action: options.blkparse_action,
            summary: false,
            events: false,
        }
    }
}

fn device(field: &[u8]) -> Option<u32> {
    let comma = field.iter().position(|b| *b == b',')?;
    let major = uint(&field[..comma], "major").ok().filter(|m| *m < 1 << 12)?;
    let minor = uint(&field[comma + 1..], "minor").ok().filter(|m| *m < 1 << 20)?;
    Some((major << 20 | minor) as u32)
}

fn op(rwbs: &[u8]) -> Result<Option<Op>, Reason> {
    if !rwbs.iter().all(|b| b.is_ascii_uppercase()) {
        return Err(format!("rwbs is \"{}\", expected letters such as R, WS, D or FN", shorten(rwbs, 24)));
    }
    let has = |letter| rwbs.contains(&letter);
    Ok(match () {
        () if has(b'D') => Some(Op::Trim),
        () if has(b'R') => Some(Op::Read),
        () if has(b'W') => Some(Op::Write),
        () if has(b'F') => Some(Op::Flush),
        () => None,
    })
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        self.summary |= self.events && (line.starts_with(b"CPU") || line.starts_with(b"Total ("));
        if self.summary {
            return Ok(Parsed::Skip);
        }
        let (f, n) = blank_fields::<10>(line);
        let device = device(f[0])
            .ok_or_else(|| format!("device is \"{}\", expected major,minor", shorten(f[0], 24)))?;
        if n < 6 {
            return Err(format!(
                "{n} fields, expected maj,min cpu sequence time pid action rwbs sector + sectors"
            ));
        }
        uint(f[1], "cpu")?;
        uint(f[2], "sequence")?;
        let time = time_ps(f[3], PS_PER_S, "time")?;
        uint(f[4], "process id")?;
        self.events = true;
        if f[5] != [self.action] {
            return Ok(Parsed::Skip);
        }
        let Some(op) = op(f[6])? else {
            return Ok(Parsed::Skip);
        };
        let (op, offset, len) = if n >= 10 && f[8] == b"+" {
            let offset = in_bytes(uint(f[7], "sector")?, self.unit, "sector")?;
            let len = in_bytes(uint(f[9], "sectors")?, self.unit, "sectors")?;
            check_end(offset, len)?;
            (op, offset, len)
        } else if f[6].contains(&b'F') && (n < 10 || f[7].starts_with(b"[")) {
            (Op::Flush, 0, 0)
        } else {
            return Err("expected sector + sectors after rwbs".to_string());
        };
        let time_ps = self.clock.at(time)?;
        Ok(Parsed::One(Item::Block(Request { time_ps, device, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
