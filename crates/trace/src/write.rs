//! Writing traces.
//!
//! A format that can't hold all of a record refuses it, naming what is lost; with
//! [`WriteOptions::lossy`] the loss is taken (times rounded down to the format's unit, a missing
//! time written as the one before, sizes rounded up to whole sectors).

use crate::compact::CompactWriter;
use crate::error::TraceError;
use crate::format::Format;
use crate::record::{Access, Item, MemRef, ObjectRef, Op, Request};
use crate::text::check_end;
use deepram_core::units::{PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US};
use std::io::{self, Write};

/// How to write a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Accept the loss of what the format can't hold, where an approximation exists.
    pub lossy: bool,
    /// The memory reference size that a reader will assume, for formats without one; other
    /// sizes are a loss. 0 stands for 8, the reader's default.
    pub access_bytes: u32,
}

const SECTOR: u64 = 512;

enum Out<W: Write> {
    Compact(CompactWriter<W>),
    Plain(W),
}

/// Writes records in one format.
pub struct TraceWriter<W: Write> {
    out: Out<W>,
    format: Format,
    options: WriteOptions,
    records: u64,
    last_time: u64,
    line: Vec<u8>,
    files: Vec<u32>,
    /// Whether the csv header has been written, and for which kind of record.
    csv_objects: Option<bool>,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace; `out` should be buffered.
    ///
    /// # Errors
    /// The format is not one that can be written, or `out` fails.
    pub fn new(mut out: W, format: Format, options: WriteOptions) -> Result<TraceWriter<W>, TraceError> {
        if !format.info().writable {
            let writable: Vec<_> = crate::FORMATS.iter().filter(|f| f.writable).map(|f| f.name).collect();
            let why = format!("this format is only read; written are: {}", writable.join(", "));
            return Err(TraceError::Unwritable { format: format.name(), record: 1, why });
        }
        match format {
            Format::FioV2 => out.write_all(b"fio version 2 iolog\n").map_err(io)?,
            Format::FioV3 => out.write_all(b"fio version 3 iolog\n").map_err(io)?,
            _ => {}
        }
        let out = if format == Format::Compact {
            Out::Compact(CompactWriter::new(out).map_err(io)?)
        } else {
            Out::Plain(out)
        };
        Ok(TraceWriter {
            out,
            format,
            options,
            records: 0,
            last_time: 0,
            line: Vec::new(),
            files: Vec::new(),
            csv_objects: None,
        })
    }

    /// Records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The format can't hold the record ([`TraceError::Unwritable`]), the record is a request
    /// that passes 2^64, or `out` fails.
    pub fn write(&mut self, item: &Item) -> Result<(), TraceError> {
        self.line.clear();
        if let Item::Block(r) = item {
            check_end(r.offset, r.len).map_err(|why| TraceError::Unwritable {
                format: self.format.name(),
                record: self.records + 1,
                why,
            })?;
        }
        if let Out::Compact(writer) = &mut self.out {
            writer.write(item).map_err(io)?;
        } else {
            let text = match item {
                Item::Block(r) => self.block(r),
                Item::Mem(m) => self.mem(m),
                Item::Object(o) => self.object(o),
            };
            text.map_err(|why| TraceError::Unwritable {
                format: self.format.name(),
                record: self.records + 1,
                why,
            })?;
            if let Out::Plain(out) = &mut self.out {
                out.write_all(&self.line).map_err(io)?;
            }
        }
        self.records += 1;
        Ok(())
    }

    /// Ends the trace, flushes, and gives the output back.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(self) -> Result<W, TraceError> {
        match self.out {
            Out::Compact(writer) => writer.finish().map_err(io),
            Out::Plain(mut out) => out.flush().map(|()| out).map_err(io),
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), String> {
        self.line.write_fmt(text).map_err(|e| e.to_string())
    }

    /// The time in whole units, or why it can't be had.
    fn time(&mut self, time_ps: Option<u64>, unit_ps: u64) -> Result<u64, String> {
        let time = match time_ps {
            Some(time) => time,
            None if self.options.lossy => self.last_time,
            None => return Err("the record has no time (lossy writes the one before)".to_string()),
        };
        if time % unit_ps != 0 && !self.options.lossy {
            return Err(format!(
                "its time of {time} ps is no whole number of the format's {unit_ps} ps (lossy rounds down)"
            ));
        }
        self.last_time = time;
        Ok(time / unit_ps)
    }

