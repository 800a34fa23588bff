//! The bytes of a memory controller's own pages. Layout: `docs/reference/pool-format.md`, section "Memory controllers".

use deepram_core::units::PAGE_BYTES;
use uuid::Uuid;

use crate::format::FormatError;
use crate::format::codec::{Reader, Writer, crc32c, crc32c_without};

/// The first bytes of a memory controller.
pub(crate) const MAGIC: [u8; 8] = *b"DEEPRAMM";
/// The format version that this code reads and writes.
pub(crate) const VERSION: u32 = 1;
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 4096;
/// Pages of 64 KiB that belong to the controller: the header's, and that of the table of regions.
pub(super) const OWN_PAGES: u32 = 2;
/// Offset of the table of regions.
pub(super) const TABLE_AT: usize = PAGE_BYTES as usize;
/// Bytes of a record of the table.
pub(super) const RECORD: usize = 128;
/// Records of the table.
pub(super) const RECORDS: usize = PAGE_BYTES as usize / RECORD;
/// Longest name of a region, in bytes.
pub(super) const NAME_BYTES: usize = 111;
/// Least and largest size of a controller, in bytes.
pub(super) const SIZES: std::ops::RangeInclusive<u64> =
    (OWN_PAGES as u64 + 1) * PAGE_BYTES..=deepram_core::addr::MAX_PAGES as u64 * PAGE_BYTES;

const CRC_AT: usize = 12;
const NAME_LEN_AT: usize = 16;
const NAME_AT: usize = 17;
const HEADER: &str = "memory controller's header";
const REGION: &str = "region of a memory controller";
/// The lower half of a record's first word, if the record is in use.
const IN_USE: u64 = 1;

const _: () = assert!(NAME_AT + NAME_BYTES == RECORD);

/// The properties of a controller, fixed at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) uuid: Uuid,
    /// The pool that the controller belongs to; nil for a controller by itself.
    pub(super) pool: Uuid,
    /// Its number among the memory controllers of the pool, and their number.
    pub(super) number: u16,
    pub(super) count: u16,
    /// Bytes of the file.
    pub(super) len: u64,
    /// Address at which the file is mapped.
    pub(super) base: u64,
}

/// The outcome of reading a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Header(Header),
    /// The bytes are not those of a memory controller.
    Foreign,
    /// Another format version.
    Version(u32),
    Damaged(FormatError),
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut w = Writer::default();
        w.bytes(&MAGIC);
        w.u32(VERSION);
        w.u32(0);
        w.bytes(self.uuid.as_bytes());
        w.bytes(self.pool.as_bytes());
        w.u16(self.number);
        w.u16(self.count);
        w.u32(0);
        w.u64(self.len);
        w.u64(self.base);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..w.0.len()].copy_from_slice(&w.0);
        let crc = crc32c_without(&bytes, CRC_AT);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Parsed {
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Parsed::Foreign;
        }
        match Self::decode(&bytes[..HEADER_BYTES]) {
            Ok(Ok(header)) => Parsed::Header(header),
            Ok(Err(version)) => Parsed::Version(version),
            Err(error) => Parsed::Damaged(error),
        }
    }

    /// Decodes a header. `Ok(Err(version))`: an intact header of another version.
    fn decode(bytes: &[u8]) -> Result<Result<Self, u32>, FormatError> {
        let mut r = Reader::new(HEADER, bytes);
        r.take(MAGIC.len())?;
        let version = r.u32()?;
        let stored = r.u32()?;
        let computed = crc32c_without(bytes, CRC_AT);
        if stored != computed {
            return Err(FormatError::Checksum { what: HEADER, stored, computed });
        }
        if version != VERSION {
            return Ok(Err(version));
        }
        let mut uuid = || Ok(Uuid::from_slice(r.take(16)?).expect("16 bytes"));
        let (uuid, pool) = (uuid()?, uuid()?);
        let (number, count) = (r.u16()?, r.u16()?);
        if number >= count {
            return Err(r.field("number", u64::from(number), "below the number of memory controllers"));
        }
        r.u32()?;
        let (len, base) = (r.u64()?, r.u64()?);
        if !SIZES.contains(&len) || !len.is_multiple_of(PAGE_BYTES) {
            return Err(r.field("length", len, "a multiple of 64 KiB from 192 KiB to 16 TiB"));
        }
        if base == 0 || !base.is_multiple_of(PAGE_BYTES) || base.checked_add(len).is_none() {
            return Err(r.field("base address", base, "a multiple of 64 KiB"));
        }
        Ok(Ok(Self { uuid, pool, number, count, len, base }))
    }
}

/// A range of allocated pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The name; empty for memory without one.
    pub(super) name: String,
    /// First page of 64 KiB, and number of pages.
    pub(super) first: u32,
    pub(super) pages: u32,
}

