//! What deepram asks of the processor and of the kernel, and most of its unsafe code.
//!
//! - Page faults and I/O: [`uffd`] serves the faults of memory, [`userfault`] has the calls that all users of a userfaultfd share,
//!   [`uring`] opens io_uring instances, [`work_queue`] hands work to handler threads, [`buffer`] has aligned memory,
//!   [`stage_memory`] the frames through which huge pages move.
//! - A library inside a program: [`descriptors`] keeps file descriptors from it, [`signals`] its signals from our threads, and
//!   [`message`] writes to standard error without its C library.
//! - The heap: [`heap`] returns its free memory to the kernel.
//! - Between processes: [`sealed_memory`] publishes numbers in memory files, [`clock`] has the time that processes share.
//! - Persistence: [`flush`] writes cache lines back to persistent memory, [`dirty`] finds the pages that were stored to.
//! - Emulation: [`slow_memory`] measures this machine's memory and a program's use of it, [`step`] executes a program's instructions one
//!   by one for that; both are for x86-64 only.

pub mod buffer;
pub mod clock;
pub mod descriptors;
pub mod dirty;
pub mod flush;
pub mod heap;
pub mod lock;
pub mod message;
pub mod ring;
pub mod sealed_memory;
pub mod signals;
#[cfg(target_arch = "x86_64")]
pub mod slow_memory;
pub mod stage_memory;
#[cfg(target_arch = "x86_64")]
pub mod step;
pub mod uffd;
pub mod uring;
pub mod userfault;
pub mod work_queue;