    fn sectors(&self, bytes: u64, what: &str, up: bool) -> Result<u64, String> {
        match bytes % SECTOR {
            0 => Ok(bytes / SECTOR),
            _ if !self.options.lossy => {
                Err(format!("its {what} of {bytes} bytes is no whole number of sectors (lossy rounds)"))
            }
            _ if up => Ok(bytes.div_ceil(SECTOR)),
            _ => Ok(bytes / SECTOR),
        }
    }

    /// First sector and number of sectors that cover the request.
    fn sector_range(&self, r: &Request) -> Result<(u64, u64), String> {
        let first = self.sectors(r.offset, "offset", false)?;
        let end = self.sectors(r.offset.saturating_add(r.len), "end", true)?;
        Ok((first, end - first))
    }

    fn only_read_write(r: &Request) -> Result<bool, String> {
        match r.op {
            Op::Read => Ok(true),
            Op::Write => Ok(false),
            op => Err(format!("it is a {}, the format has reads and writes only", op.name())),
        }
    }

    fn block(&mut self, r: &Request) -> Result<(), String> {
        match self.format {
            Format::Mqsim | Format::DiskSim => {
                let read = u8::from(Self::only_read_write(r)?);
                let (lba, sectors) = self.sector_range(r)?;
                if self.format == Format::Mqsim {
                    let ns = self.time(r.time_ps, PS_PER_NS)?;
                    self.put(format_args!("{ns} {} {lba} {sectors} {read}\n", r.device))
                } else {
                    let ps = self.time(r.time_ps, 1)?;
                    self.put(format_args!(
                        "{}.{:09} {} {lba} {sectors} {read}\n",
                        ps / PS_PER_MS,
                        ps % PS_PER_MS,
                        r.device
                    ))
                }
            }
            Format::Spc => {
                let op = if Self::only_read_write(r)? { 'R' } else { 'W' };
                let lba = self.sectors(r.offset, "offset", false)?;
                let ps = self.time(r.time_ps, 1)?;
                self.put(format_args!(
                    "{},{lba},{},{op},{}.{:012}\n",
                    r.device,
                    r.len,
                    ps / PS_PER_S,
                    ps % PS_PER_S
                ))
            }
            Format::Msr => {
                let op = if Self::only_read_write(r)? { "Read" } else { "Write" };
                if r.device >= 256 {
                    return Err(format!("device {} is not below 256", r.device));
                }
                let ticks = self.time(r.time_ps, 100 * PS_PER_NS)?;
                self.put(format_args!("{ticks},deepram,{},{op},{},{},0\n", r.device, r.offset, r.len))
            }
            Format::FioV2 | Format::FioV3 => self.fio(r),
            Format::Vscsi => self.vscsi(r),
            Format::Csv => self.csv_block(r),
            _ => Err("it is a block request, which the format does not have".to_string()),
        }
    }

    fn fio(&mut self, r: &Request) -> Result<(), String> {
        let v3 = self.format == Format::FioV3;
        let time = match r.time_ps {
            None if !v3 => None,
            Some(_) if !v3 && !self.options.lossy => {
                return Err(
                    "the record has a time, which version 2 does not keep (lossy drops it; fio3 has times)"
                        .to_string(),
                );
            }
            Some(_) if !v3 => None,
            time => Some(self.time(time, PS_PER_US)?),
        };
        let stamp = time.map_or(String::new(), |us| format!("{us} "));
        if !self.files.contains(&r.device) {
            if r.device as usize != self.files.len() && !self.options.lossy {
                return Err(format!(
                    "device {} appears before the ones below it, and a reader would number it otherwise (lossy accepts)",
                    r.device
                ));
            }
            self.files.push(r.device);
            self.put(format_args!("{stamp}/dev/deepram{0} add\n{stamp}/dev/deepram{0} open\n", r.device))?;
        }
        let action = if r.op == Op::Flush { "sync" } else { r.op.name() };
        if r.op == Op::Flush && (r.offset, r.len) != (0, 0) && !self.options.lossy {
            return Err(
                "its flush has an offset or length, which the format does not keep (lossy drops them)"
                    .to_string(),
            );
        }
        let (offset, len) = if r.op == Op::Flush { (0, 0) } else { (r.offset, r.len) };
        self.put(format_args!("{stamp}/dev/deepram{} {action} {offset} {len}\n", r.device))
    }

