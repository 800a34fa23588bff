//! Locations of the checksums in a pool, for tests that damage a pool with or without correcting its checksums. Not
//! part of the public interface.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::device::Device;
use crate::format::codec::crc32c;
use crate::store::Recovery;

pub use crate::store::{ChecksumKind, ChecksumSite};

/// The bytes of a device, read-only.
struct Bytes(Vec<u8>);

impl Device for Bytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = start.checked_add(buf.len()).and_then(|end| self.0.get(start..end));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, _offset: u64, _buf: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "bytes in memory".into()
    }
}

/// Returns every checksummed structure that matters in the only device of a sound pool, innermost first: a structure
/// comes after those whose checksums it holds.
///
/// # Errors
/// The errors of opening the pool.
pub fn sites(device: &[u8]) -> crate::Result<Vec<ChecksumSite>> {
    let recovery = Recovery::read(Arc::new(Bytes(device.to_vec())), Arc::default())?;
    let open = recovery.newest();
    recovery.finish(open, 1 << 20, false)?.sites()
}

/// Computes the checksum of a site.
#[must_use]
pub fn checksum(site: &ChecksumSite, read: &dyn Fn(Range<usize>) -> Vec<u8>) -> u32 {
    let mut bytes = Vec::new();
    for range in &site.ranges {
        let mut part = read(range.clone());
        for at in site.checksum_at.iter().filter(|at| range.contains(at)) {
            // A checksum covers its own bytes as zeros.
            part[at - range.start..at - range.start + 4].fill(0);
        }
        bytes.extend(part);
    }
    bytes.truncate(site.len);
    crc32c(&bytes)
}
