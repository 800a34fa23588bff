//! The processor front: threads that refer to memory, the cores that run them, and the last-level cache
//! between them and a device.
//!
//! ```text
//!   threads --run queue--> cores --lines--> last-level cache --misses, dirty lines--> device
//!      ^                     |                                                          |
//!      +---- asleep <--------+--------- sleep, resume, complete ------------------------+
//! ```
//!
//! 1. A core issues `width` instructions a cycle. Loads issue without waiting, up to `window` instructions
//!    past the oldest whose data are missing, and `mshrs` misses of the core. With `blocking`, nothing
//!    issues past a load whose data are missing.
//! 2. A store retires at once. If its line is not in the cache it is fetched, which takes an MSHR like
//!    any miss. Misses of a thread to a line already asked for are one.
//! 3. A line enters the cache when its data arrive; a dirty line that leaves goes to the device, at most
//!    `write_buffer` at once. One that finds no room keeps the MSHR of the line that took its place.
//! 4. An access that the device puts to sleep frees its thread's core and its MSHR at once; the
//!    next thread of the run queue takes the core. When all accesses that a thread sleeps for are resumed
//!    it joins the queue; on a core it runs their software first.
//! 5. A thread whose quantum is over gives its core to another that wants it, at its next reference.
//! 6. Device calls happen in the order of time, and so do uses of the shared cache.
//!
//! Page faults are precise: where the device's driver says that an access faults
//! ([`execute_with_faults`]), it is sent once all older loads of its thread have their data, and nothing
//! issues until it is over. So a thread has one fault at a time, as under an operating system.
//!
//! There are no caches above the last-level one, no branches and no kernel instructions: software of the
//! operating system is time, not instructions, as the NVMM study counts (user instructions by all cycles).

mod input;
mod llc;
mod machine;
mod memory;
mod options;
mod result;
mod thread;

pub use input::{FirstTouch, memory_references, workload_threads};
pub use llc::{LINE_BYTES, Llc};
pub use options::ProcessorOptions;
pub use result::{LineCounts, ProcessorResult, ThreadResult};

use deepram_trace::MemRef;

use crate::error::SimError;
use crate::host::{Command, Device};
use machine::Machine;

/// What a thread refers to, in its order.
pub type ThreadReferences<'t> = Box<dyn Iterator<Item = Result<MemRef, SimError>> + 't>;

/// Runs the threads on the processor, with the device as its memory.
///
/// # Errors
/// Wrong options, no thread, errors of the threads' references, a reference outside the device, a full
/// device, a violated law.
pub fn execute<D: Device>(
    device: &mut D,
    threads: Vec<ThreadReferences<'_>>,
    options: &ProcessorOptions,
) -> Result<ProcessorResult, SimError> {
    execute_with_faults(device, threads, options, |_, _| false)
}

/// As [`execute`], where `faults` says whether an access, sent now, would be a page fault: one that the
/// device would put to sleep.
///
/// # Errors
/// As [`execute`].
pub fn execute_with_faults<D: Device, F: Fn(&D, &Command) -> bool>(
    device: &mut D,
    threads: Vec<ThreadReferences<'_>>,
    options: &ProcessorOptions,
    faults: F,
) -> Result<ProcessorResult, SimError> {
    Machine::new(device, threads, options, faults)?.execute()
}