impl Record {
    /// The bytes of a record. The first word is written after the others are durable, in one store: a record is in the
    /// table whole or not at all.
    pub(super) fn encode(&self) -> (u64, [u8; RECORD - 8]) {
        let mut w = Writer::default();
        w.u32(self.first);
        w.u32(self.pages);
        w.u8(self.name.len() as u8);
        w.bytes(self.name.as_bytes());
        let mut bytes = [0; RECORD - 8];
        bytes[..w.0.len()].copy_from_slice(&w.0);
        (u64::from(crc32c(&bytes)) << 32 | IN_USE, bytes)
    }

    /// Decodes the record of a controller of so many pages; none if the record is free.
    pub(super) fn decode(record: &[u8; RECORD], pages: u32) -> Result<Option<Self>, FormatError> {
        let mut r = Reader::new(REGION, record);
        let word = r.u64()?;
        if word == 0 {
            return Ok(None);
        }
        let (stored, computed) = ((word >> 32) as u32, crc32c(&record[8..]));
        if word & u64::from(u32::MAX) != IN_USE || stored != computed {
            return Err(FormatError::Checksum { what: REGION, stored, computed });
        }
        let (first, count, name_len) = (r.u32()?, r.u32()?, usize::from(r.u8()?));
        let end = first.checked_add(count).filter(|&end| end <= pages && first >= OWN_PAGES && count > 0);
        if end.is_none() {
            return Err(r.field("first page", u64::from(first), "pages of the controller's memory"));
        }
        debug_assert_eq!(NAME_LEN_AT + 1, NAME_AT);
        if name_len > NAME_BYTES {
            return Err(r.field("length of the name", name_len as u64, "at most 111"));
        }
        let name = std::str::from_utf8(r.take(name_len)?).map(str::to_owned);
        let name = name.map_err(|error| r.field("name", error.valid_up_to() as u64, "UTF-8"))?;
        Ok(Some(Self { name, first, pages: count }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let uuid = Uuid::from_u128(7);
        Header { uuid, pool: Uuid::nil(), number: 0, count: 1, len: 1 << 20, base: 0x2000_0000_0000 }
    }

    #[test]
    fn a_header_is_read_back_and_every_changed_byte_is_noticed() {
        let bytes = header().encode();
        assert_eq!(Header::parse(&bytes), Parsed::Header(header()));
        for at in 0..HEADER_BYTES {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            match Header::parse(&changed) {
                Parsed::Foreign => assert!(at < 8),
                Parsed::Damaged(FormatError::Checksum { .. }) => assert!(at >= 8),
                other => panic!("byte {at}: {other:?}"),
            }
        }
        assert_eq!(Header::parse(&bytes[..100]), Parsed::Foreign);
    }

    #[test]
    fn a_hostile_header_with_a_right_checksum_is_refused() {
        for change in [
            |header: &mut Header| header.len = 65536,
            |header: &mut Header| header.len = (1 << 20) + 1,
            |header: &mut Header| header.len = !0xffff,
            |header: &mut Header| header.base = 0,
            |header: &mut Header| header.base = 4096,
            |header: &mut Header| header.base = !0xffff,
            |header: &mut Header| header.count = 0,
            |header: &mut Header| header.number = 1,
        ] {
            let mut header = header();
            change(&mut header);
            assert!(
                matches!(Header::parse(&header.encode()), Parsed::Damaged(FormatError::Field { .. })),
                "{header:?}"
            );
        }
        let mut bytes = header().encode();
        bytes[8] = 9;
        let crc = crc32c_without(&bytes, CRC_AT);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::parse(&bytes), Parsed::Version(9));
    }

    #[test]
    fn a_record_is_read_back_and_a_hostile_one_is_refused() {
        let bytes = |record: &Record| {
            let (word, rest) = record.encode();
            let mut bytes = [0; RECORD];
            bytes[..8].copy_from_slice(&word.to_le_bytes());
            bytes[8..].copy_from_slice(&rest);
            bytes
        };
        let record = |first, pages| Record { name: "n".repeat(NAME_BYTES), first, pages };
        assert_eq!(Record::decode(&bytes(&record(2, 14)), 16), Ok(Some(record(2, 14))));
        assert_eq!(Record::decode(&[0; RECORD], 16), Ok(None));
        for (first, pages) in [(1, 2), (2, 0), (2, 15), (u32::MAX, 2)] {
            assert!(Record::decode(&bytes(&record(first, pages)), 16).is_err(), "{first} {pages}");
        }
        let good = bytes(&record(2, 3));
        for at in 0..RECORD {
            let mut changed = good;
            changed[at] ^= 0x10;
            assert!(Record::decode(&changed, 16).is_err(), "byte {at}");
        }
    }
}
