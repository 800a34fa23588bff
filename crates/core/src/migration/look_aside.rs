//! The promotion look-aside buffer: which copy of a line is the page's while the page moves from the drive's
//! memory to the host's DRAM (FlatFlash, section 3.3).
//!
//! It stands in the host bridge, between processor, DRAM and link. While a page is in flight each of its lines
//! has one of two states, and changes once:
//!
//! ```text
//!                inbound: copied             (the drive's line comes in)
//!   at the drive -------------------> in DRAM
//!                store: redirected           (the processor's line goes out)
//!
//!   in DRAM: inbound is dropped, loads and stores go to DRAM
//!   at the drive: loads go to the drive
//! ```
//!
//! What must hold around it, or stores are lost:
//!
//! 1. The link keeps the order of what it carries, in each direction.
//! 2. A promotion begins at the host: [`LookAside::begin`] first, then word to the drive, which sends no line
//!    before it has that word. So each store that was on its way to the drive is in the lines that it sends.
//! 3. The drive keeps the page until it hears that the promotion is over, and the host says so after
//!    [`LookAside::finish`]. So each load that was on its way to the drive finds the page there.
//! 4. Where processor and drive come for a line at the same time, the processor is first.
//!
//! A promotion that finds the buffer full is deferred ([`Begin::Deferred`]): nothing has changed, and the page is
//! promoted after a later use.

use alloc::vec::Vec;
use core::fmt;

/// A page in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InFlight {
    /// Where it comes from: its page in the drive's address range.
    pub source: u64,
    /// Where it goes: its page in DRAM.
    pub target: u64,
    /// Which of its lines are in DRAM: bit i for line i.
    pub copied: u64,
}

/// Where an access of the processor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To the drive: as if the page were not in flight.
    Drive,
    /// To this page of DRAM.
    Host(u64),
}

/// What becomes of a line that comes from the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound {
    /// It is to be written to this page of DRAM.
    Copy(u64),
    /// It is stale: DRAM has a newer one.
    Drop,
}

/// What became of a promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// It is under way.
    Begun,
    /// All entries are in use.
    Deferred,
}

/// What a driver did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookAsideError {
    /// The page is in flight already.
    Twice {
        /// Which.
        source: u64,
    },
    /// The page is not in flight.
    NotInFlight {
        /// Which.
        source: u64,
    },
    /// A page has fewer lines.
    NoSuchLine {
        /// Which.
        line: u8,
        /// Lines of a page.
        lines: u8,
    },
    /// Not all lines are in DRAM yet.
    Unfinished {
        /// Which page.
        source: u64,
        /// Lines that are.
        copied: u64,
    },
}

impl fmt::Display for LookAsideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Twice { source } => write!(f, "page {source} is in flight already; finish that first"),
            Self::NotInFlight { source } => write!(f, "page {source} is not in flight; begin its promotion"),
            Self::NoSuchLine { line, lines } => write!(f, "line {line} of a page of {lines} lines"),
            Self::Unfinished { source, copied } => {
                write!(f, "page {source} has lines {copied:#x} in DRAM only; wait for the others")
            }
        }
    }
}

impl core::error::Error for LookAsideError {}

/// The buffer; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LookAside {
    entries: Vec<InFlight>,
    capacity: usize,
    lines: u8,
}

impl LookAside {
    /// Entries of the paper's buffer: each 24 bytes and a valid bit.
    pub const ENTRIES: usize = 64;

    /// An empty buffer of `capacity` entries, for pages of `lines` lines. Lines outside 1 to 64 are moved into the
    /// range.
    #[must_use]
    pub fn new(capacity: usize, lines: u8) -> Self {
        Self { entries: Vec::new(), capacity, lines: lines.clamp(1, 64) }
    }

    fn all(&self) -> u64 {
        u64::MAX >> (64 - u32::from(self.lines))
    }

    #[inline]
    fn at(&self, source: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.source == source)
    }

    fn bit(&self, line: u8) -> Result<u64, LookAsideError> {
        let lines = self.lines;
        if line < lines { Ok(1 << line) } else { Err(LookAsideError::NoSuchLine { line, lines }) }
    }

    /// Begins the promotion of a page to a page of DRAM.
    ///
    /// # Errors
    /// [`LookAsideError::Twice`].
    pub fn begin(&mut self, source: u64, target: u64) -> Result<Begin, LookAsideError> {
        if self.at(source).is_some() {
            return Err(LookAsideError::Twice { source });
        }
        if self.is_full() {
            return Ok(Begin::Deferred);
        }
        self.entries.push(InFlight { source, target, copied: 0 });
        Ok(Begin::Begun)
    }

    /// The processor loads a line; `None` if its page is not in flight.
    ///
    /// # Errors
    /// [`LookAsideError::NoSuchLine`].
    #[inline]
    pub fn load(&self, source: u64, line: u8) -> Result<Option<Route>, LookAsideError> {
        let bit = self.bit(line)?;
        Ok(self.at(source).map(|at| {
            let entry = &self.entries[at];
            if entry.copied & bit == 0 { Route::Drive } else { Route::Host(entry.target) }
        }))
    }

    /// The processor stores a whole line, as its cache does when a dirty line leaves; `None` if its page is not
    /// in flight. From now on the line is in DRAM.
    ///
    /// # Errors
    /// [`LookAsideError::NoSuchLine`].
    #[inline]
    pub fn store(&mut self, source: u64, line: u8) -> Result<Option<Route>, LookAsideError> {
        let bit = self.bit(line)?;
        Ok(self.at(source).map(|at| {
            let entry = &mut self.entries[at];
            entry.copied |= bit;
            Route::Host(entry.target)
        }))
    }

    /// A line of a page in flight comes from the drive.
    ///
    /// # Errors
    /// [`LookAsideError::NotInFlight`], [`LookAsideError::NoSuchLine`].
    pub fn inbound(&mut self, source: u64, line: u8) -> Result<Inbound, LookAsideError> {
        let bit = self.bit(line)?;
        let at = self.at(source).ok_or(LookAsideError::NotInFlight { source })?;
        let entry = &mut self.entries[at];
        if entry.copied & bit != 0 {
            return Ok(Inbound::Drop);
        }
        entry.copied |= bit;
        Ok(Inbound::Copy(entry.target))
    }

    /// The promotion is over: the page's table entries name DRAM from now on, and its entry here is free.
    ///
    /// # Errors
    /// [`LookAsideError::NotInFlight`]; [`LookAsideError::Unfinished`] where a line is still at the drive.
    pub fn finish(&mut self, source: u64) -> Result<InFlight, LookAsideError> {
        let at = self.at(source).ok_or(LookAsideError::NotInFlight { source })?;
        let entry = self.entries[at];
        if entry.copied != self.all() {
            return Err(LookAsideError::Unfinished { source, copied: entry.copied });
        }
        self.entries.remove(at);
        Ok(entry)
    }

    /// The page's entry, if it is in flight.
    #[must_use]
    pub fn get(&self, source: u64) -> Option<InFlight> {
        self.at(source).map(|at| self.entries[at])
    }

    /// True if a promotion would be deferred.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Pages in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if no page is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
