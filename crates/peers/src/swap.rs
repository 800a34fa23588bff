//! A swap file for benchmarks, active as long as its value lives.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use deepram_pager::PAGE;

/// The highest priority, so that the kernel swaps to this file before any other.
const FIRST: i32 = 0x8000 | 0x7fff;

/// An active swap file. Dropping it deactivates and removes the file.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    on: bool,
}

impl SwapFile {
    /// Creates a file of `bytes` bytes and swaps to it with the highest priority.
    ///
    /// # Errors
    /// The errors of the file system, and of `swapon`, which needs root and a file system that supports swap files.
    /// No file is left behind.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        // From here on every error removes the file.
        let mut swap = Self { path: path.to_owned(), on: false };
        let pages =
            u32::try_from(bytes / PAGE as u64).ok().filter(|pages| *pages >= 10).ok_or_else(|| {
                let text = format!("a swap file has 40 KiB to 16 TiB, not {bytes} bytes");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
        // Reserved but unwritten space would suffice, but not on every file system.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, u64::from(pages) * PAGE as u64)?;
        file.write_all_at(&header(pages), 0)?;
        file.sync_all()?;
        let name = swap.name()?;
        // SAFETY: the kernel reads a NUL-terminated string, and the call only affects this file.
        let result = unsafe { libc::swapon(name.as_ptr(), FIRST) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        swap.on = true;
        Ok(swap)
    }

    /// Deactivates the swap file, which brings its pages back into memory, and removes the file.
    ///
    /// # Errors
    /// The error of `swapoff`: memory does not suffice for the swapped pages. Dropping the value tries again.
    pub fn off(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let name = self.name()?;
        while self.on {
            // SAFETY: as for `swapon`.
            let result = unsafe { libc::swapoff(name.as_ptr()) };
            let error = io::Error::last_os_error();
            if result != 0 && error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            self.on = result != 0;
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn name(&self) -> io::Result<CString> {
        Ok(CString::new(self.path.as_os_str().as_bytes())?)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("deepram: {0}: {error}; run `swapoff {0}` and remove the file", self.path.display());
        }
    }
}

/// Makes the first page of a swap area (`union swap_header` in the kernel's `include/linux/swap.h`).
fn header(pages: u32) -> [u8; PAGE] {
    const INFO: usize = 1024;
    const MAGIC: &[u8; 10] = b"SWAPSPACE2";
    let mut page = [0; PAGE];
    // The version, then the number of the last page.
    page[INFO..INFO + 4].copy_from_slice(&1u32.to_ne_bytes());
    page[INFO + 4..INFO + 8].copy_from_slice(&(pages - 1).to_ne_bytes());
    page[PAGE - MAGIC.len()..].copy_from_slice(MAGIC);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_swapped_to_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("swap");
        let error = SwapFile::create(&path, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        assert_eq!(SwapFile::create(&path, 1 << 20).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
