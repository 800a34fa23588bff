//! Files in `/proc` about this process, opened at the start: the process may later give up the right to open them, or
//! lose sight of `/proc`, and a file opened for a moment would take a descriptor number from the program.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use super::PAGE;
use deepram_linux::descriptors::open_high;

/// Bits of an entry of `/proc/self/pagemap`: the page is in memory, and mapped once.
const PRESENT: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;

/// The files; `None` where one could not be opened.
#[derive(Debug)]
pub(super) struct ProcFiles {
    sizes: Option<File>,
    memory: Option<File>,
    page_map: Option<File>,
}

impl ProcFiles {
    pub(super) fn open() -> Self {
        let open = |name| open_high(|| File::open(name)).ok().map(File::from);
        let [sizes, memory, page_map] =
            ["/proc/self/statm", "/proc/self/mem", "/proc/self/pagemap"].map(open);
        Self { sizes, memory, page_map }
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        [&self.sizes, &self.memory, &self.page_map].into_iter().flatten().map(AsRawFd::as_raw_fd)
    }

    /// The memory of this process.
    pub(super) fn memory(&self) -> Option<&File> {
        self.memory.as_ref()
    }

    /// Number of resident pages of this process that belong to no file and are not shared.
    pub(super) fn anonymous_pages(&self) -> Option<usize> {
        let mut text = [0; 256];
        let len = self.sizes.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..len]).ok()?;
        let mut numbers = text.split_ascii_whitespace().map_while(|number| number.parse::<usize>().ok());
        let (resident, shared) = (numbers.nth(1)?, numbers.next()?);
        Some(resident.saturating_sub(shared))
    }

    /// Whether another process has this page in memory too, as after a fork. `false` where the kernel does not tell.
    pub(super) fn is_shared(&self, address: usize) -> bool {
        let mut entry = [0; size_of::<u64>()];
        let at = (address / PAGE * entry.len()) as u64;
        let read = self.page_map.as_ref().is_some_and(|file| file.read_exact_at(&mut entry, at).is_ok());
        read && u64::from_ne_bytes(entry) & (PRESENT | EXCLUSIVE) == PRESENT
    }

    /// Reads memory of this process, including memory that the process itself may not read.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn read(&self, to: &mut [u8], address: usize) -> io::Result<()> {
        let Some(memory) = &self.memory else {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it could not be opened when the pager started",
            ));
        };
        memory.read_exact_at(to, address as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_and_reads_memory() {
        let kernel = ProcFiles::open();
        let before = kernel.anonymous_pages().expect("statm is readable");
        let more = vec![7_u8; 64 << 20];
        assert!(kernel.anonymous_pages().expect("again") > before + (32 << 20) / 4096);
        let mut byte = [0];
        kernel.read(&mut byte, more.as_ptr().addr() + 5).expect("its own memory");
        assert_eq!(byte, [7]);
    }
}
