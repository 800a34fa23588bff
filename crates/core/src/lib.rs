//! The mechanisms of deepram as pure state machines: no clock, no I/O, no threads, no random numbers.
//! The pool drives them over a real device, the simulator in virtual time.
//!
//! Contract: the caller passes an input to a method and carries out the actions that the method returns.
//! If a [`Volume`] needs a part of its page table that is not in memory, the operation returns
//! [`VolumeError::NotLoaded`] before it changes anything; the caller loads that chunk and repeats the
//! call.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`units`] | sizes, times and identifiers as types; parsing of quantities | |
//! | [`suggest`] | the nearest valid name, for error messages | |
//! | [`addr`] | the 64-bit address | NVMM, Software Interface |
//! | [`bit_vector`] | the sub-page bit vector | NVMM, Use of the Bit Vector |
//! | [`page_table`] | 16-byte entries, version chains, chunks | NVMM, Page Table Organization |
//! | [`placement`] | the slots for a batch of segments | NVMM, Use of the Bit Vector |
//! | [`redundancy`] | stripes with parity | |
//! | [`journal`] | epochs, tokens, retention | NVMM, Software Interface |
//! | [`ftl`] | blocks, victim policies, wear levelling; a plain drive's L2P map and mapping cache | NVMM, Architecture |
//! | [`volume`] | all of the above as one journaled flash volume | NVMM, Page Table Organization |
//! | [`cache`] | replacement policies: LRU, FIFO, CLOCK, GCLOCK, SIEVE, S3-FIFO, ARC; set-associative LRU and RRIP | NVMM, Architecture; FlatFlash, 3.4 |
//! | [`migration`] | promotion look-aside buffer (PLB), adaptive threshold; hotness and coolness thresholds, Bloom filters, wear balance | FlatFlash, 3.3 and 3.4; hybrid SSD cache, V-C |
//! | [`hybrid_buffer`] | an SSD's write buffer of DRAM and PCM | hybrid SSD cache, V |
//! | [`paging`] | which page moves when: decisions of the pagers | |
//! | [`persist`] | flushing of byte-addressable persistent memory: lines and dirty pages of a range | NVMM application study, II-C, III-C |
//! | [`reliability`] | strength of the code and density of the cells of each flash page; triggers, tables, wear-aware replacement | flash disk cache, 3 |
//! | [`emulation`] | stalls that make DRAM behave like slower memory | NVMM application study, II |
//! | [`disk_cache`] | a disk cache of DRAM and flash, in regions for reads and writes | flash disk cache, 3 |
//! | [`write_allowance`] | the bytes that may be written in a day, and when writes must wait | |
//! | [`write_buffer`] | policies of a drive's write buffer: LRU, CFLRU, LRU-WSR, CCF-LRU, FAB, BPLRU | hybrid SSD cache, VII |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addr;
pub mod bit_vector;
pub mod cache;
pub mod disk_cache;
pub mod emulation;
pub mod ftl;
pub mod hybrid_buffer;
pub mod journal;
pub mod migration;
pub mod page_table;
pub mod paging;
pub mod persist;
pub mod placement;
pub mod redundancy;
pub mod reliability;
pub mod suggest;
pub mod units;
pub mod volume;
pub mod write_allowance;
pub mod write_buffer;

pub use addr::{Addr, AddrError};
pub use journal::{Retention, TokenInfo};
pub use page_table::{ChunkId, Entry, Status};
pub use redundancy::Redundancy;
pub use units::{BlockId, Bytes, Epoch, PageId, ParseUnitError, Picos, SegmentSize, Slot, Stamp};
pub use volume::{ConfigError, Version, Volume, VolumeConfig, VolumeError, VolumeSnapshot};
