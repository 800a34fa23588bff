//! Reading the compact format. Checksums find damage; every field is checked all the same, since
//! a hostile file has right checksums.

use super::{
    BLOCK, END, FRAME, HEADER, KIND_BLOCK, KIND_MEM, KIND_OBJECT, Last, MAGIC, MAX_PAYLOAD, MAX_RECORDS,
    SAME_DEVICE, SAME_SIZE, TIMED, VERSION, crc, varint,
};
use crate::error::{Place, TraceError};
use crate::input::read_up_to;
use crate::record::{Access, Item, MemRef, ObjectRef, Op, Request};
use crate::text::shorten;
use std::io::Read;

/// Reads records block by block; memory is bounded by the largest block.
pub struct CompactReader<R: Read> {
    input: R,
    /// Bytes taken from the input so far.
    position: u64,
    payload: Vec<u8>,
    /// How much of the payload has been decoded.
    decoded: usize,
    /// Records of the block still to come.
    left: u32,
    /// Records yielded.
    total: u64,
    last: Last,
    ended: bool,
}

fn wrong(place: Place, bytes: &[u8], why: impl Into<String>) -> TraceError {
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

impl<R: Read> CompactReader<R> {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// The input fails, is no trace of this format, or has a version that is not known.
    pub fn new(input: R) -> Result<CompactReader<R>, TraceError> {
        let mut reader = CompactReader {
            input,
            position: 0,
            payload: Vec::new(),
            decoded: 0,
            left: 0,
            total: 0,
            last: Last::default(),
            ended: false,
        };
        let header = reader.take(HEADER, "the header")?;
        if header[..8] != MAGIC {
            return Err(wrong(Place::Byte(0), &header[..8], "expected the magic deepramT"));
        }
        if u32_at(&header, 12) != crc(&[&header[..12]]) {
            return Err(wrong(Place::Byte(12), &header, "the header's checksum does not fit: it is damaged"));
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != VERSION || header[10..12] != [0, 0] {
            return Err(wrong(
                Place::Byte(8),
                &header[8..12],
                format!("version {version} or its flags are not known, expected version {VERSION}"),
            ));
        }
        Ok(reader)
    }

    fn take(&mut self, n: usize, what: &str) -> Result<Vec<u8>, TraceError> {
        let place = Place::Byte(self.position);
        let bytes = read_up_to(&mut self.input, n)
            .map_err(|source| TraceError::Io { what: format!("can't read at {place}"), source })?;
        self.position += bytes.len() as u64;
        if bytes.len() < n {
            return Err(wrong(
                place,
                &bytes,
                format!("the file is cut off: {what} has {} of {n} bytes", bytes.len()),
            ));
        }
        Ok(bytes)
    }

    /// The next record, or `None` at the end mark.
    ///
    /// # Errors
    /// The input fails, is damaged or cut off, or holds what the format does not allow.
    pub fn read(&mut self) -> Result<Option<Item>, TraceError> {
        while self.left == 0 {
            if self.ended || !self.frame()? {
                return Ok(None);
            }
        }
        let mut rest = &self.payload[self.decoded..];
        let place = Place::Record(self.total + 1);
        let item = match decode(&mut rest, &mut self.last) {
            Some(item) => item,
            None => {
                return Err(wrong(place, &self.payload[self.decoded..], "not a record of the format"));
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

    /// Reads a block's frame and payload, or the end mark (false).
    fn frame(&mut self) -> Result<bool, TraceError> {
        let place = Place::Byte(self.position);
        let head = self.take(FRAME, "a block's head or the end mark")?;
        let sum = u32_at(&head, 9);
        match head[0] {
            END => {
                if crc(&[&head[..9]]) != sum {
                    return Err(wrong(place, &head, "the end mark's checksum does not fit: it is damaged"));
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
                let after = Place::Byte(self.position);
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
                        "a block of {records} records in {bytes} bytes; at most {MAX_RECORDS} and {MAX_PAYLOAD} are allowed"
                    );
                    return Err(wrong(place, &head, why));
                }
                self.payload = self.take(bytes as usize, "a block's payload")?;
                if crc(&[&head[..9], &self.payload]) != sum {
                    return Err(wrong(place, &head, "the block's checksum does not fit: it is damaged"));
                }
                self.decoded = 0;
                self.left = records;
                self.last = Last::default();
                Ok(true)
            }
            _ => Err(wrong(place, &head, "expected a block (B) or the end mark (E)")),
        }
    }
}

/// Takes a record off the front; `None` if it is not one.
fn decode(input: &mut &[u8], last: &mut Last) -> Option<Item> {
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
            Some(Item::Mem(MemRef { gap, addr: last.addr, size: last.size, access: *Access::ALL.get(code)? }))
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

fn take_time(input: &mut &[u8], last: &mut Last, timed: bool) -> Option<Option<u64>> {
    if !timed {
        return Some(None);
    }
    last.time = varint::take_delta(input, last.time)?;
    Some(Some(last.time))
}
