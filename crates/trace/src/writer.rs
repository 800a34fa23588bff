//! Writes traces.
//!
//! A format that cannot hold a record completely rejects it and names the loss.
//! [`WriteOptions::lossy`] accepts the loss: times are rounded down to the format's unit, a missing
//! time repeats the previous one, and sizes are rounded up to whole sectors.

use crate::deepram_format::DeepramWriter;
use crate::error::TraceError;
use crate::format::Format;
use crate::record::{Item, MemRef, MemoryAccess, ObjectRef, Op, Request};
use crate::text_fields::check_end;
use deepram_core::units::{PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US};
use std::io::{self, Write};

/// Options of a [`TraceWriter`].
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Accepts a loss of information where an approximation exists.
    pub lossy: bool,
    /// Size of memory references that a reader assumes, in bytes, for formats without one; another
    /// size is a loss. 0 means 8, the reader's default.
    pub access_bytes: u32,
}

const SECTOR: u64 = 512;

enum Output<W: Write> {
    Deepram(DeepramWriter<W>),
    Plain(W),
}

/// Writes records in one format.
pub struct TraceWriter<W: Write> {
    out: Output<W>,
    format: Format,
    options: WriteOptions,
    records: u64,
    last_time: u64,
    line: Vec<u8>,
    files: Vec<u32>,
    /// Whether the CSV header has been written, and whether it is for objects.
    csv_objects: Option<bool>,
}

