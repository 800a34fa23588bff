//! MSR Cambridge block traces.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: time in Windows file time (100 ns
//! since 1601), offset and size in bytes, response time (ignored) in 100 ns. Time counts from the
//! first record. The device number is `host * 256 + disk`, with hosts numbered in order of
//! appearance, so the trace of a single host keeps its disk numbers.

use super::{Clock, LineParser, Parsed, ReadOptions};
use crate::record::{Item, Op, Request};
use crate::text_fields::{Reason, check_end, comma_fields, field_count, shorten, uint};

const FILETIME_PS: u128 = 100_000;
const DISKS: u32 = 256;
const MAX_HOSTS: usize = 4096;

pub(super) struct Msr {
    clock: Clock,
    hosts: Vec<Vec<u8>>,
    first: bool,
}

impl Msr {
    pub(super) fn new(options: &ReadOptions) -> Msr {
        Msr { clock: Clock::new(options, true), hosts: Vec::new(), first: true }
    }

    fn host(&mut self, name: &[u8]) -> Result<u32, Reason> {
        if name.is_empty() || !name.is_ascii() {
            return Err(format!("host name is \"{}\", expected a name", shorten(name, 24)));
        }
        if let Some(known) = self.hosts.iter().position(|h| h == name) {
            return Ok(known as u32);
        }
        if self.hosts.len() == MAX_HOSTS {
            return Err(format!("more than {MAX_HOSTS} hosts"));
        }
        self.hosts.push(name.to_vec());
        Ok(self.hosts.len() as u32 - 1)
    }
}

impl LineParser for Msr {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        if std::mem::take(&mut self.first) && line.starts_with(b"Timestamp,") {
            return Ok(Parsed::Skip);
        }
        let (f, n) = comma_fields::<7>(line);
        if n != 7 {
            return Err(field_count(n, "7: time,host,disk,Read|Write,offset,size,response"));
        }
        let ticks = uint(f[0], "time")?;
        let disk = uint(f[2], "disk number")?;
        let disk = u32::try_from(disk)
            .ok()
            .filter(|d| *d < DISKS)
            .ok_or(format!("disk number {disk} is not below {DISKS}"))?;
        let op = match f[3] {
            t if t.eq_ignore_ascii_case(b"read") => Op::Read,
            t if t.eq_ignore_ascii_case(b"write") => Op::Write,
            t => {
                return Err(format!("type is \"{}\", expected Read or Write", shorten(t, 24)));
            }
        };
        let (offset, len) = (uint(f[4], "offset")?, uint(f[5], "size")?);
        check_end(offset, len)?;
        uint(f[6], "response time")?;
        let device = self.host(f[1])? * DISKS + disk;
        let time_ps = self.clock.at(u128::from(ticks) * FILETIME_PS)?;
        Ok(Parsed::One(Item::Block(Request { time_ps, device, offset, len, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
