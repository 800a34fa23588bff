//! What the kernel tells of this process in files, which are open from the start: a process may give up the right to open
//! them, or see them no more, and a file opened for a moment takes a descriptor's number away from the program.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use crate::descriptors::raised;

/// The files, as far as there are any.
#[derive(Debug)]
pub(super) struct Kernel {
    sizes: Option<File>,
    memory: Option<File>,
}

impl Kernel {
    pub(super) fn open() -> Self {
        let open = |name| raised(|| File::open(name)).ok().map(File::from);
        Self { sizes: open("/proc/self/statm"), memory: open("/proc/self/mem") }
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        [&self.sizes, &self.memory].into_iter().flatten().map(AsRawFd::as_raw_fd)
    }

    /// Pages of this process that are neither a file's nor shared.
    pub(super) fn anonymous_pages(&self) -> Option<usize> {
        let mut text = [0; 256];
        let len = self.sizes.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse::<usize>().ok());
        let (resident, shared) = (numbers.nth(1)?, numbers.next()?);
        Some(resident.saturating_sub(shared))
    }

    /// Memory of this process, also what it may not read itself.
    ///
    /// # Errors
    /// The kernel does not let it.
    pub(super) fn read(&self, to: &mut [u8], address: usize) -> io::Result<()> {
        let Some(memory) = &self.memory else {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it cannot be opened"));
        };
        memory.read_exact_at(to, address as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_memory() {
        let kernel = Kernel::open();
        let before = kernel.anonymous_pages().expect("Linux tells");
        let more = vec![7_u8; 64 << 20];
        assert!(kernel.anonymous_pages().expect("again") > before + (32 << 20) / 4096);
        let mut byte = [0];
        kernel.read(&mut byte, more.as_ptr().addr() + 5).expect("its own memory");
        assert_eq!(byte, [7]);
    }
}
