//! The mechanisms of deepram, as pure state machines: no clock, no I/O, no threads, no randomness
//! of their own. The pool runs them on a real device, the simulator in virtual time.
//!
//! A type here is driven by calls that take an input and return what is to be done. Where the
//! tables of a [`Volume`] are not in memory, an operation returns [`VolumeError::NotLoaded`]
//! before it has changed anything; the driver loads that chunk and calls again.
//!
//! | module | what it holds | paper |
//! |---|---|---|
//! | [`units`] | quantities with their units in the type | |
//! | [`addr`] | the 64-bit address | NVMM, Software Interface |
//! | [`bit_vector`] | the sub-page bit vector | NVMM, Use of the Bit Vector |
//! | [`page_table`] | 16-byte entries, version chains, chunks | NVMM, Page Table Organization |
//! | [`placement`] | where the segments of a batch go in a block | NVMM, Use of the Bit Vector |
//! | [`journal`] | epochs, tokens, retention | NVMM, Software Interface |
//! | [`ftl`] | blocks, victim policies, wear; a plain drive's page map and mapping cache | NVMM, Architecture |
//! | [`volume`] | all of these as one journaled flash volume | NVMM |
//! | [`cache`] | replacement policies: LRU, FIFO, CLOCK, 2-bit CLOCK, SIEVE, S3-FIFO, ARC; set-associative LRU and RRIP | |
//! | [`migration`] | promotion of pages in use: look-aside buffer, adaptive threshold | FlatFlash, 3.3 and 3.4 |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addr;
pub mod bit_vector;
pub mod cache;
pub mod ftl;
pub mod journal;
pub mod migration;
pub mod page_table;
pub mod placement;
pub mod units;
pub mod volume;

pub use addr::{Addr, AddrError};
pub use journal::{Retention, TokenInfo};
pub use page_table::{ChunkId, Entry, Status};
pub use units::{BlockId, Bytes, Epoch, PageId, ParseUnitError, Picos, SegmentSize, Slot, Stamp};
pub use volume::{ConfigError, Version, Volume, VolumeConfig, VolumeError, VolumeSnapshot};
