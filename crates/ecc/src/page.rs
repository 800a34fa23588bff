//! Pages: data, its CRC-32C, and the parity of both.

use std::ops::Range;

use crc_fast::CrcAlgorithm;

use crate::bch::{Bch, Positions, flip};
use crate::error::{CodeError, LengthError, PageError};
use crate::kernel::Kernel;

/// Length of the CRC, bytes.
const CRC_LEN: usize = 4;

/// A page as it is stored: data, CRC-32C of the data (4 bytes, little-endian), then the BCH parity of both.
///
/// The CRC finds pages in which more bits are wrong than the code corrects and which the code takes for another
/// codeword. A page longer than a codeword is cut into several codewords of nearly equal length; their parities follow
/// each other.
///
/// ```
/// use deepram_ecc::PageCodec;
///
/// let codec = PageCodec::new(8, 4096, 1)?;
/// let mut page = vec![0; codec.stored_len()];
/// page[..4096].fill(7);
/// codec.encode(&mut page)?;
/// page[100] = 0;
/// assert_eq!(codec.decode(&mut page), Ok(3));
/// assert_eq!(page[100], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PageCodec {
    data_len: usize,
    codewords: usize,
    /// The code of the longest codewords. Others are shortened by one more byte.
    code: Bch,
}

impl PageCodec {
    /// A page of `data_len` bytes of data in `codewords` codewords, each of which corrects `t` bits.
    ///
    /// # Errors
    /// The parameters are impossible; the error says what is possible. A codeword holds at most 8189 bytes, the CRC
    /// included, so a page of 8 KiB needs two.
    pub fn new(t: usize, data_len: usize, codewords: usize) -> Result<Self, CodeError> {
        Self::with_kernel(t, data_len, codewords, Kernel::best())
    }

    /// Like [`new`](Self::new), with a choice of the kernel.
    ///
    /// # Errors
    /// As [`new`](Self::new), or the processor lacks the kernel's instructions.
    pub fn with_kernel(
        t: usize,
        data_len: usize,
        codewords: usize,
        kernel: Kernel,
    ) -> Result<Self, CodeError> {
        if data_len == 0 {
            return Err(CodeError::NoData);
        }
        if !(1..=data_len).contains(&codewords) {
            return Err(CodeError::Codewords { codewords, page_len: data_len });
        }
        let longest = data_len.saturating_add(CRC_LEN).div_ceil(codewords);
        Ok(Self { data_len, codewords, code: Bch::builder(t, longest).kernel(kernel).build()? })
    }

    /// The code of a codeword.
    #[must_use]
    pub fn code(&self) -> &Bch {
        &self.code
    }

    /// Number of codewords of a page.
    #[must_use]
    pub fn codewords(&self) -> usize {
        self.codewords
    }

    /// Length of the data, bytes.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.data_len
    }

    /// Length of the page as it is stored, bytes: data, CRC and parities.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        self.protected_len() + self.codewords * self.code.parity_len()
    }

    fn protected_len(&self) -> usize {
        self.data_len + CRC_LEN
    }

    /// The bytes of one codeword: of data and CRC, and of the parities.
    fn codeword(&self, number: usize) -> (Range<usize>, Range<usize>) {
        let start = |number: usize| number * self.protected_len() / self.codewords;
        let parity = self.code.parity_len();
        (start(number)..start(number + 1), number * parity..(number + 1) * parity)
    }

    /// Writes CRC and parities behind the data.
    ///
    /// # Errors
    /// The page has not [`stored_len`](Self::stored_len) bytes.
    pub fn encode(&self, page: &mut [u8]) -> Result<(), LengthError> {
        LengthError::check("page", page.len(), self.stored_len())?;
        let crc = checksum(&page[..self.data_len]);
        page[self.data_len..self.protected_len()].copy_from_slice(&crc.to_le_bytes());
        let (data, parities) = page.split_at_mut(self.protected_len());
        for number in 0..self.codewords {
            let (of_data, of_parity) = self.codeword(number);
            self.code.write_parity(&data[of_data], &mut parities[of_parity]);
        }
        Ok(())
    }

    /// Corrects the page in place and returns the number of bits corrected.
    ///
    /// # Errors
    /// A codeword has more wrong bits than the code corrects ([`PageError::Uncorrectable`]), or the corrected data has
    /// another CRC ([`PageError::Miscorrected`]): the page is unchanged. Also if it has not
    /// [`stored_len`](Self::stored_len) bytes.
    pub fn decode(&self, page: &mut [u8]) -> Result<usize, PageError> {
        LengthError::check("page", page.len(), self.stored_len())?;
        let (data, parities) = page.split_at_mut(self.protected_len());
        let mut corrected = Vec::new();
        let undo = |data: &mut [u8], parities: &mut [u8], corrected: &[(usize, Positions)]| {
            for (number, positions) in corrected {
                self.flip_all(data, parities, *number, positions);
            }
        };
        for number in 0..self.codewords {
            let (of_data, of_parity) = self.codeword(number);
            let mut positions = Positions::default();
            if !self.code.find(&data[of_data], &parities[of_parity], &mut positions) {
                undo(data, parities, &corrected);
                return Err(PageError::Uncorrectable { codeword: number, t: self.code.t() });
            }
            if !positions.as_slice().is_empty() {
                self.flip_all(data, parities, number, &positions);
                corrected.push((number, positions));
            }
        }
        let (bytes, crc) = data.split_at(self.data_len);
        let (found, stored) = (checksum(bytes), u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]));
        if found != stored {
            undo(data, parities, &corrected);
            return Err(PageError::Miscorrected { found, stored });
        }
        Ok(corrected.iter().map(|(_, positions)| positions.as_slice().len()).sum())
    }

    /// Inverts bits of one codeword.
    fn flip_all(&self, data: &mut [u8], parities: &mut [u8], number: usize, positions: &Positions) {
        let (of_data, of_parity) = self.codeword(number);
        for &position in positions.as_slice() {
            flip(&mut data[of_data.clone()], &mut parities[of_parity.clone()], position);
        }
    }
}

fn checksum(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}
