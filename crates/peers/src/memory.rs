//! The kinds of memory that benchmarks compare, each larger than DRAM and each a slice of words.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::mapped::Mapped;
use deepram_linux::buffer::AlignedBuf;
use deepram_pager::{PAGE, Pager, PagerOptions};
use deepram_pool::device::{Device, FileDevice};
use deepram_pool::{Addr, Pool, PoolError, Result, Words};

const WORD: usize = size_of::<AtomicU64>();

/// A kind of memory to measure.
pub trait Memory: Send + Sync {
    /// Returns the words of the memory.
    fn words(&self) -> &[AtomicU64];

    /// Writes the first contents of each word, `word(n)` for word n, in order.
    ///
    /// # Errors
    /// The device's errors.
    fn fill(&self, word: fn(u64) -> u64) -> io::Result<()> {
        (0..).zip(self.words()).for_each(|(n, to)| to.store(word(n), Relaxed));
        Ok(())
    }

    /// Announces that these words will be used soon, in this order. Memory without such a hint ignores the call.
    fn will_need(&self, _words: &[usize]) {}

    /// Loads these words in order. With `hints`, announces them first ([`Memory::will_need`]).
    ///
    /// # Errors
    /// The device's errors, unless they are signals.
    fn gather(&self, words: &[usize], to: &mut [u64], hints: bool) -> io::Result<()> {
        if hints {
            self.will_need(words);
        }
        let memory = self.words();
        words.iter().zip(to).for_each(|(&word, to)| *to = memory[word].load(Relaxed));
        Ok(())
    }

    /// Ends the binding of the calling thread to a handler's processor, so that threads that it starts next may run
    /// on any processor of the program.
    fn end_pinning(&self) {}

    /// Returns the memory as one that is loaded by calls, if it is.
    fn by_call(&self) -> Option<&ByCall> {
        None
    }

    /// Returns the counters of this memory, with their names.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Returns the number of page faults so far that read the device, where the kernel does not count them as major
    /// faults.
    fn misses(&self) -> Option<u64> {
        None
    }
}

/// Private anonymous memory: the default memory of a program.
pub struct Anonymous(Mapped);

impl Anonymous {
    /// Maps `bytes` bytes.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Mapped::anonymous(bytes).map(Self)
    }
}

impl Memory for Anonymous {
    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }

    fn will_need(&self, words: &[usize]) {
        will_need(&self.0, words);
    }
}

/// A shared mapping of a file.
pub struct SharedFile {
    mapped: Mapped,
    device: FileDevice,
    file: File,
}

impl SharedFile {
    /// Creates and maps a file of `bytes` bytes (a multiple of 4 KiB); with `MADV_RANDOM` if `random`.
    ///
    /// # Errors
    /// The errors of the file system and of `mmap`.
    pub fn create(path: &Path, bytes: usize, random: bool) -> io::Result<Self> {
        let device = FileDevice::create(path, bytes as u64)?;
        let file = File::options().read(true).write(true).open(path)?;
        let mapped = Mapped::shared(&file, bytes)?;
        if random {
            mapped.advise(0, bytes, libc::MADV_RANDOM)?;
        }
        Ok(Self { mapped, device, file })
    }
}

impl Memory for SharedFile {
    fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }

    /// Writes past the page cache, because a measurement starts from a file outside the page cache.
    fn fill(&self, word: fn(u64) -> u64) -> io::Result<()> {
        let len = self.device.len();
        let mut buffer = AlignedBuf::zeroed(1 << 20);
        for at in (0..len).step_by(buffer.len()) {
            let bytes = (len - at).min(buffer.len() as u64) as usize;
            let first = at / WORD as u64;
            for (n, to) in (first..).zip(buffer[..bytes].chunks_exact_mut(WORD)) {
                to.copy_from_slice(&word(n).to_ne_bytes());
            }
            self.device.write(at, &buffer[..bytes])?;
        }
        self.device.flush()?;
        // Without direct I/O the writes went through the page cache.
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }

    fn will_need(&self, words: &[usize]) {
        will_need(&self.mapped, words);
    }
}

/// Anonymous memory under a [`Pager`].
pub struct Paged {
    mapped: Mapped,
    pager: Pager,
}

impl Paged {
    /// Maps `bytes` bytes (a multiple of 4 KiB) under a pager with these options.
    ///
    /// # Errors
    /// The errors of `mmap` and of [`Pager::new`].
    pub fn new(bytes: usize, options: PagerOptions) -> io::Result<Self> {
        let mapped = Mapped::anonymous(bytes)?;
        let pager = Pager::new(options)?;
        // SAFETY: private anonymous memory that no code has touched. Only `drop` unmaps it, after its release from
        // the pager, and nothing here drops its contents.
        unsafe { pager.manage(mapped.start(), mapped.len(), true) }?;
        Ok(Self { mapped, pager })
    }

    /// Returns the pager.
    #[must_use]
    pub fn pager(&self) -> &Pager {
        &self.pager
    }
}

impl Memory for Paged {
    fn words(&self) -> &[AtomicU64] {
        self.mapped.words()
    }

    fn will_need(&self, words: &[usize]) {
        let addresses: Vec<usize> = words.iter().map(|word| self.mapped.start() + word * WORD).collect();
        self.pager.will_need_pages(&addresses);
    }

    fn end_pinning(&self) {
        self.pager.without_pinning(|| ());
    }

