//! Flushing of cache lines, so that stores reach memory and survive a power cut where that memory is persistent.
//!
//! A store is durable once its cache line has been written back, a fence has ordered the write-back, and the memory
//! controller's own buffers have been written. [`Flusher::flush`] does the first by one of four methods (`M_FLUSH` of the
//! NVMM application study, section II-C), [`Flusher::fence`] the second; [`Flusher::barrier`] is a fence followed by a delay
//! that stands for the third (`wbarrier`, latency `L_WBAR`). Processors whose power-fail protection covers the memory
//! controller (ADR) need no such delay.
//!
//! ```
//! use deepram_linux::flush::{Flusher, Method};
//!
//! let flusher = Flusher::new(Method::best())?;
//! let mut value = [7u8; 200];
//! flusher.flush_bytes(&mut value);
//! flusher.barrier();
//! # Ok::<(), deepram_linux::flush::NotAvailable>(())
//! ```

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("cache lines are flushed by instructions of x86-64 or of aarch64");
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// An instruction that writes a cache line back to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `clflush`: writes the line back and removes it from the caches, one line after the other. aarch64: `dc civac`,
    /// with a barrier after each line.
    Clflush,
    /// `clflushopt`: writes the line back and removes it from the caches; lines overlap. aarch64: `dc civac`.
    Clflushopt,
    /// `clwb`: writes the line back, which may stay in the caches. aarch64: `dc cvac`.
    Clwb,
    /// Loads the line and stores it again past the caches (write once flush, WOF). x86-64: `movnti`; aarch64: `stnp`, which is
    /// only a hint there, and `dc cvac`.
    NonTemporal,
}

impl Method {
    /// All methods, in the order of the paper.
    pub const ALL: [Self; 4] = [Self::Clflush, Self::Clflushopt, Self::Clwb, Self::NonTemporal];

    /// The name that [`Method::from_str`] accepts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clflush => "clflush",
            Self::Clflushopt => "clflushopt",
            Self::Clwb => "clwb",
            Self::NonTemporal => "wof",
        }
    }

    /// Whether this processor has the instruction.
    #[must_use]
    pub fn is_available(self) -> bool {
        processor::has(self)
    }

    /// The first available method of `clwb`, `clflushopt` and `clflush`: none of them stores, so other threads may store
    /// to the lines meanwhile.
    #[must_use]
    pub fn best() -> Self {
        [Self::Clwb, Self::Clflushopt]
            .into_iter()
            .find(|method| method.is_available())
            .unwrap_or(Self::Clflush)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no method's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a flush method; give clflush, clflushopt, clwb or wof")]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        Self::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| UnknownMethod(name.into()))
    }
}

/// The processor lacks the instruction of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this processor has no {0}; it has {has}", has = available())]
pub struct NotAvailable(Method);

fn available() -> String {
    let methods = Method::ALL.into_iter().filter(|method| method.is_available());
    methods.map(Method::name).collect::<Vec<_>>().join(", ")
}

/// Flushes ranges of memory by one method.
#[derive(Debug, Clone, Copy)]
pub struct Flusher {
    method: Method,
    /// Bytes of a cache line, a power of two.
    line: usize,
    barrier: Duration,
}

impl Flusher {
    /// A flusher whose [`Flusher::barrier`] is a fence without a delay.
    ///
    /// # Errors
    /// The processor lacks the method's instruction.
    pub fn new(method: Method) -> Result<Self, NotAvailable> {
        if !method.is_available() {
            return Err(NotAvailable(method));
        }
        Ok(Self { method, line: processor::line(), barrier: Duration::ZERO })
    }

    /// The same with a delay in each [`Flusher::barrier`] (`L_WBAR`).
    #[must_use]
    pub const fn with_barrier(self, barrier: Duration) -> Self {
        Self { barrier, ..self }
    }

    /// The method.
    #[must_use]
    pub const fn method(&self) -> Method {
        self.method
    }

    /// Bytes of a cache line.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// Writes every cache line back of which `start..start + len` contains a byte. Nothing is flushed if `len` is 0. The
    /// write-backs are ordered by [`Flusher::fence`] only. [`Method::NonTemporal`] stores to whole lines of the range; lines of
    /// which the range has a part are flushed by [`Method::Clflush`], as their other bytes may be another thread's.
    ///
    /// # Safety
    /// The range is mapped and readable. For [`Method::NonTemporal`] it is also writable, and no other thread stores to it
    /// meanwhile: its store could be lost.
    #[inline]
    pub unsafe fn flush(&self, start: *const u8, len: usize) {
        if self.method == Method::NonTemporal {
            // SAFETY: as promised by the caller.
            return unsafe { self.flush_by_stores(start, len) };
        }
        let first = start.with_addr(start.addr() & !(self.line - 1));
        let lines = lines_of(start.addr(), len, self.line);
        // SAFETY: as promised by the caller. Each line has bytes of the range, and lies within their page.
        unsafe { processor::flush(self.method, first, lines, self.line) };
    }

    /// [`Flusher::flush`] by a method that stores.
    ///
    /// # Safety
    /// As for [`Flusher::flush`].
    unsafe fn flush_by_stores(&self, start: *const u8, len: usize) {
        for Part { method, skip, lines } in parts(start.addr(), len, self.line) {
            let first = start.with_addr((start.addr() & !(self.line - 1)) + skip * self.line);
            // SAFETY: as promised by the caller. Each line has bytes of the range, and lies within their page; where the
            // method stores, the line has no other bytes.
            unsafe { processor::flush(method, first, lines, self.line) };
        }
    }

    /// Flushes bytes that no other thread uses, by [`Flusher::flush`].
    pub fn flush_bytes(&self, bytes: &mut [u8]) {
        // SAFETY: the slice is mapped and writable, and this call alone uses it.
        unsafe { self.flush(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Orders all flushes of this thread before its later stores.
    #[inline]
    pub fn fence(&self) {
        processor::fence();
    }

    /// A fence, and then a delay by [`Flusher::with_barrier`] (`wbarrier`).
    #[inline]
    pub fn barrier(&self) {
        self.fence();
        if !self.barrier.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < self.barrier {
                std::hint::spin_loop();
            }
        }
    }

    /// Flushes a range and waits until it is durable.
    ///
    /// # Safety
    /// As for [`Flusher::flush`].
    #[inline]
    pub unsafe fn persist(&self, start: *const u8, len: usize) {
        // SAFETY: as promised by the caller.
        unsafe { self.flush(start, len) };
        self.barrier();
    }
}

/// Adjacent lines that are flushed by the same method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    method: Method,
    /// Number of lines before it, from the first line of the range on.
    skip: usize,
    lines: usize,
}

/// Number of lines that contain one of `len` bytes at address `start`.
fn lines_of(start: usize, len: usize, line: usize) -> usize {
    if len == 0 { 0 } else { ((start & (line - 1)) + len).div_ceil(line) }
}

/// Divides the lines of the range of `len` bytes at address `start`: a method that stores gets whole lines only.
fn parts(start: usize, len: usize, line: usize) -> [Part; 3] {
    let before = start & (line - 1);
    let lines = lines_of(start, len, line);
    let head = usize::from(lines > 0 && (before != 0 || len < line));
    let tail = usize::from(lines > head && !(before + len).is_multiple_of(line));
    let edge = Part { method: Method::Clflush, skip: 0, lines: 0 };
    [
        Part { lines: head, ..edge },
        Part { method: Method::NonTemporal, skip: head, lines: lines - head - tail },
        Part { skip: lines - tail, lines: tail, ..edge },
    ]
}

#[cfg(test)]
mod tests;
