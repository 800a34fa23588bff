//! Which page moves when: the decisions of the pagers, without clock, thread or I/O.
//!
//! Three drivers use them: the pool's DRAM cache, the pager of `deepram run`, and the simulated pool. A driver reports
//! events and carries out what the methods return; it keeps threads, locks, atomics and I/O. Times are arguments.
//!
//! | module | decision | ADR |
//! |---|---|---|
//! | [`dirty_set`] | in which order dirty segments are written | 20 |
//! | [`drop_behind`] | which chunks leave memory behind a repeated scan | 46 |
//! | [`fault_around`] | which neighbours are read with a missed page | 25 |
//! | [`fork_policy`] | which page leaves memory next after a fork | 61 |
//! | [`huge_pages`] | which chunks become huge pages, when they are staged and split | 21 |
//! | [`memory_split`] | how paged memory and page cache divide the memory of a run | 49 |
//! | [`page_state`] | what a fault, a read, an eviction or a discard makes of a page | 15 |
//! | [`policy`] | which page leaves memory next | 20 |
//! | [`read_plan`] | how many reads are in flight, and how long they are | 16, 19 |
//! | [`readahead`] | which pages are read ahead of a stream of misses | 19, 20, 50 |
//! | [`runs`] | which pages one system call protects | 20 |
//! | [`segment_state`] | what a fault, a write-back or a sync makes of a segment of the pool | 8, 19 |
//! | [`stages`] | which stage a chunk passes through, and which returns its memory | 21 |
//! | [`swap_slots`] | which slots of the swap file the pages of a batch get | 15 |
//! | [`victim_buffer`] | where a page goes that leaves memory, and which pages leave DRAM | 15, 20 |
//! | [`watermarks`] | how many frames are kept free, how many pages leave together, when dirty ones are written | 16, 19, 20 |
//!
//! Addresses and sizes are bytes; a page is [`PAGE`] bytes unless the item says otherwise.

pub mod dirty_set;
pub mod drop_behind;
pub mod fault_around;
pub mod fork_policy;
pub mod huge_pages;
pub mod memory_split;
pub mod page_state;
pub mod policy;
pub mod read_plan;
pub mod readahead;
pub mod runs;
pub mod segment_state;
pub mod stages;
pub mod swap_slots;
pub mod triggers;
pub mod victim_buffer;
pub mod watermarks;

pub use dirty_set::DirtySet;
pub use drop_behind::DropBehind;
pub use fault_around::{Block, FaultAround};
pub use fork_policy::ForkPolicy;
pub use memory_split::MemorySplit;
pub use page_state::{FaultAction, PageState, Resident};
pub use policy::PagerPolicy;
pub use read_plan::{BATCH, ReadPlan};
pub use readahead::{Streams, Window};
pub use segment_state::SegmentState;
pub use swap_slots::SwapSlots;
pub use triggers::{Trigger, Triggers};
pub use victim_buffer::{Heat, VictimBuffer};
pub use watermarks::{PoolWatermarks, SwapWatermarks};

/// Bytes of a page.
pub const PAGE: usize = 4096;