    fn misses(&self) -> Option<u64> {
        Some(self.pager.stats().faults_major)
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        let (start, len) = (self.mapped.start(), self.mapped.len());
        self.pager.release(start, len, || {
            self.mapped.unmap();
            Some(())
        });
    }
}

/// Allocated memory of a mapped pool.
pub struct Pooled {
    pool: Pool,
    words: Words,
}

impl Pooled {
    /// Wraps these words of this pool.
    #[must_use]
    pub fn new(pool: Pool, words: Words) -> Self {
        Self { pool, words }
    }
}

impl Memory for Pooled {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn fill(&self, word: fn(u64) -> u64) -> io::Result<()> {
        (0..).zip(self.words()).for_each(|(n, to)| to.store(word(n), Relaxed));
        self.pool.sync().map(drop).map_err(io::Error::other)
    }

    fn will_need(&self, words: &[usize]) {
        let Some(first) = self.pool.address_of(self.words.as_ptr().cast()) else { return };
        let at = |word: &usize| first.offset_by((word * WORD) as u64).ok();
        let addresses: Vec<Addr> = words.iter().filter_map(at).collect();
        // A hint that fails is not an error.
        let _ = self.pool.will_need_pages(&addresses);
    }

    fn end_pinning(&self) {
        self.pool.without_pinning(|| ());
    }

    fn misses(&self) -> Option<u64> {
        Some(self.pool.stats().faults_missing)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.pool.stats().entries().into_iter().map(|(name, value, _)| (name, value)).collect()
    }
}

/// Memory of a pool, loaded by byte-granular calls: [`Pool::load`] and [`Pool::gather`].
pub struct ByCall {
    pooled: Pooled,
    first: Addr,
}

impl ByCall {
    /// Wraps these words, the first of which has this address.
    #[must_use]
    pub fn new(pooled: Pooled, first: Addr) -> Self {
        Self { pooled, first }
    }

    /// Loads a word.
    ///
    /// # Errors
    /// The errors of [`Pool::load`].
    #[inline]
    pub fn load(&self, word: u64) -> Result<u64> {
        let mut bytes = [0; WORD];
        self.pooled.pool.load(self.address(word)?, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn address(&self, word: u64) -> Result<Addr> {
        Ok(self.first.offset_by(word * WORD as u64)?)
    }
}

impl Memory for ByCall {
    fn words(&self) -> &[AtomicU64] {
        self.pooled.words()
    }

    fn fill(&self, word: fn(u64) -> u64) -> io::Result<()> {
        self.pooled.fill(word)
    }

    fn gather(&self, words: &[usize], to: &mut [u64], _hints: bool) -> io::Result<()> {
        let mut gather = || {
            let addresses = words.iter().map(|&word| self.address(word as u64));
            let mut bytes = vec![0; words.len() * WORD];
            self.pooled.pool.gather(&addresses.collect::<Result<Vec<_>>>()?, WORD, &mut bytes)?;
            for (to, bytes) in to.iter_mut().zip(bytes.chunks_exact(WORD)) {
                *to = u64::from_ne_bytes(bytes.try_into().expect("a word's bytes"));
            }
            Ok(())
        };
        gather().map_err(|error: PoolError| io::Error::other(error))
    }

    fn end_pinning(&self) {
        self.pooled.end_pinning();
    }

    fn by_call(&self) -> Option<&ByCall> {
        Some(self)
    }

    fn misses(&self) -> Option<u64> {
        let stats = self.pooled.pool.stats();
        Some(stats.cold_reads + stats.faults_missing)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.pooled.counters()
    }
}

fn will_need(mapped: &Mapped, words: &[usize]) {
    for word in words {
        // A hint: the kernel reads the page later if it has no memory for it now.
        let _ = mapped.advise(word * WORD / PAGE * PAGE, PAGE, libc::MADV_WILLNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(memory: &dyn Memory) {
        let word = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        memory.fill(word).unwrap();
        let words = memory.words();
        memory.will_need(&[words.len() - 1, 0]);
        assert!((0..).zip(words).all(|(n, found)| found.load(Relaxed) == word(n)));
        words[7].fetch_add(1, Relaxed);
        assert_eq!(words[7].load(Relaxed), word(7) + 1);
    }

    #[test]
    fn each_holds_what_it_was_filled_with_and_what_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = 3 * (1 << 20) + PAGE;
        holds(&Anonymous::new(bytes).unwrap());
        for random in [false, true] {
            let path = folder.path().join(format!("file-{random}"));
            holds(&SharedFile::create(&path, bytes, random).unwrap());
        }
        match Paged::new(16 << 20, PagerOptions::new(4 << 20, folder.path())) {
            Ok(paged) => {
                holds(&paged);
                assert!(paged.misses().unwrap() > 0, "four times what fits was read without a miss");
            }
            Err(error) => eprintln!("no pager here: {error}"),
        }
    }

    #[test]
    fn advice_beyond_the_end_is_an_error() {
        let mapped = Mapped::anonymous(PAGE).unwrap();
        assert!(mapped.advise(0, PAGE, libc::MADV_WILLNEED).is_ok());
        assert!(mapped.advise(PAGE, PAGE, libc::MADV_WILLNEED).is_err());
        assert!(mapped.advise(PAGE, usize::MAX, libc::MADV_WILLNEED).is_err());
    }
}
