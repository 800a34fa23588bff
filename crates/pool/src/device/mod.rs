//! The device interface of the pool, and its implementations.
//!
//! **Media assumptions**, which every device must meet and which the crash tests simulate: a write is not durable
//! until a later [`Device::flush`] returns, unless it was made with [`Device::write_durable`]. Until then the write
//! may be kept, lost, reordered with any other unflushed write, or torn at [`SECTOR`] boundaries. A sector is written
//! completely or not at all. A range that is not being written keeps its bytes.

use std::io;

#[doc(hidden)]
pub mod close_on_fork;
mod file;
#[doc(hidden)]
pub mod kernel;
mod queue;
mod reads;
pub(crate) mod signature;

pub use file::FileDevice;
pub(crate) use queue::WriteQueue;
pub(crate) use reads::{CompletedRead, ReadQueue, ReadQueues};

/// The unit in which a write can tear: 512 bytes, the smallest logical block of any Linux device.
pub const SECTOR: usize = 512;

/// Alignment, in bytes, of every offset, length and buffer that the pool passes to a device.
pub use deepram_linux::buffer::ALIGN;

/// A file or block device used as flash.
///
/// Offsets, lengths and buffer addresses are multiples of [`ALIGN`], except for the durable writes that
/// [`Device::granule`] allows. Methods take `&self`, because several threads may use a device at once. A short
/// transfer is an error.
pub trait Device: Send + Sync {
    /// Returns the size in bytes, a multiple of [`ALIGN`].
    fn len(&self) -> u64;

    /// Returns whether the device has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// The device's error; [`io::ErrorKind::UnexpectedEof`] beyond the end of the device.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf` at `offset`. The write is durable only after [`Device::flush`].
    ///
    /// # Errors
    /// The device's error; the range then holds any mixture of old and new sectors.
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes every write durable that returned before this call.
    ///
    /// # Errors
    /// The device's error; the data written since the last flush is then in an unknown state.
    fn flush(&self) -> io::Result<()>;

    /// Writes `buf` at `offset` and returns when this write is durable; earlier writes need not be. One device
    /// command where the device has one (`RWF_DSYNC`).
    ///
    /// # Errors
    /// The errors of [`Device::write`] and [`Device::flush`]. All data written since the last flush is then in an
    /// unknown state, because a lost write is reported once, to the first call of any kind.
    fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write(offset, buf)?;
        self.flush()
    }

    /// Returns the alignment of the offset and length of a [`Device::write_durable`], in bytes: a power of two from
    /// [`SECTOR`] to [`ALIGN`]. The buffer's address must be a multiple of [`ALIGN`] in any case.
    fn granule(&self) -> usize {
        ALIGN
    }

    /// Checks whether a write of this range may begin. Called before each write that goes through the descriptor.
    ///
    /// # Errors
    /// The range leaves the device, or the process may not write there.
    fn admits(&self, _offset: u64, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// Returns the descriptor through which writes can be queued with io_uring, if there is one.
    fn queue_fd(&self) -> Option<std::os::fd::RawFd> {
        None
    }

    /// Makes a queue for transfers of the files that [`Device::queue_fd`] returns, if possible.
    #[doc(hidden)]
    fn ring(&self, _entries: u32, _quiet: bool) -> Option<Box<dyn kernel::Ring>> {
        None
    }

    /// Releases the device to other processes. The pool does not use the device any more.
    fn release(&self) {}

    /// Returns the name that an operator uses for this device: its path.
    fn name(&self) -> String;
}
