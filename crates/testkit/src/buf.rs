//! A buffer with the alignment that direct I/O requires.

use std::ops::{Deref, DerefMut};

use deepram_pool::device::ALIGN;

/// Bytes that start at a multiple of [`ALIGN`], as [`Device`](deepram_pool::device::Device) requires.
#[derive(Debug)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Makes a buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        // The vector is longer by one alignment, so that it contains an aligned start. It never grows, so its memory
        // never moves.
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Self { bytes, start, len }
    }

    /// Makes a buffer of `len` bytes of `value`.
    pub fn filled(len: usize, value: u8) -> Self {
        let mut buf = Self::zeroed(len);
        buf.fill(value);
        buf
    }
}

impl From<&[u8]> for AlignedBuf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::from(&**self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