    fn vscsi(&mut self, r: &Request) -> Result<(), String> {
        let code: u16 = match r.op {
            Op::Read => 0x28,
            Op::Write => 0x2a,
            Op::Trim => 0x42,
            Op::Flush => 0x35,
        };
        let us = self.time(r.time_ps, PS_PER_US)?;
        let len = u32::try_from(r.len).map_err(|_| format!("its length of {} bytes passes 2^32", r.len))?;
        let block = self.sectors(r.offset, "offset", false)?;
        if r.device != 0 && !self.options.lossy {
            return Err(format!("it is for device {}, the format has one device (lossy drops it)", r.device));
        }
        let serial = self.records as u32;
        for field in [serial, len, 1] {
            self.line.extend(field.to_le_bytes());
        }
        self.line.extend(code.to_le_bytes());
        self.line.extend(0x0100u16.to_le_bytes());
        self.line.extend(block.to_le_bytes());
        self.line.extend(us.to_le_bytes());
        Ok(())
    }

    fn csv_header(&mut self, objects: bool) -> Result<(), String> {
        match self.csv_objects {
            Some(kind) if kind == objects => Ok(()),
            Some(_) => Err("block requests and objects can't be mixed in one csv".to_string()),
            None => {
                self.csv_objects = Some(objects);
                let header = if objects { "time,op,size,object" } else { "time,op,size,offset,device" };
                self.put(format_args!("{header}\n"))
            }
        }
    }

    fn csv_block(&mut self, r: &Request) -> Result<(), String> {
        let ps = self.time(r.time_ps, 1)?;
        self.csv_header(false)?;
        self.put(format_args!(
            "{}.{:012},{},{},{},{}\n",
            ps / PS_PER_S,
            ps % PS_PER_S,
            r.op.name(),
            r.len,
            r.offset,
            r.device
        ))
    }

    fn object(&mut self, o: &ObjectRef) -> Result<(), String> {
        match self.format {
            Format::Csv => {
                let ps = self.time(o.time_ps, 1)?;
                self.csv_header(true)?;
                self.put(format_args!(
                    "{}.{:012},{},{},{}\n",
                    ps / PS_PER_S,
                    ps % PS_PER_S,
                    o.op.name(),
                    o.size,
                    o.id
                ))
            }
            Format::OracleGeneral => {
                if o.op != Op::Read && !self.options.lossy {
                    return Err(format!(
                        "it is a {}, the format has reads only (lossy writes a read)",
                        o.op.name()
                    ));
                }
                let seconds = self.time(o.time_ps, PS_PER_S)?;
                let seconds =
                    u32::try_from(seconds).map_err(|_| format!("its time of {seconds} s passes 2^32"))?;
                let size =
                    u32::try_from(o.size).map_err(|_| format!("its size of {} bytes passes 2^32", o.size))?;
                self.line.extend(seconds.to_le_bytes());
                self.line.extend(o.id.to_le_bytes());
                self.line.extend(size.to_le_bytes());
                // The next access is not known to a stream; -1 says never.
                self.line.extend((-1i64).to_le_bytes());
                Ok(())
            }
            _ => Err("it is an object access, which the format does not have".to_string()),
        }
    }

    fn mem(&mut self, m: &MemRef) -> Result<(), String> {
        match self.format {
            Format::SpecLs => {
                let kind = match m.access {
                    Access::Load => 'l',
                    Access::Store => 's',
                    Access::Fetch => {
                        return Err("it is a fetch, the format has loads and stores only".to_string());
                    }
                };
                let assumed = if self.options.access_bytes == 0 { 8 } else { self.options.access_bytes };
                if m.size != assumed && !self.options.lossy {
                    return Err(format!(
                        "its {} bytes are not kept, a reader assumes {assumed} (lossy drops them)",
                        m.size
                    ));
                }
                self.put(format_args!("{kind} 0x{:x} {}\n", m.addr, m.gap))
            }
            Format::Lackey => {
                let kind = match m.access {
                    Access::Load => " L",
                    Access::Store => " S",
                    Access::Fetch => "I ",
                };
                let kept = u32::from(m.access == Access::Fetch);
                if m.gap != kept && !self.options.lossy {
                    return Err(format!(
                        "its gap of {} instructions is not kept, a reader gives {kept} (lossy drops it)",
                        m.gap
                    ));
                }
                self.put(format_args!("{kind} {:08x},{}\n", m.addr, m.size))
            }
            _ => Err("it is a memory reference, which the format does not have".to_string()),
        }
    }
}

fn io(source: io::Error) -> TraceError {
    TraceError::Io { what: "can't write the trace".to_string(), source }
}
