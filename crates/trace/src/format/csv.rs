//! CSV with column names in the first line, as libCacheSim's tools export it.
//!
//! The header may begin with `#`. Columns used: `time` or `timestamp` (seconds; or `time_ms`,
//! `time_us`, `time_ns`), `op`, `size`, `device`, and exactly one address column: `lbn` or `lba`
//! (blocks of 512 bytes), `offset` (bytes), or `object`, `obj_id`, `id` (the number of an object).
//! Other columns are ignored. Operations may be words (read, write, trim, flush, get, set, put,
//! delete), letters (R, W, D, F) or hexadecimal SCSI operation codes (`28`, `2a`). Without an `op`
//! column all records are reads.

use super::{Clock, Format, LineParser, Parsed, ReadOptions, vscsi};
use crate::record::{Item, ObjectRef, Op, Request};
use crate::text_fields::{Reason, check_end, hex, in_bytes, shorten, time_ps, trim, uint, uint32};
use deepram_core::units::{PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US};

const MAX_COLUMNS: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum AddressColumn {
    Lbn,
    Offset,
    Object,
}

struct Columns {
    count: usize,
    time: Option<(usize, u64)>,
    op: Option<usize>,
    size: usize,
    device: Option<usize>,
    address: (usize, AddressColumn),
}

pub(super) struct Csv {
    clock: Clock,
    unit: u64,
    columns: Option<Columns>,
}

impl Csv {
    pub(super) fn new(options: &ReadOptions) -> Csv {
        Csv { clock: Clock::new(options, false), unit: options.unit(Format::Csv), columns: None }
    }
}

fn set<T>(slot: &mut Option<T>, value: T, what: &str) -> Result<(), Reason> {
    match slot.replace(value) {
        Some(_) => Err(format!("the header names two columns for {what}")),
        None => Ok(()),
    }
}

fn header(line: &[u8]) -> Result<Columns, Reason> {
    let line = line.strip_prefix(b"#").unwrap_or(line);
    let (mut time, mut op, mut size, mut device, mut address) = (None, None, None, None, None);
    let mut count = 0;
    for (i, name) in line.split(|b| *b == b',').enumerate() {
        count = i + 1;
        match trim(name).to_ascii_lowercase().as_slice() {
            b"time" | b"timestamp" | b"time_s" => set(&mut time, (i, PS_PER_S), "the time")?,
            b"time_ms" => set(&mut time, (i, PS_PER_MS), "the time")?,
            b"time_us" => set(&mut time, (i, PS_PER_US), "the time")?,
            b"time_ns" => set(&mut time, (i, PS_PER_NS), "the time")?,
            b"op" | b"operation" | b"opcode" => set(&mut op, i, "the operation")?,
            b"size" | b"length" | b"obj_size" => set(&mut size, i, "the size")?,
            b"device" | b"dev" | b"disk" => set(&mut device, i, "the device")?,
            b"lbn" | b"lba" | b"sector" => set(&mut address, (i, AddressColumn::Lbn), "the address")?,
            b"offset" => set(&mut address, (i, AddressColumn::Offset), "the address")?,
            b"object" | b"obj_id" | b"id" => set(&mut address, (i, AddressColumn::Object), "the address")?,
            _ => {}
        }
    }
    if count > MAX_COLUMNS {
        return Err(format!("the header names {count} columns, at most {MAX_COLUMNS} are read"));
    }
    let needs = "the header must name columns: size, and one of lbn, lba, offset, object";
    Ok(Columns { count, time, op, size: size.ok_or(needs)?, device, address: address.ok_or(needs)? })
}

fn operation(field: &[u8]) -> Result<Option<Op>, Reason> {
    Ok(match field.to_ascii_lowercase().as_slice() {
        b"r" | b"read" | b"get" | b"gets" => Some(Op::Read),
        b"w" | b"write" | b"set" | b"put" | b"add" | b"replace" => Some(Op::Write),
        b"d" | b"trim" | b"delete" | b"discard" => Some(Op::Trim),
        b"f" | b"flush" | b"sync" => Some(Op::Flush),
        code if code.len() <= 4 => {
            let code = hex(code, "op").map_err(|_| {
                format!("op is \"{}\", expected read, write, trim, flush or a SCSI code", shorten(field, 24))
            })?;
            vscsi::scsi_op(code as u16)
        }
        _ => {
            return Err(format!(
                "op is \"{}\", expected read, write, trim, flush or a SCSI code",
                shorten(field, 24)
            ));
        }
    })
}

impl LineParser for Csv {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, Reason> {
        let Some(columns) = &self.columns else {
            self.columns = Some(header(line)?);
            return Ok(Parsed::Skip);
        };
        let mut fields: [&[u8]; MAX_COLUMNS] = [&[]; MAX_COLUMNS];
        let mut n = 0;
        for field in line.split(|b| *b == b',') {
            if let Some(slot) = fields.get_mut(n) {
                *slot = trim(field);
            }
            n += 1;
        }
        if n != columns.count {
            return Err(format!("{n} fields, expected {} as in the header", columns.count));
        }
        let op = match columns.op {
            Some(i) => operation(fields[i])?,
            None => Some(Op::Read),
        };
        let Some(op) = op else {
            return Ok(Parsed::Skip);
        };
        let time = columns.time.map(|(i, unit)| time_ps(fields[i], unit, "time")).transpose()?;
        let device = columns.device.map_or(Ok(0), |i| uint32(fields[i], "device"))?;
        let size = uint(fields[columns.size], "size")?;
        let (i, address) = columns.address;
        let number = uint(fields[i], "address")?;
        let time_ps = match time {
            Some(ps) => self.clock.at(ps)?,
            None => None,
        };
        if address == AddressColumn::Object {
            return Ok(Parsed::One(Item::Object(ObjectRef { time_ps, id: number, size, op })));
        }
        let offset = if address == AddressColumn::Lbn { in_bytes(number, self.unit, "lbn")? } else { number };
        check_end(offset, size)?;
        Ok(Parsed::One(Item::Block(Request { time_ps, device, offset, len: size, op })))
    }

    fn clamped(&self) -> u64 {
        self.clock.clamped
    }
}
