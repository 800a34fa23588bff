//! The preload library of `deepram run`: it pages large private memory, and all memory of `malloc`, to a swap file with
//! a pager inside the process. The program is not changed, and its children are treated the same.
//!
//! | module | what it interposes |
//! |---|---|
//! | [`mod@malloc`] | `malloc` and its family |
//! | [`memory`] | `mmap`, `munmap`, `mremap`, `mprotect` |
//! | [`advise`] | `madvise`, `mlock` |
//! | [`threads`] | `pthread_create`: the C library's data of a thread stays in DRAM |
//! | [`credentials`] | `setuid` and its family: the pager's threads change with the program's |
//! | [`affinity`] | `sched_setaffinity` and its family, and calls whose child inherits affinity (`posix_spawn`, `vfork`, `execve`) |
//! | [`descriptors`] | `close`, `close_range`, `dup2`: the pager's descriptors stay |
//! | [`direct_io`] | `open` and its family, `fcntl`, io_uring's registration of buffers: devices may store to memory |
//! | [`mod@fork`] | forks, so that the child gets a pager of its own |
//! | [`media`] | `msync`, `fsync`, and the speed of all threads: memory behaves like slower, persistent memory instead of being paged |
//! | [`mod@syscall`] | `syscall`: all of these calls by number |
//!
//! Invariant: the pager's threads, and any thread that is executing in the library, touch no managed memory. So the
//! library has a heap of its own (`heap`), also for allocations that the C library makes on its behalf, stacks of its
//! own (`stacks`), and blocks signals meanwhile (`library_context`).

mod address_range;
pub mod advise;
pub mod affinity;
mod arenas;
mod code_readahead;
pub mod credentials;
pub mod descriptors;
pub mod direct_io;
pub mod fork;
mod heap;
mod kernel;
mod large_blocks;
mod lazy_start;
mod libc_symbols;
mod library_context;
pub mod malloc;
mod mappings;
pub mod media;
pub mod memory;
mod pager_threads;
mod program_allocator;
mod setup;
mod stacks;
pub mod syscall;
mod syscall_dispatch;
mod thread_cache;
mod thread_state;
pub mod threads;

// The unwinder of panics is linked statically: loading `libgcc_s.so` would take a tenth of a millisecond in each
// process. The name is that of the linker's own archive.
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle,+whole-archive")]
unsafe extern "C" {}

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// Called by the loader before the program's `main`.
extern "C" fn on_load() {
    arenas::reserve();
    libc_symbols::find_all();
    setup::begin();
    fork::register_handlers();
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

/// Called when the program exits normally: publishes its last counters.
extern "C" fn on_exit() {
    if let Some(pager) = setup::pager() {
        library_context::enter_library(|| pager.publish_stats());
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static ON_EXIT: extern "C" fn() = on_exit;
