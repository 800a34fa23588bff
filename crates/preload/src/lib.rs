//! What `deepram run` loads into a program: large private memory, and all of `malloc`'s, is paged to a store
//! by a pager inside the process. The program is not changed, and its children are treated the same.
//!
//! | module | what it stands before |
//! |---|---|
//! | [`mod@malloc`] | `malloc` and its family |
//! | [`memory`] | `mmap`, `munmap`, `mremap`, `mprotect` |
//! | [`advise`] | `madvise`, `mlock` |
//! | [`threads`] | `pthread_create`: what the C library keeps of a thread stays in DRAM |
//! | [`users`] | `setuid` and its family: the pager's threads change with the program's |
//! | [`places`] | where a thread may run (`sched_setaffinity` and its family), and what inherits that: `posix_spawn`, `vfork`, `execve`, `system` and theirs |
//! | [`descriptors`] | `close`, `close_range`, `dup2`: the pager's descriptors stay |
//! | [`direct`] | `open` and its family: devices may store to memory by themselves |
//! | [`mod@fork`] | forks, so that the child gets a pager of its own |
//! | [`mod@syscall`] | all of these where a program makes the call by its number |
//!
//! The rule that everything here keeps: the pager's threads, and whoever is inside the library, use no
//! managed memory. So the library has a heap of its own (`heap`), also for what the C library allocates
//! on its behalf, stacks of its own (`stacks`), and keeps signals waiting meanwhile (`inside`).

pub mod advise;
pub mod descriptors;
pub mod direct;
mod dispatch;
mod early;
pub mod fork;
mod heap;
mod helpers;
mod inside;
mod kernel;
mod large;
pub mod malloc;
mod marks;
pub mod memory;
mod next;
pub mod places;
mod setup;
mod stacks;
pub mod syscall;
mod thread_state;
pub mod threads;
pub mod users;

// The unwinder of panics comes with the library: the loader would need a tenth of a millisecond of each process for
// `libgcc_s.so`. The name of the linker's own archive.
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle,+whole-archive")]
unsafe extern "C" {}

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// Called by the loader before the program's `main`.
extern "C" fn begin() {
    malloc::prepare();
    setup::begin();
    if early::is_wanted() {
        fork::watch();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Called when the program ends in the ordinary way: its last counters.
extern "C" fn end() {
    if let Some(pager) = setup::pager() {
        inside::enter(|| pager.show());
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