impl<W: Write> TraceWriter<W> {
    /// Starts a trace. `out` should be buffered.
    ///
    /// # Errors
    /// The format cannot be written, or `out` fails.
    pub fn new(mut out: W, format: Format, options: WriteOptions) -> Result<TraceWriter<W>, TraceError> {
        if !format.info().writable {
            let writable: Vec<_> = crate::FORMATS.iter().filter(|f| f.writable).map(|f| f.name).collect();
            let why = format!("this format is only read; writable formats: {}", writable.join(", "));
            return Err(TraceError::Unwritable { format: format.name(), record: 1, why });
        }
        match format {
            Format::FioV2 => out.write_all(b"fio version 2 iolog\n").map_err(io)?,
            Format::FioV3 => out.write_all(b"fio version 3 iolog\n").map_err(io)?,
            _ => {}
        }
        let out = if format == Format::Deepram {
            Output::Deepram(DeepramWriter::new(out).map_err(io)?)
        } else {
            Output::Plain(out)
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

    /// Number of records written so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Writes a record.
    ///
    /// # Errors
    /// [`TraceError::Unwritable`] if the format cannot hold the record or its end passes 2^64;
    /// otherwise `out` fails.
    pub fn write(&mut self, item: &Item) -> Result<(), TraceError> {
        self.line.clear();
        if let Item::Block(r) = item {
            check_end(r.offset, r.len).map_err(|why| TraceError::Unwritable {
                format: self.format.name(),
                record: self.records + 1,
                why,
            })?;
        }
        if let Output::Deepram(writer) = &mut self.out {
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
            if let Output::Plain(out) = &mut self.out {
                out.write_all(&self.line).map_err(io)?;
            }
        }
        self.records += 1;
        Ok(())
    }

    /// Ends the trace, flushes, and returns the output.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(self) -> Result<W, TraceError> {
        match self.out {
            Output::Deepram(writer) => writer.finish().map_err(io),
            Output::Plain(mut out) => out.flush().map(|()| out).map_err(io),
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), String> {
        self.line.write_fmt(text).map_err(|e| e.to_string())
    }

    /// The time in whole units of the format.
    fn time(&mut self, time_ps: Option<u64>, unit_ps: u64) -> Result<u64, String> {
        let time = match time_ps {
            Some(time) => time,
            None if self.options.lossy => self.last_time,
            None => return Err("it has no time (option lossy repeats the previous time)".to_string()),
        };
        if time % unit_ps != 0 && !self.options.lossy {
            return Err(format!(
                "its time of {time} ps is not a multiple of the format's {unit_ps} ps (option lossy rounds down)"
            ));
        }
        self.last_time = time;
        Ok(time / unit_ps)
    }

    fn sectors(&self, bytes: u64, field_name: &str, up: bool) -> Result<u64, String> {
        match bytes % SECTOR {
            0 => Ok(bytes / SECTOR),
            _ if !self.options.lossy => Err(format!(
                "its {field_name} of {bytes} bytes is not a multiple of the sector size \
                             (option lossy rounds)"
            )),
            _ if up => Ok(bytes.div_ceil(SECTOR)),
            _ => Ok(bytes / SECTOR),
        }
    }

    /// First sector and number of sectors of the request.
    fn sector_range(&self, r: &Request) -> Result<(u64, u64), String> {
        let first = self.sectors(r.offset, "offset", false)?;
        let end = self.sectors(r.offset.saturating_add(r.len), "end", true)?;
        Ok((first, end - first))
    }

    fn only_read_write(r: &Request) -> Result<bool, String> {
        match r.op {
            Op::Read => Ok(true),
            Op::Write => Ok(false),
            op => Err(format!("it is a {}; the format has only reads and writes", op.name())),
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
            _ => Err("it is a block request; the format has none".to_string()),
        }
    }

    fn fio(&mut self, r: &Request) -> Result<(), String> {
        let v3 = self.format == Format::FioV3;
        let time = match r.time_ps {
            None if !v3 => None,
            Some(_) if !v3 && !self.options.lossy => {
                return Err(
                    "it has a time, which version 2 does not record (option lossy drops it; fio3 records times)"
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
                    "device {} appears before all lower ones, so a reader would number it differently \
                     (option lossy accepts this)",
                    r.device
                ));
            }
            self.files.push(r.device);
            self.put(format_args!("{stamp}/dev/deepram{0} add\n{stamp}/dev/deepram{0} open\n", r.device))?;
        }
        let action = if r.op == Op::Flush { "sync" } else { r.op.name() };
        if r.op == Op::Flush && (r.offset, r.len) != (0, 0) && !self.options.lossy {
            return Err(
                "its flush has an offset or length, which the format does not record (option lossy drops them)"
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
            return Err(format!(
                "it is for device {}; the format has only one device (option lossy drops the \
                                number)",
                r.device
            ));
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
            Some(_) => Err("block requests and objects can't be mixed in one CSV file".to_string()),
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
                        "it is a {}; the format has only reads (option lossy writes a read)",
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
                // A stream does not know the next access; -1 means never.
                self.line.extend((-1i64).to_le_bytes());
                Ok(())
            }
            _ => Err("it is an object access; the format has none".to_string()),
        }
    }

    fn mem(&mut self, m: &MemRef) -> Result<(), String> {
        match self.format {
            Format::SpecLs => {
                let kind = match m.access {
                    MemoryAccess::Load => 'l',
                    MemoryAccess::Store => 's',
                    MemoryAccess::Fetch => {
                        return Err("it is a fetch; the format has only loads and stores".to_string());
                    }
                };
                let assumed = if self.options.access_bytes == 0 { 8 } else { self.options.access_bytes };
                if m.size != assumed && !self.options.lossy {
                    return Err(format!(
                        "its size of {} bytes is not recorded, and a reader assumes {assumed} (option lossy \
                         drops it)",
                        m.size
                    ));
                }
                self.put(format_args!("{kind} 0x{:x} {}\n", m.addr, m.gap))
            }
            Format::Lackey => {
                let kind = match m.access {
                    MemoryAccess::Load => " L",
                    MemoryAccess::Store => " S",
                    MemoryAccess::Fetch => "I ",
                };
                let kept = u32::from(m.access == MemoryAccess::Fetch);
                if m.gap != kept && !self.options.lossy {
                    return Err(format!(
                        "its gap of {} instructions is not recorded, and a reader assumes {kept} (option lossy \
                         drops it)",
                        m.gap
                    ));
                }
                self.put(format_args!("{kind} {:08x},{}\n", m.addr, m.size))
            }
            _ => Err("it is a memory reference; the format has none".to_string()),
        }
    }
}

fn io(source: io::Error) -> TraceError {
    TraceError::Io { what: "can't write the trace".to_string(), source }
}
