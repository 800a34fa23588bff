//! What the pool asks of a device, and the devices there are.
//!
//! **Media assumptions**, which every device must meet and which the crash tests simulate:
//! a write is not durable until a later [`Device::flush`] returns, or unless it was written with
//! [`Device::write_durable`]; until then it may be kept, lost, reordered with any other unflushed
//! write, or torn at [`SECTOR`] boundaries. A sector itself is written entirely or not at all.
//! A range that is not being written keeps its bytes.

use std::io;

mod file;
#[doc(hidden)]
pub mod inherited;
#[doc(hidden)]
pub mod kernel;
mod queue;
mod reads;
pub(crate) mod signature;

pub use file::FileDevice;
pub(crate) use queue::WriteQueue;
pub(crate) use reads::{Ended, Queues, ReadQueue};

/// The unit in which a device tears: 512 bytes, the smallest logical block of any Linux device.
pub const SECTOR: usize = 512;

/// Alignment, in bytes, of every offset, length and buffer that the pool passes to a device.
pub const ALIGN: usize = 4096;

/// A file or block device used as flash.
///
/// Offsets, lengths and buffer addresses are multiples of [`ALIGN`], but for the durable writes that
/// [`Device::granule`] allows. Methods take `&self`: a
/// device may be used from several threads at once. A short transfer is an error, never `Ok`.
pub trait Device: Send + Sync {
    /// Size in bytes; a multiple of [`ALIGN`].
    fn len(&self) -> u64;

    /// Whether the device holds no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// The device's own error, or [`io::ErrorKind::UnexpectedEof`] beyond its end.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`; durable only after [`Device::flush`].
    ///
    /// # Errors
    /// The device's own error; the range then holds any mixture of old and new sectors.
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes every write that returned before this call durable.
    ///
    /// # Errors
    /// The device's own error; what was written since the last flush is then in an unknown state.
    fn flush(&self) -> io::Result<()>;

    /// Writes `buf` at `offset` and returns when that write is durable. Says nothing about
    /// earlier writes. One device command where the device has one (`RWF_DSYNC`).
    ///
    /// # Errors
    /// As for [`Device::write`] and [`Device::flush`]: what was written since the last flush is in an
    /// unknown state too, for a lost write is reported once, to whichever call comes first.
    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write(offset, buf)?;
        self.flush()
    }

    /// Of what the offset and length of a [`Device::write_durable`] must be multiples, in bytes: a power
    /// of two from [`SECTOR`] to [`ALIGN`]. The buffer's address is a multiple of [`ALIGN`] all the same.
    fn granule(&self) -> usize {
        ALIGN
    }

    /// Whether a write of this range may begin: asked before each that goes through the descriptor.
    ///
    /// # Errors
    /// It leaves the device, or the process may not write there.
    fn admits(&self, _offset: u64, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// The raw file descriptor through which writes can be queued (io_uring), if there is one.
    fn queue_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }

    /// A queue for transfers of the files that [`Device::queue_fd`] names, if there is one.
    #[doc(hidden)]
    fn ring(&self, _entries: u32, _quiet: bool) -> Option<Box<dyn kernel::Ring>> {
        None
    }

    /// Lets others have the device: it will not be used any more.
    fn release(&self) {}

    /// What an operator would call this device: its path.
    fn name(&self) -> String;
}
