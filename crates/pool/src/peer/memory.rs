//! Memory larger than DRAM, in all the ways that there are: each as a slice of words.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::mapped::Mapped;
use crate::buffer::AlignedBuf;
use crate::device::{Device, FileDevice};
use crate::pager::{PAGE, Pager, PagerOptions};
use crate::{Addr, Pool, Result, Words};

const WORD: usize = size_of::<AtomicU64>();

/// One way to have memory.
pub trait Memory: Send + Sync {
    /// Its words.
    fn words(&self) -> &[AtomicU64];

    /// Gives each word its first contents, `word(n)` for word n, in order.
    ///
    /// # Errors
    /// Those of the device.
    fn fill(&self, word: fn(u64) -> u64) -> io::Result<()> {
        (0..).zip(self.words()).for_each(|(n, to)| to.store(word(n), Relaxed));
        Ok(())
    }

    /// Says that these words will be used soon, in this order, where there is a way to say so; a hint that is
    /// not heeded is no error.
    fn will_need(&self, _words: &[usize]) {}

    /// Loads these words, in their order; `hints`: says first which, where there is a way to say so.
    ///
    /// # Errors
    /// Those of the device, where they are not signals.
    fn gather(&self, words: &[usize], to: &mut [u64], hints: bool) -> io::Result<()> {
        if hints {
            self.will_need(words);
        }
        let memory = self.words();
        words.iter().zip(to).for_each(|(&word, to)| *to = memory[word].load(Relaxed));
        Ok(())
    }

    /// Threads that are started now may run where the program lets them, whatever keeps the one that starts them.
    fn settle(&self) {}

    /// The memory as one that is loaded by calls, if it is.
    fn by_call(&self) -> Option<&ByCall> {
        None
    }

    /// Counters of its own, with their names.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Faults so far that had to read the device, where the kernel does not count them (as major faults).
    fn misses(&self) -> Option<u64> {
        None
    }
}

/// Private anonymous memory: what a program has without doing anything for it.
pub struct Anonymous(Mapped);

impl Anonymous {
    /// So many bytes.
    ///
    /// # Errors
    /// That of `mmap`.
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
    /// A new file of so many bytes (a multiple of 4 KiB), mapped; with `MADV_RANDOM` if `random`.
    ///
    /// # Errors
    /// Those of the file system and of `mmap`.
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

    /// Past the page cache: a file that is there already is where a mapping starts from.
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
        // Where direct writes are not to be had they went through the cache.
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
    /// So many bytes (a multiple of 4 KiB), paged in this way.
    ///
    /// # Errors
    /// Those of `mmap` and of [`Pager::new`].
    pub fn new(bytes: usize, options: PagerOptions) -> io::Result<Self> {
        let mapped = Mapped::anonymous(bytes)?;
        let pager = Pager::new(options)?;
        // SAFETY: private anonymous memory that nobody has touched; only `drop` unmaps it, after it has
        // been released, and nothing here drops its contents.
        unsafe { pager.manage(mapped.start(), mapped.len(), true) }?;
        Ok(Self { mapped, pager })
    }

    /// Its pager.
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

    fn settle(&self) {
        self.pager.unkept(|| ());
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
    /// These words of this pool.
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
        // A hint that is not heeded is no error.
        let _ = self.pool.will_need_pages(&addresses);
    }

    fn settle(&self) {
        self.pool.unkept(|| ());
    }

    fn misses(&self) -> Option<u64> {
        Some(self.pool.stats().faults_missing)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.pool.stats().entries()
    }
}

/// The same memory, loaded by calls at byte grain: [`Pool::load`] and [`Pool::gather`].
pub struct ByCall {
    pooled: Pooled,
    first: Addr,
}

impl ByCall {
    /// These words, the first of which has this address.
    #[must_use]
    pub fn new(pooled: Pooled, first: Addr) -> Self {
        Self { pooled, first }
    }

    /// Loads a word.
    ///
    /// # Errors
    /// As [`Pool::load`].
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
        gather().map_err(|error: crate::PoolError| io::Error::other(error))
    }

    fn settle(&self) {
        self.pooled.settle();
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
        // A hint: memory that the kernel has no room for is read when it is used.
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
