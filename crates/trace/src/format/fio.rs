//! fio's I/O logs, versions 2 and 3.
//!
//! The first line names the version. In version 2, lines are `file action [offset length]`; `wait`
//! gives a pause in microseconds after the previous wait. A request's time is the sum of the waits
//! before it; requests before the first wait have no time. In version 3, every line begins with a
//! time in microseconds, and there are no waits. Actions: `add`, `open`, `close` (no request);
//! `read`, `write`, `trim`; `sync`, `datasync`, `sync_file_range` (flushes). Files become devices,
//! numbered in order of appearance.

use super::{Clock, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, blank_fields, check_end, shorten, uint};
use deepram_core::units::PS_PER_US;
use std::collections::BTreeMap;

const MAX_FILES: usize = 65_536;
const MAX_NAME: usize = 4096;

pub(super) struct Fio {
    version: u8,
    header: bool,
    clock: Clock,
    waited_us: Option<u64>,
    files: BTreeMap<Vec<u8>, u32>,
}

impl Fio {
    pub(super) fn new(options: &ReadOptions, version: u8) -> Fio {
        Fio {
            version,
            header: false,
            clock: Clock::new(options, false),
            waited_us: None,
            files: BTreeMap::new(),
        }
    }

    fn file(&mut self, name: &[u8]) -> Result<u32, Reason> {
        if let Some(device) = self.files.get(name) {
            return Ok(*device);
        }
        if self.files.len() == MAX_FILES || name.len() > MAX_NAME {
            return Err(format!("more than {MAX_FILES} files, or a name longer than {MAX_NAME} bytes"));
        }
        let device = self.files.len() as u32;
        self.files.insert(name.to_vec(), device);
        Ok(device)
    }
}

impl LineParser for Fio {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        if !self.header {
            let wanted = format!("fio version {} iolog", self.version);
            if line != wanted.as_bytes() {
                return Err(format!("expected the header \"{wanted}\""));
            }
            self.header = true;
            return Ok(Parsed::Skip);
        }
        let (f, n) = blank_fields::<5>(line);
        let (time, f, n) = if self.version == 3 { (Some(f[0]), &f[1..], n - 1) } else { (None, &f[..4], n) };
        if n != 2 && n != 4 && !(n == 3 && f[1] == b"wait") {
            return Err(format!(
                "{} fields, expected [time] file action, or [time] file action offset length",
                n + usize::from(time.is_some())
            ));
        }
        let time_us = match time {
            Some(field) => Some(uint(field, "time")?),
            None => self.waited_us,
        };
        let op = match f[1] {
            b"add" | b"open" | b"close" if n == 2 => {
                self.file(f[0])?;
                return Ok(Parsed::Skip);
            }
            b"wait" if self.version == 2 && n >= 3 => {
                let wait = uint(f[2], "wait")?;
                let sum = self.waited_us.unwrap_or(0).checked_add(wait);
                self.waited_us = Some(sum.ok_or("the sum of the waits passes 2^64 us")?);
                return Ok(Parsed::Skip);
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Trim,
            b"sync" | b"datasync" | b"sync_file_range" => Op::Flush,
            other => {
                return Err(format!(
                    "action \"{}\" with {n} fields, expected add, open, close, read, write, trim, sync, datasync, sync_file_range{}",
                    shorten(other, 24),
                    if self.version == 2 { " or wait" } else { "" }
                ));
            }
        };
        if n != 4 && op != Op::Flush {
            return Err("expected offset and length after the action".to_string());
        }
        let (offset, len) = match (n, op) {
            (4, Op::Flush) => {
                uint(f[2], "offset")?;
                uint(f[3], "length")?;
                (0, 0)
            }
            (4, _) => (uint(f[2], "offset")?, uint(f[3], "length")?),
            _ => (0, 0),
        };
        check_end(offset, len)?;
        let device = self.file(f[0])?;
        let time_ps = match time_us {
            Some(us) => self.clock.at(u128::from(us) * u128::from(PS_PER_US))?,
            None => None,
        };
        Ok(Parsed::One(Item::Block(Request { time_ps, device, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
