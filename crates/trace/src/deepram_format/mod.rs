//! deepram's own trace format: compact, checksummed and lossless.
//!
//! All numbers are little-endian. A file consists of a header, blocks and an end mark, after which
//! nothing may follow. (A file may be compressed with gzip or zstd as a whole, like any trace.)
//!
//! **Header**, 16 bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | magic, the ASCII text `deepramT` |
//! | 8..10 | version, 1 |
//! | 10..12 | flags, 0 |
//! | 12..16 | CRC-32C of bytes 0..12 |
//!
//! **Block**, 13 bytes (the frame) and the payload:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | `B` |
//! | 1..5 | records in the block, 1 to 65,536 |
//! | 5..9 | size of the payload in bytes, at most 2^20 |
//! | 9..13 | CRC-32C of bytes 0..9 and the payload |
//! | 13.. | payload: the records, one after another |
//!
//! **End mark**, 13 bytes: `E`, the number of records in the file (`u64`), CRC-32C of these 9 bytes.
//! A truncated file has no end mark, even if it ends between two blocks.
//!
//! **Record**: a tag byte, then the fields that the tag requires, each a varint: seven bits per
//! byte, lowest bits first, the top bit set in all but the last byte. A *delta* is the difference
//! modulo 2^64 to the value named, zigzag-coded (0, -1, 1, -2, ... become 0, 1, 2, 3, ...).
//!
//! | tag bits | content |
//! |---|---|
//! | 0-1 | kind: 0 block request, 1 memory reference, 2 object access |
//! | 2-3 | operation: read, write, trim, flush; or load, store, fetch |
//! | 4 | a time follows (block, object) |
//! | 5 | same device as in the previous block request (block) |
//! | 6 | same length or size as in the previous record of this kind |
//! | 7 | 0 |
//!
//! - block request: `[time delta] [device] offset delta [length]`; the offset's delta refers to the
//!   end of the previous block request, so that a sequential stream costs one byte;
//! - memory reference: `gap, address delta, [size]`;
//! - object access: `[time delta] id delta [size]`.
//!
//! Times are in picoseconds; time deltas run through block requests and object accesses alike. At
//! the start of a block all values that deltas refer to are zero, so a damaged block does not affect
//! the following ones.

mod reader;
mod varint;
mod writer;

pub use reader::DeepramReader;
pub use writer::DeepramWriter;

/// Magic number: the first eight bytes.
pub const MAGIC: [u8; 8] = *b"deepramT";
/// Version written, and the only version read.
pub const VERSION: u16 = 1;
/// Maximum number of records in a block.
pub const MAX_RECORDS: u32 = 65_536;
/// Maximum size of a block's payload, in bytes.
pub const MAX_PAYLOAD: u32 = 1 << 20;

const HEADER: usize = 16;
const FRAME: usize = 13;
const BLOCK: u8 = b'B';
const END: u8 = b'E';

const KIND_BLOCK: u8 = 0;
const KIND_MEM: u8 = 1;
const KIND_OBJECT: u8 = 2;
const TIMED: u8 = 1 << 4;
const SAME_DEVICE: u8 = 1 << 5;
const SAME_SIZE: u8 = 1 << 6;

/// Values that deltas refer to; all zero at the start of a block.
#[derive(Default)]
struct DeltaBase {
    time: u64,
    device: u32,
    end: u64,
    len: u64,
    addr: u64,
    size: u32,
    id: u64,
    object: u64,
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}
