//! The promotion look-aside buffer (PLB): tells which copy of a line is valid while its page is promoted
//! from the SSD-Cache (device buffer) to the host's DRAM (FlatFlash, section 3.3).
//!
//! The PLB is part of the host bridge, between processor, DRAM and link. While a page is in flight each
//! of its lines has one of two states (a bit of the paper's Copied-CL vector) and changes once:
//!
//! ```text
//!               inbound: copied to DRAM      (a line arrives from the SSD)
//!   in the SSD -------------------------> in DRAM
//!               store: redirected to DRAM    (the processor evicts a dirty line)
//!
//!   in DRAM: an inbound line is dropped; loads and stores go to DRAM
//!   in the SSD: loads go to the SSD
//! ```
//!
//! The driver must guarantee the following, or stores are lost:
//!
//! 1. The link preserves the order of its messages in each direction.
//! 2. The host starts a promotion: it calls [`Plb::begin`] and then notifies the SSD, which sends no
//!    line before the notification. So every store that was on its way to the SSD is contained in the
//!    lines sent.
//! 3. The SSD keeps the page until the host reports the end of the promotion, which the host does after
//!    [`Plb::finish`]. So every load that was on its way to the SSD finds the page there.
//! 4. If processor and SSD access a line at the same time, the processor's access comes first.
//!
//! A promotion is deferred if the buffer is full ([`PromotionStart::Deferred`]): nothing changes, and a
//! later use promotes the page. The paper leaves this case open.

use alloc::vec::Vec;
use core::fmt;

/// An entry of the PLB: a page in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlbEntry {
    /// The page's number in the SSD's address range: the paper's SSD tag.
    pub ssd_page: u64,
    /// The page's number in DRAM: the paper's Mem tag.
    pub dram_page: u64,
    /// The lines that are in DRAM, bit i for line i: the paper's Copied-CL vector.
    pub copied_lines: u64,
}

/// The destination of a processor's access to a page in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineRoute {
    /// The SSD, as if the page were not in flight.
    Ssd,
    /// This page of DRAM.
    Dram(u64),
}

/// The handling of a line that arrives from the SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboundLine {
    /// Write the line to this page of DRAM.
    Copy(u64),
    /// Drop the line: DRAM has a newer one.
    Drop,
}

/// The outcome of [`Plb::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionStart {
    /// The page is in flight.
    Started,
    /// All entries are in use; nothing has changed.
    Deferred,
}

/// A call that violates the driver's contract. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlbError {
    /// A promotion was started for a page that is already in flight.
    AlreadyInFlight {
        /// The page's number in the SSD.
        ssd_page: u64,
    },
    /// The page is not in flight.
    NotInFlight {
        /// The page's number in the SSD.
        ssd_page: u64,
    },
    /// The page has no line of this number.
    NoSuchLine {
        /// The line.
        line: u8,
        /// Number of lines of a page.
        lines: u8,
    },
    /// A promotion was finished before all lines were in DRAM.
    Unfinished {
        /// The page's number in the SSD.
        ssd_page: u64,
        /// The lines that are in DRAM, bit i for line i.
        copied_lines: u64,
    },
}

impl fmt::Display for PlbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AlreadyInFlight { ssd_page } => {
                write!(f, "SSD page {ssd_page} is already in flight; finish its promotion first")
            }
            Self::NotInFlight { ssd_page } => {
                write!(f, "SSD page {ssd_page} is not in flight; begin its promotion first")
            }
            Self::NoSuchLine { line, lines } => {
                write!(f, "line {line} does not exist: a page has lines 0 to below {lines}")
            }
            Self::Unfinished { ssd_page, copied_lines } => {
                write!(
                    f,
                    "only lines {copied_lines:#x} of SSD page {ssd_page} are in DRAM; wait for the others"
                )
            }
        }
    }
}

impl core::error::Error for PlbError {}

/// The promotion look-aside buffer; see the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plb {
    entries: Vec<PlbEntry>,
    capacity: usize,
    lines: u8,
}

impl Plb {
    /// Number of entries of the paper's PLB; each has 24 bytes and a valid bit.
    pub const ENTRIES: usize = 64;

