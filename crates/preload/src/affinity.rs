//! Processor affinity of the program's threads. The pager pins a thread to one processor while the thread faults alone.
//! Calls that read or set a thread's affinity, or that start a thread or process which inherits it, see and pass on the
//! affinity that the program has set.

use libc::{
    FILE, c_char, c_int, c_void, cpu_set_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_t,
    size_t,
};

use crate::libc_symbols::interpose;
use crate::library_context::LibraryGuard;
use crate::stacks::on_unpaged_stack;
use crate::{libc_symbols::symbol, setup};

/// Calls `f` while the pager pins no thread. A child that uses its parent's memory (`vfork`), or has no pager of its
/// own, does not suspend pinning: it must not end with one of its parent's locks held.
pub(crate) fn without_pinning<T>(f: impl FnOnce() -> T) -> T {
    match setup::pager().filter(|_| setup::is_pager_process()) {
        Some(pager) => pager.without_pinning(f),
        None => f(),
    }
}

interpose! {
    without_pinning;
    sched_getaffinity(pid: pid_t, len: size_t, set: *mut cpu_set_t) -> c_int, else -1;
    sched_setaffinity(pid: pid_t, len: size_t, set: *const cpu_set_t) -> c_int, else -1;
    pthread_getaffinity_np(thread: pthread_t, len: size_t, set: *mut cpu_set_t) -> c_int, else libc::ENOSYS;
    pthread_setaffinity_np(thread: pthread_t, len: size_t, set: *const cpu_set_t) -> c_int,
        else libc::ENOSYS;
    posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *mut c_char, envp: *const *mut c_char
    ) -> c_int, else libc::ENOSYS;
    posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t, argv: *const *mut c_char, envp: *const *mut c_char
    ) -> c_int, else libc::ENOSYS;
    system(command: *const c_char) -> c_int, else -1;
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE, else std::ptr::null_mut();
    pthread_getattr_np(thread: pthread_t, attributes: *mut c_void) -> c_int, else libc::ENOSYS;
    fexecve(file: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int, else -1;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int, else -1;
    execv(path: *const c_char, argv: *const *const c_char) -> c_int, else -1;
    execvp(file: *const c_char, argv: *const *const c_char) -> c_int, else -1;
    execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int, else -1;
}

/// As [`without_pinning`], for calls that start threads: the library uses what the C library allocates for them, so
/// that memory must not be paged. Signals are not blocked: a new thread inherits the signal mask of its creator.
pub(crate) fn create_thread_without_pinning<T>(f: impl FnOnce() -> T + 'static) -> T {
    on_unpaged_stack(|| {
        let _library = LibraryGuard::new();
        without_pinning(f)
    })
}

interpose! {
    create_thread_without_pinning;
    thrd_create(thread: *mut c_void, start: *mut c_void, argument: *mut c_void) -> c_int, else 2;
    timer_create(clock: c_int, event: *mut c_void, timer: *mut c_void) -> c_int, else -1;
    mq_notify(queue: c_int, event: *const c_void) -> c_int, else -1;
    aio_read(of: *mut c_void) -> c_int, else -1;
    aio_read64(of: *mut c_void) -> c_int, else -1;
    aio_write(of: *mut c_void) -> c_int, else -1;
    aio_write64(of: *mut c_void) -> c_int, else -1;
    aio_fsync(how: c_int, of: *mut c_void) -> c_int, else -1;
    aio_fsync64(how: c_int, of: *mut c_void) -> c_int, else -1;
    getaddrinfo_a(mode: c_int, list: *mut c_void, count: c_int, event: *mut c_void) -> c_int, else libc::EAI_SYSTEM;
}

/// Suspends pinning for a moment and returns the C library's `vfork`, to which the caller jumps.
extern "C" fn find_vfork() -> *mut c_void {
    symbol!(NEXT = c"vfork");
    let next = NEXT.find().unwrap_or(libc::fork as *mut c_void);
    without_pinning(|| ());
    next
}

/// Interposes the C library's `vfork`. It returns twice, and so directly to the caller.
///
/// # Safety
/// As for the C library's function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    std::arch::naked_asm!("sub rsp, 8", "call {find_vfork}", "add rsp, 8", "jmp rax", find_vfork = sym find_vfork)
}
