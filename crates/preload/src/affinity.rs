//! Where the program's threads may run. The pager keeps a thread that faults alone on one processor for as long as it
//! does; who asks where a thread may run, says so, or starts something that inherits it is told, and hands on, what the
//! program has said.

use std::sync::atomic::AtomicPtr;

use libc::{
    FILE, c_char, c_int, c_void, cpu_set_t, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, pthread_t,
    size_t,
};

use crate::inside::Inside;
use crate::next::stand_before;
use crate::stacks::aside;
use crate::{next, setup};

/// Calls `f` while no thread is kept anywhere. A child that uses its parent's memory (`vfork`), or has no pager of its own, is
/// not: nor must it leave with anything of its parent's held.
pub(crate) fn unkept<T>(f: impl FnOnce() -> T) -> T {
    match setup::pager().filter(|_| setup::is_here()) {
        Some(pager) => pager.unkept(f),
        None => f(),
    }
}

stand_before! {
    unkept;
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

/// As [`unkept`], for what starts threads: what the C library keeps of them is used inside, and so must not be paged. A new
/// thread has its maker's signals: they are not kept waiting.
pub(crate) fn unkept_inside<T>(f: impl FnOnce() -> T + 'static) -> T {
    aside(|| {
        let _inside = Inside::new();
        unkept(f)
    })
}

stand_before! {
    unkept_inside;
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

/// Where `vfork` goes on: the C library's.
extern "C" fn settle_for_vfork() -> *mut c_void {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let next = next::find(&NEXT, c"vfork").unwrap_or(libc::fork as *mut c_void);
    unkept(|| ());
    next
}

/// The C library's. It returns twice, and so to the caller at once.
///
/// # Safety
/// As of the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> pid_t {
    std::arch::naked_asm!("sub rsp, 8", "call {settle}", "add rsp, 8", "jmp rax", settle = sym settle_for_vfork)
}