    /// An empty buffer of `capacity` entries, for pages of `lines` lines; `lines` is clamped to 1 to 64.
    #[must_use]
    pub fn new(capacity: usize, lines: u8) -> Self {
        Self { entries: Vec::new(), capacity, lines: lines.clamp(1, 64) }
    }

    fn all_lines(&self) -> u64 {
        u64::MAX >> (64 - u32::from(self.lines))
    }

    #[inline]
    fn at(&self, ssd_page: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.ssd_page == ssd_page)
    }

    fn bit(&self, line: u8) -> Result<u64, PlbError> {
        let lines = self.lines;
        if line < lines { Ok(1 << line) } else { Err(PlbError::NoSuchLine { line, lines }) }
    }

    /// Begins the promotion of an SSD page to a page of DRAM.
    ///
    /// # Errors
    /// [`PlbError::AlreadyInFlight`].
    pub fn begin(&mut self, ssd_page: u64, dram_page: u64) -> Result<PromotionStart, PlbError> {
        if self.at(ssd_page).is_some() {
            return Err(PlbError::AlreadyInFlight { ssd_page });
        }
        if self.is_full() {
            return Ok(PromotionStart::Deferred);
        }
        self.entries.push(PlbEntry { ssd_page, dram_page, copied_lines: 0 });
        Ok(PromotionStart::Started)
    }

    /// The route of a processor's load of a line; `None` if the line's page is not in flight.
    ///
    /// # Errors
    /// [`PlbError::NoSuchLine`].
    #[inline]
    pub fn load(&self, ssd_page: u64, line: u8) -> Result<Option<LineRoute>, PlbError> {
        let bit = self.bit(line)?;
        Ok(self.at(ssd_page).map(|at| {
            let entry = &self.entries[at];
            if entry.copied_lines & bit == 0 { LineRoute::Ssd } else { LineRoute::Dram(entry.dram_page) }
        }))
    }

    /// The route of a processor's store of a whole line (its cache evicts a dirty line); `None` if the
    /// line's page is not in flight. The line is in DRAM from now on.
    ///
    /// # Errors
    /// [`PlbError::NoSuchLine`].
    #[inline]
    pub fn store(&mut self, ssd_page: u64, line: u8) -> Result<Option<LineRoute>, PlbError> {
        let bit = self.bit(line)?;
        Ok(self.at(ssd_page).map(|at| {
            let entry = &mut self.entries[at];
            entry.copied_lines |= bit;
            LineRoute::Dram(entry.dram_page)
        }))
    }

    /// Handles a line of a page in flight that arrives from the SSD.
    ///
    /// # Errors
    /// [`PlbError::NotInFlight`], [`PlbError::NoSuchLine`].
    pub fn inbound(&mut self, ssd_page: u64, line: u8) -> Result<InboundLine, PlbError> {
        let bit = self.bit(line)?;
        let at = self.at(ssd_page).ok_or(PlbError::NotInFlight { ssd_page })?;
        let entry = &mut self.entries[at];
        if entry.copied_lines & bit != 0 {
            return Ok(InboundLine::Drop);
        }
        entry.copied_lines |= bit;
        Ok(InboundLine::Copy(entry.dram_page))
    }

    /// Ends a promotion and frees its entry. The caller then points the page-table entry and the TLBs to
    /// DRAM.
    ///
    /// # Errors
    /// [`PlbError::NotInFlight`]; [`PlbError::Unfinished`] if a line is still in the SSD.
    pub fn finish(&mut self, ssd_page: u64) -> Result<PlbEntry, PlbError> {
        let at = self.at(ssd_page).ok_or(PlbError::NotInFlight { ssd_page })?;
        let entry = self.entries[at];
        if entry.copied_lines != self.all_lines() {
            return Err(PlbError::Unfinished { ssd_page, copied_lines: entry.copied_lines });
        }
        self.entries.remove(at);
        Ok(entry)
    }

    /// The page's entry, if it is in flight.
    #[must_use]
    pub fn get(&self, ssd_page: u64) -> Option<PlbEntry> {
        self.at(ssd_page).map(|at| self.entries[at])
    }

    /// True if a promotion would be deferred.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Number of pages in flight.
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
