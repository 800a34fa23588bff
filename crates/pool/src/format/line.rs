//! A record of the line log: lines of 64 bytes with their addresses, in whole sectors. Each sector has its own header
//! and checksum, which shows whether that sector was written: a device writes a sector completely or not at all, and
//! a sector that was not written holds an older record or zeros. Any other bytes are damage (ADR 26). Byte layout:
//! `docs/reference/pool-format.md`, section "Line record".

use super::codec::{FormatError, Reader, Writer, crc32c_without};
use crate::device::SECTOR;

/// Size of a line, in bytes.
pub(crate) const LINE: usize = 64;
/// Offset of the checksum in a sector.
pub(crate) const CRC_AT: usize = 4;

const MAGIC: u32 = u32::from_le_bytes(*b"DRL2");
const WHAT: &str = "line record";
/// Size of a sector's header, in bytes.
const FIXED: usize = 48;
/// Size of a line in a sector, in bytes: its number, then its bytes.
const ENTRY: usize = 8 + LINE;
/// Largest number of lines in a sector.
const LINES_PER_SECTOR: usize = (SECTOR - FIXED) / ENTRY;

/// The header fields that all sectors of a record share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineHeader {
    /// First half of the pool's uuid.
    pub(crate) pool: u64,
    pub(crate) controller: u16,
    pub(crate) lines: u16,
    /// Length in sectors of 512 bytes.
    pub(crate) sectors: u16,
    /// Number of the record, one more than that of the previous record.
    pub(crate) number: u64,
    /// The group of persists to which the record's last line belongs; never less than in the previous record.
    pub(crate) group: u64,
    /// Position of the record: sectors since the ring was made.
    pub(crate) at: u64,
}

/// One sector of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineSector {
    pub(crate) header: LineHeader,
    /// Number of the sector in the record.
    pub(crate) nth: u16,
}

impl LineSector {
    /// Returns the position of the sector: sectors since the ring was made.
    pub(crate) fn at(&self) -> u64 {
        self.header.at.saturating_add(u64::from(self.nth))
    }
}

/// Returns the largest number of lines in a record of `bytes` bytes.
pub(crate) const fn capacity(bytes: usize) -> usize {
    bytes / SECTOR * LINES_PER_SECTOR
}

/// Returns the size of a record of `lines` lines, in bytes.
pub(crate) const fn record_bytes(lines: usize) -> usize {
    lines.div_ceil(LINES_PER_SECTOR) * SECTOR
}

/// Returns the offset of the `nth` line in a record.
const fn line_at(nth: usize) -> usize {
    nth / LINES_PER_SECTOR * SECTOR + FIXED + nth % LINES_PER_SECTOR * ENTRY
}

/// Copies a line to its position in a record that is being filled.
pub(crate) fn put(record: &mut [u8], nth: usize, line: u64, bytes: &[u8]) {
    let start = line_at(nth);
    record[start..start + 8].copy_from_slice(&line.to_le_bytes());
    record[start + 8..start + ENTRY].copy_from_slice(bytes);
}

/// Completes a record whose lines are in place; `record` is all of its sectors.
pub(crate) fn seal(record: &mut [u8], header: &LineHeader) {
    debug_assert_eq!(record.len(), usize::from(header.sectors) * SECTOR);
    let mut left = usize::from(header.lines);
    for (nth, sector) in (0_u16..).zip(record.chunks_exact_mut(SECTOR)) {
        let mut w = Writer::default();
        w.u32(MAGIC);
        w.u32(0);
        w.u64(header.pool);
        w.u16(header.controller);
        w.u16(header.lines);
        w.u16(header.sectors);
        w.u16(nth);
        w.u64(header.number);
        w.u64(header.group);
        w.u64(header.at);
        debug_assert_eq!(w.0.len(), FIXED);
        sector[..FIXED].copy_from_slice(&w.0);
        let lines = left.min(LINES_PER_SECTOR);
        sector[FIXED + lines * ENTRY..].fill(0);
        left -= lines;
        let crc = crc32c_without(sector, CRC_AT);
        sector[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Decodes the sector at the beginning of `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> Result<LineSector, FormatError> {
    let mut r = Reader::new(WHAT, bytes);
    let magic = r.u32()?;
    if magic != MAGIC {
        return Err(r.field("magic", u64::from(magic), "\"DRL2\""));
    }
    let stored = r.u32()?;
    let pool = r.u64()?;
    let controller = r.u16()?;
    let lines = r.u16()?;
    let sectors = r.u16()?;
    let nth = r.u16()?;
    let number = r.u64()?;
    let group = r.u64()?;
    let at = r.u64()?;
    r.take(SECTOR - FIXED)?;
    let computed = crc32c_without(&bytes[..SECTOR], CRC_AT);
    if stored != computed {
        return Err(FormatError::Checksum { what: WHAT, stored, computed });
    }
    if nth >= sectors || record_bytes(usize::from(lines)) > usize::from(sectors) * SECTOR {
        return Err(r.field("sectors", u64::from(sectors), "as many as its lines need"));
    }
    Ok(LineSector { header: LineHeader { pool, controller, lines, sectors, number, group, at }, nth })
}

/// Iterates over the lines of a decoded record, as number and bytes, in the order of their persists.
pub(crate) fn lines(record: &[u8], count: u16) -> impl DoubleEndedIterator<Item = (u64, &[u8])> {
    (0..usize::from(count)).map(|nth| {
        let (number, bytes) = record[line_at(nth)..line_at(nth) + ENTRY].split_at(8);
        (u64::from_le_bytes(number.try_into().expect("eight bytes")), bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(count: u16) -> (Vec<u8>, LineHeader) {
        let sectors = (record_bytes(usize::from(count)) / SECTOR) as u16;
        let mut record = vec![0xEE; usize::from(sectors) * SECTOR];
        for n in 0..usize::from(count) {
            put(&mut record, n, 1000 + n as u64, &[n as u8; LINE]);
        }
        let header =
            LineHeader { pool: 7, controller: 3, lines: count, sectors, number: 99, group: 98, at: 1234 };
        seal(&mut record, &header);
        (record, header)
    }

    #[test]
    fn six_lines_fit_into_a_sector() {
        assert_eq!(capacity(SECTOR), 6);
        assert_eq!(sealed(6).0.len(), SECTOR);
        assert_eq!(sealed(7).0.len(), 2 * SECTOR);
    }

    #[test]
    fn what_was_put_in_is_read_back() {
        let (mut record, header) = sealed(9);
        record.extend([0xAA; 100]);
        for nth in 0..2 {
            assert_eq!(decode(&record[usize::from(nth) * SECTOR..]), Ok(LineSector { header, nth }));
        }
        let found: Vec<(u64, Vec<u8>)> = lines(&record, 9).map(|(n, b)| (n, b.to_vec())).collect();
        let expected: Vec<_> = (0..9_u8).map(|n| (1000 + u64::from(n), vec![n; LINE])).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let (record, _) = sealed(4);
        for bit in 0..record.len() * 8 {
            let mut wrong = record.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&wrong).is_err(), "bit {bit}");
        }
        for len in 0..record.len() {
            assert!(decode(&record[..len]).is_err(), "cut at {len}");
        }
    }
}
