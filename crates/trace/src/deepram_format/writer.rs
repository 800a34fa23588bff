//! Writes the deepram trace format.

use super::{
    BLOCK, DeltaBase, END, KIND_BLOCK, KIND_MEM, KIND_OBJECT, MAGIC, MAX_PAYLOAD, MAX_RECORDS, SAME_DEVICE,
    SAME_SIZE, TIMED, VERSION, crc, varint,
};
use crate::record::{Item, MemRef, ObjectRef, Request};
use std::io::{self, Write};

/// Maximum size of a record: a tag and four numbers of at most ten bytes.
const MAX_RECORD: usize = 41;

/// Writes records in blocks. Call [`DeepramWriter::finish`] at the end: a reader reports a file
/// without the end mark as cut off.
pub struct DeepramWriter<W: Write> {
    out: W,
    payload: Vec<u8>,
    records: u32,
    total: u64,
    last: DeltaBase,
}

impl<W: Write> DeepramWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// `out` fails.
    pub fn new(mut out: W) -> io::Result<DeepramWriter<W>> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([0, 0]);
        header.extend(crc(&[&header]).to_le_bytes());
        out.write_all(&header)?;
        Ok(DeepramWriter { out, payload: Vec::new(), records: 0, total: 0, last: DeltaBase::default() })
    }

    /// Writes a record.
    ///
    /// # Errors
    /// `out` fails.
    pub fn write(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Block(r) => self.block(r),
            Item::Mem(m) => self.mem(m),
            Item::Object(o) => self.object(o),
        }
        self.records += 1;
        self.total += 1;
        if self.records == MAX_RECORDS || self.payload.len() + MAX_RECORD > MAX_PAYLOAD as usize {
            self.flush_block()?;
        }
        Ok(())
    }

    fn time(&mut self, time_ps: Option<u64>) {
        if let Some(time) = time_ps {
            varint::put_delta(&mut self.payload, time, self.last.time);
            self.last.time = time;
        }
    }

    fn block(&mut self, r: &Request) {
        let same_device = r.device == self.last.device;
        let same_len = r.len == self.last.len;
        let tag = KIND_BLOCK
            | (r.op as u8) << 2
            | flag(r.time_ps.is_some(), TIMED)
            | flag(same_device, SAME_DEVICE)
            | flag(same_len, SAME_SIZE);
        self.payload.push(tag);
        self.time(r.time_ps);
        if !same_device {
            varint::put(&mut self.payload, r.device.into());
        }
        varint::put_delta(&mut self.payload, r.offset, self.last.end);
        if !same_len {
            varint::put(&mut self.payload, r.len);
        }
        self.last.device = r.device;
        self.last.len = r.len;
        self.last.end = r.offset.wrapping_add(r.len);
    }

    fn mem(&mut self, m: &MemRef) {
        let same_size = m.size == self.last.size;
        self.payload.push(KIND_MEM | (m.access as u8) << 2 | flag(same_size, SAME_SIZE));
        varint::put(&mut self.payload, m.gap.into());
        varint::put_delta(&mut self.payload, m.addr, self.last.addr);
        if !same_size {
            varint::put(&mut self.payload, m.size.into());
        }
        self.last.addr = m.addr;
        self.last.size = m.size;
    }

    fn object(&mut self, o: &ObjectRef) {
        let same_size = o.size == self.last.object;
        self.payload.push(
            KIND_OBJECT | (o.op as u8) << 2 | flag(o.time_ps.is_some(), TIMED) | flag(same_size, SAME_SIZE),
        );
        self.time(o.time_ps);
        varint::put_delta(&mut self.payload, o.id, self.last.id);
        if !same_size {
            varint::put(&mut self.payload, o.size);
        }
        self.last.id = o.id;
        self.last.object = o.size;
    }

    fn flush_block(&mut self) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let mut head = vec![BLOCK];
        head.extend(self.records.to_le_bytes());
        head.extend((self.payload.len() as u32).to_le_bytes());
        head.extend(crc(&[&head, &self.payload]).to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.payload)?;
        self.payload.clear();
        self.records = 0;
        self.last = DeltaBase::default();
        Ok(())
    }

    /// Writes buffered records and the end mark, flushes, and returns the output.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_block()?;
        let mut end = vec![END];
        end.extend(self.total.to_le_bytes());
        end.extend(crc(&[&end]).to_le_bytes());
        self.out.write_all(&end)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}
