//! What the caller of the disk cache carries out, in order, and what it supplies.

use crate::reliability::{Density, FlashPage, Region};

/// A page of flash as the controller is told to access it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhysicalPage {
    /// The page.
    pub page: FlashPage,
    /// The page's block.
    pub block: u32,
    /// The density of its cells.
    pub density: Density,
    /// Bits that its code corrects.
    pub strength: u8,
}

/// The errors of one read, as the controller reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadErrors {
    /// All wrong bits. The data are correct if the code corrects as many.
    pub errors: u32,
    /// The wrong bits that a second read finds wrong again.
    pub consistent: u32,
}

/// The flash that the cache reads.
pub trait FlashReads {
    /// The errors of a read of `page`, whose block has had `cycles` program/erase cycles.
    fn read(&mut self, page: PhysicalPage, cycles: u32) -> ReadErrors;
}

/// Flash without errors.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoErrors;

impl FlashReads for NoErrors {
    fn read(&mut self, _: PhysicalPage, _: u32) -> ReadErrors {
        ReadErrors::default()
    }
}

/// The purpose of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A page that was read from the disk.
    Fill,
    /// A page that was written in DRAM.
    WriteBack,
    /// Reclamation: garbage collection.
    Reclaim,
    /// A hot page moves to single-level cells.
    Hot,
    /// A page leaves cells with new faults, or a block that is retired.
    Fault,
    /// Two blocks of different wear change places.
    Wear,
}

/// An event without an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// Reclamation of a block begins: this many pages move, this many are dead.
    Reclaim {
        /// The block's region.
        region: Region,
        /// Pages that move.
        live: u16,
        /// Pages that are gained.
        dead: u16,
    },
    /// A block was evicted, with this many pages.
    Evict {
        /// The block's region.
        region: Region,
        /// Pages that left the cache.
        pages: u16,
    },
    /// A page left the cache because nothing could take it up.
    Drop,
    /// A page got a stronger code.
    Strengthen,
    /// Cells became single-level because of faults.
    FaultToSlc,
    /// Cells became single-level for a hot page.
    HotToSlc,
    /// Two blocks changed places.
    WearSwap,
    /// Cells left service.
    RetirePage,
    /// A block left service.
    RetireBlock,
    /// The code could not correct a read.
    Uncorrectable,
    /// The data of a dirty page were lost.
    Lost,
    /// Too few blocks are left: the flash is out of service.
    Dead,
}

/// A step that the caller carries out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read a page of flash: a second read, or one that the code could not correct.
    Read(PhysicalPage),
    /// Program a page from DRAM.
    Program {
        /// The page.
        to: PhysicalPage,
        /// The disk page that it holds from now on.
        disk: u32,
        /// The purpose.
        cause: Cause,
    },
    /// Read a page and program its data elsewhere.
    Move {
        /// The page to read.
        from: PhysicalPage,
        /// The page to program.
        to: PhysicalPage,
        /// The purpose.
        cause: Cause,
    },
    /// Read a page and write its data to the disk.
    Flush {
        /// The page to read.
        from: PhysicalPage,
        /// The disk page.
        disk: u32,
    },
    /// Write a page from DRAM to the disk.
    DiskWrite(u32),
    /// Erase a block.
    Erase(u32),
    /// Nothing: an event to count.
    Note(Note),
}

/// The outcome of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The page is in DRAM.
    Dram,
    /// The page is read from flash.
    Flash(PhysicalPage),
    /// The page is read from the disk, after a read of flash that could not be corrected if there is one.
    Disk {
        /// The page of flash that could not be corrected.
        failed: Option<PhysicalPage>,
    },
}
