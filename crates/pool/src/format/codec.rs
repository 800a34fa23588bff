//! Little-endian encoding and decoding, with every length checked.

/// Bytes do not have the form that the format requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes end too early.
    #[error("{what} ends after {have} bytes, but {need} are needed")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// The checksum does not match.
    #[error("{what} fails its checksum: it says {stored:#010x}, the bytes give {computed:#010x}")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// Checksum in the structure.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },
    /// A field has an invalid value.
    #[error("{what}: {field} is {value}, expected {expected}")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: u64,
        /// Description of the valid values.
        expected: &'static str,
    },
}

/// Returns the CRC-32C of `bytes`, the checksum of every segment and structure of a pool.
#[must_use]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    // A 32-bit algorithm leaves the upper half zero.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC-32C of `bytes` with the four bytes at `at`, the position of the checksum itself, taken as zero.
pub(crate) fn crc32c_without(bytes: &[u8], at: usize) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..at]);
    digest.update(&[0; 4]);
    digest.update(&bytes[at + 4..]);
    digest.finalize() as u32
}

/// Decodes values from the front of a slice.
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(n).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            return Err(FormatError::Truncated {
                what: self.what,
                need: self.at.saturating_add(n),
                have: self.bytes.len(),
            });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.take(N)?.try_into().expect("take gives N bytes"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count of items of at least `size` bytes each, and checks it against the remaining bytes, so that a
    /// damaged count cannot request unbounded memory.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize, FormatError> {
        let n = self.u32()? as usize;
        let left = self.bytes.len() - self.at;
        if n.checked_mul(size).is_none_or(|need| need > left) {
            return Err(FormatError::Truncated {
                what: self.what,
                need: self.at.saturating_add(n.saturating_mul(size)),
                have: self.bytes.len(),
            });
        }
        Ok(n)
    }

    pub(crate) fn field(&self, field: &'static str, value: u64, expected: &'static str) -> FormatError {
        FormatError::Field { what: self.what, field, value, expected }
    }
}

/// Appends encoded values to a byte vector.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes a count, as [`Reader::count`] reads it.
    pub(crate) fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).expect("fewer than 2^32 items in a pool's tables"));
    }
}
