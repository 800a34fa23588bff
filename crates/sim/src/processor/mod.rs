//! The processor front end: threads that refer to memory, the cores that run them, and the last-level
//! cache between the threads and a device.
//!
//! ```text
//!   threads --run queue--> cores --lines--> last-level cache --misses, dirty lines--> device
//!      ^                     |                                                          |
//!      +---- asleep <--------+--------- sleep, resume, complete ------------------------+
//! ```
//!
//! 1. A core issues `width` instructions per cycle. Loads issue without waiting, up to `window`
//!    instructions past the oldest load whose data are missing, and up to `mshrs` misses per core. With
//!    `blocking`, nothing issues past a load whose data are missing.
//! 2. A store retires at once. If its line is not in the cache, the line is fetched, which takes an MSHR
//!    like any miss. Misses of a thread to a line already requested are merged.
//! 3. A line enters the cache when its data arrive. An evicted dirty line goes to the device, at most
//!    `write_buffer` at once; one that finds no room keeps the MSHR of the line that took its place.
//! 4. An access that the device puts to sleep frees its thread's core and its MSHR at once, and the next
//!    thread of the run queue takes the core. When all accesses that a thread sleeps for are resumed, it
//!    joins the queue; on a core it runs their software first.
//! 5. A thread whose quantum has expired yields its core to another runnable thread at its next
//!    reference.
//! 6. Device calls and uses of the shared cache happen in the order of time.
//! 7. A thread at a barrier waits off its core until its accesses are complete and every other thread is
//!    at a barrier, too, or has ended. Measuring begins at that moment. A barrier costs no time of its
//!    own.
//! 8. A sync makes the thread's data durable, as fsync does: it waits for the thread's accesses, writes
//!    the dirty lines of the cache to the device and, when they are there, flushes the device.
//!
//! Page faults are precise. Where the device's driver reports that an access faults
//! ([`execute_with_faults`]), the access is sent once all older loads of its thread have their data, and
//! nothing issues until it is complete. A thread therefore has one fault at a time, as under an
//! operating system.
//!
//! There are no caches above the last-level one, no branches and no kernel instructions: software of the
//! operating system is time, not instructions, as the NVMM paper counts (user instructions divided by
//! all cycles; section Experimental Setup).

mod input;
mod llc;
mod machine;
mod memory;
mod options;
mod result;
mod thread;

pub use input::{FirstTouch, equal_share, memory_references, warm_up_first, workload_threads};
pub use llc::{LINE_BYTES, Llc};
pub use options::ProcessorOptions;
pub use result::{LineCounts, ProcessorResult, ThreadResult};

use deepram_trace::MemRef;

use crate::error::SimError;
use crate::host::{Command, Device};
use machine::Machine;

/// A step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadStep {
    /// A memory reference.
    Access(MemRef),
    /// Makes all data written before it durable, as fsync does.
    Sync,
    /// The end of the thread's warm-up: waits until all threads are here, and begins measuring.
    Barrier,
}

impl From<MemRef> for ThreadStep {
    fn from(reference: MemRef) -> Self {
        Self::Access(reference)
    }
}

/// The steps of a thread, in program order.
pub type ThreadReferences<'t> = Box<dyn Iterator<Item = Result<ThreadStep, SimError>> + 't>;

/// Runs threads on a processor whose memory is `device`.
///
/// # Errors
/// Invalid options, no thread, errors of the threads' references, a reference outside the device, a full
/// device, a violated conservation law.
pub fn execute<D: Device>(
    device: &mut D,
    threads: Vec<ThreadReferences<'_>>,
    options: &ProcessorOptions,
) -> Result<ProcessorResult, SimError> {
    execute_with_faults(device, threads, options, |_, _| false)
}

/// As [`execute`], where `faults` returns true for an access that would be a page fault if sent now: one
/// whose thread the device would put to sleep.
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
