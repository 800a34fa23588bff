//! Reads the deepram trace format. Checksums detect damage; every field is still validated, because
//! a hostile file can have correct checksums.

use super::{
    BLOCK, DeltaBase, END, FRAME, HEADER, KIND_BLOCK, KIND_MEM, KIND_OBJECT, MAGIC, MAX_PAYLOAD, MAX_RECORDS,
    SAME_DEVICE, SAME_SIZE, TIMED, VERSION, crc, varint,
};
use crate::error::{TraceError, TracePosition};
use crate::input_stream::read_up_to;
use crate::record::{Item, MemRef, MemoryAccess, ObjectRef, Op, Request};
use crate::text_fields::shorten;
use std::io::Read;

/// Reads records block by block. Memory is bounded by the largest block.
pub struct DeepramReader<R: Read> {
    input: R,
    /// Bytes read from the input so far.
    position: u64,
    payload: Vec<u8>,
    /// Bytes of the payload decoded so far.
    decoded: usize,
    /// Records left in the block.
    left: u32,
    /// Number of records returned.
    total: u64,
    last: DeltaBase,
    ended: bool,
}

fn wrong(place: TracePosition, bytes: &[u8], why: impl Into<String>) -> TraceError {
    TraceError::Parse {
        trace: String::new(),
        format: "deepram",
        place,
        text: shorten(bytes, 24),
        why: why.into(),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl<R: Read> DeepramReader<R> {
    /// Reads and validates the header.
    ///
    /// # Errors
    /// The input fails, is not in this format, or has an unknown version.
    pub fn new(input: R) -> Result<DeepramReader<R>, TraceError> {
        let mut reader = DeepramReader {
            input,
            position: 0,
            payload: Vec::new(),
            decoded: 0,
            left: 0,
            total: 0,
            last: DeltaBase::default(),
            ended: false,
        };
        let header = reader.take(HEADER, "the header")?;
        if header[..8] != MAGIC {
            return Err(wrong(TracePosition::Byte(0), &header[..8], "expected the magic deepramT"));
        }
        if u32_at(&header, 12) != crc(&[&header[..12]]) {
            return Err(wrong(
                TracePosition::Byte(12),
                &header,
                "the header's checksum does not match: the \
                header is damaged",
            ));
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION || header[10..12] != [0, 0] {
            return Err(wrong(
                TracePosition::Byte(8),
                &header[8..12],
                format!("unknown version {version} or flags, expected version {VERSION} without flags"),
            ));
        }
        Ok(reader)
    }

    fn take(&mut self, n: usize, part: &str) -> Result<Vec<u8>, TraceError> {
        let place = TracePosition::Byte(self.position);
        let bytes = read_up_to(&mut self.input, n)
            .map_err(|source| TraceError::Io { what: format!("can't read at {place}"), source })?;
        self.position += bytes.len() as u64;
        if bytes.len() < n {
            return Err(wrong(
                place,
                &bytes,
                format!("the file is cut off: {part} has {} of {n} bytes", bytes.len()),
            ));
        }
        Ok(bytes)
    }

    /// Returns the next record, or `None` at the end mark.
    ///
    /// # Errors
    /// The input fails, is damaged or cut off, or violates the format.
    pub fn read(&mut self) -> Result<Option<Item>, TraceError> {
        while self.left == 0 {
            if self.ended || !self.frame()? {
                return Ok(None);
            }
        }
        let mut rest = &self.payload[self.decoded..];
        let place = TracePosition::Record(self.total + 1);
        let item = match decode(&mut rest, &mut self.last) {
            Some(item) => item,
            None => {
                return Err(wrong(place, &self.payload[self.decoded..], "invalid record"));
            }
        };
        self.decoded = self.payload.len() - rest.len();
        self.left -= 1;
        self.total += 1;
        if self.left == 0 && self.decoded != self.payload.len() {
            return Err(wrong(place, &self.payload[self.decoded..], "bytes after the block's last record"));
        }
        Ok(Some(item))
    }

    /// Reads a block's frame and payload; false at the end mark.
    fn frame(&mut self) -> Result<bool, TraceError> {
        let place = TracePosition::Byte(self.position);
        let head = self.take(FRAME, "a block's frame or the end mark")?;
        let sum = u32_at(&head, 9);
        match head[0] {
            END => {
                if crc(&[&head[..9]]) != sum {
                    return Err(wrong(
                        place,
                        &head,
                        "the end mark's checksum does not match: the end mark is damaged",
                    ));
                }
                let total = u64::from(u32_at(&head, 1)) | u64::from(u32_at(&head, 5)) << 32;
                if total != self.total {
                    return Err(wrong(
                        place,
                        &head,
                        format!("the end mark counts {total} records, the file has {}", self.total),
                    ));
                }
                self.ended = true;
                let after = TracePosition::Byte(self.position);
                match read_up_to(&mut self.input, 1) {
                    Ok(more) if more.is_empty() => Ok(false),
                    Ok(more) => Err(wrong(after, &more, "bytes after the end mark")),
                    Err(source) => Err(TraceError::Io { what: format!("can't read at {after}"), source }),
                }
            }
            BLOCK => {
                let (records, bytes) = (u32_at(&head, 1), u32_at(&head, 5));
                if records == 0 || records > MAX_RECORDS || bytes > MAX_PAYLOAD {
                    let why = format!(
                        "a block of {records} records in {bytes} bytes; at most {MAX_RECORDS} records and \
                         {MAX_PAYLOAD} bytes are allowed"
                    );
                    return Err(wrong(place, &head, why));
                }
                self.payload = self.take(bytes as usize, "a block's payload")?;
                if crc(&[&head[..9], &self.payload]) != sum {
                    return Err(wrong(
                        place,
                        &head,
                        "the block's checksum does not match: the block is damaged",
                    ));
                }
                self.decoded = 0;
                self.left = records;
                self.last = DeltaBase::default();
                Ok(true)
            }
            _ => Err(wrong(place, &head, "expected a block (B) or the end mark (E)")),
        }
    }
}

/// Decodes the next record; `None` if it is invalid.
fn decode(input: &mut &[u8], last: &mut DeltaBase) -> Option<Item> {
    let (&tag, rest) = input.split_first()?;
    *input = rest;
    let has = |bit: u8| tag & bit != 0;
    let code = usize::from(tag >> 2 & 3);
    if tag & 0x80 != 0 {
        return None;
    }
    match tag & 3 {
        KIND_BLOCK => {
            let time_ps = take_time(input, last, has(TIMED))?;
            if !has(SAME_DEVICE) {
                last.device = u32::try_from(varint::take(input)?).ok()?;
            }
            let offset = varint::take_delta(input, last.end)?;
            if !has(SAME_SIZE) {
                last.len = varint::take(input)?;
            }
            last.end = offset.checked_add(last.len)?;
            Some(Item::Block(Request {
                time_ps,
                device: last.device,
                offset,
                len: last.len,
                op: Op::ALL[code],
            }))
        }
        KIND_MEM => {
            if has(TIMED) || has(SAME_DEVICE) {
                return None;
            }
            let gap = u32::try_from(varint::take(input)?).ok()?;
            last.addr = varint::take_delta(input, last.addr)?;
            if !has(SAME_SIZE) {
                last.size = u32::try_from(varint::take(input)?).ok()?;
            }
            Some(Item::Mem(MemRef {
                gap,
                addr: last.addr,
                size: last.size,
                access: *MemoryAccess::ALL.get(code)?,
            }))
        }
        KIND_OBJECT => {
            if has(SAME_DEVICE) {
                return None;
            }
            let time_ps = take_time(input, last, has(TIMED))?;
            last.id = varint::take_delta(input, last.id)?;
            if !has(SAME_SIZE) {
                last.object = varint::take(input)?;
            }
            Some(Item::Object(ObjectRef { time_ps, id: last.id, size: last.object, op: Op::ALL[code] }))
        }
        _ => None,
    }
}

fn take_time(input: &mut &[u8], last: &mut DeltaBase, timed: bool) -> Option<Option<u64>> {
    if !timed {
        return Some(None);
    }
    last.time = varint::take_delta(input, last.time)?;
    Some(Some(last.time))
}
