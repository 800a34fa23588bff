//! Checksums of memory that is not write-protected: they show whether it has been stored to.

use std::sync::atomic::Ordering::Relaxed;

use crc_fast::CrcAlgorithm;

use super::{AddressSpace, Inner, PAGE, contiguous_ranges};

/// CRC-64 of the contents of memory: a store of up to 64 bits always changes it, other stores except with probability 2^-64.
#[must_use]
pub fn contents_checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Checksum of a page's copy in the swap file. It is an array of bytes because an aligned word would lengthen the state of
/// each page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageChecksum([u8; 8]);

impl PageChecksum {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(contents_checksum(bytes).to_le_bytes())
    }

    /// The checksum of each page of `bytes`.
    pub(super) fn of_pages(bytes: &[u8]) -> Vec<Self> {
        bytes.chunks_exact(PAGE).map(Self::of).collect()
    }
}

impl AddressSpace {
    /// Protects clean pages, sorted by address, against stores, and returns those that equal their slots. The pages are in
    /// memory and readable, and the caller keeps them there.
    pub(super) fn unchanged(&self, pages: &[(usize, PageChecksum)]) -> Vec<usize> {
        let addresses: Vec<usize> = pages.iter().map(|(page, _)| *page).collect();
        let ranges = contiguous_ranges(&addresses).into_iter();
        let gone: Vec<usize> = ranges.flat_map(|(start, len)| self.protect(start, len)).collect();
        let equal = |(page, checksum): &&(usize, PageChecksum)| {
            let bytes = std::ptr::with_exposed_provenance(*page);
            // SAFETY: by the caller's promise the page is in memory, and no thread can store to it.
            !gone.contains(page)
                && PageChecksum::of(unsafe { std::slice::from_raw_parts(bytes, PAGE) }) == *checksum
        };
        pages.iter().filter(equal).map(|(page, _)| *page).collect()
    }
}

impl Inner {
    /// Whether pages that come back clean are write-protected, so that their first store is seen at once: a device stores
    /// without a fault, and a record has all accesses.
    pub(super) fn protects_clean_pages(&self) -> bool {
        self.direct_io.load(Relaxed) || self.options.record_accesses
    }
}
