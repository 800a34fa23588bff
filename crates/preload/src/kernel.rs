//! System calls made without the C library, whose function names this library interposes.

use libc::{c_int, c_void};

use crate::malloc::set_errno;

/// Makes a system call. Returns the kernel's result: the value, or a negative error number.
pub(crate) fn raw(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the callers pass on the program's request, or change memory of the library's own. The kernel preserves
    // all other registers.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Makes a system call. Returns the result in the C library's form: the value, or -1 with `errno` set.
pub(crate) fn call(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result = raw(number, arguments);
    if (-4095..0).contains(&result) {
        set_errno(-result as c_int);
        return -1;
    }
    result
}

pub(crate) fn mmap(at: usize, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    let arguments =
        [at, len, prot as usize, flags as usize, fd as isize as usize, (offset as isize).cast_unsigned()];
    std::ptr::with_exposed_provenance_mut(call(libc::SYS_mmap, arguments).cast_unsigned())
}

pub(crate) fn munmap(at: usize, len: usize) -> c_int {
    call(libc::SYS_munmap, [at, len, 0, 0, 0, 0]) as c_int
}

pub(crate) fn mremap(at: usize, len: usize, new_len: usize, flags: c_int, to: usize) -> *mut c_void {
    let moved = call(libc::SYS_mremap, [at, len, new_len, flags as usize, to, 0]);
    std::ptr::with_exposed_provenance_mut(moved.cast_unsigned())
}

pub(crate) fn mprotect(at: usize, len: usize, prot: c_int) -> c_int {
    call(libc::SYS_mprotect, [at, len, prot as usize, 0, 0, 0]) as c_int
}

pub(crate) fn madvise(at: usize, len: usize, advice: c_int) -> c_int {
    call(libc::SYS_madvise, [at, len, advice as usize, 0, 0, 0]) as c_int
}

pub(crate) fn mlock(at: usize, len: usize) -> c_int {
    call(libc::SYS_mlock, [at, len, 0, 0, 0, 0]) as c_int
}

pub(crate) fn munlock(at: usize, len: usize) -> c_int {
    call(libc::SYS_munlock, [at, len, 0, 0, 0, 0]) as c_int
}

pub(crate) fn mlock2(at: usize, len: usize, flags: u32) -> c_int {
    call(libc::SYS_mlock2, [at, len, flags as usize, 0, 0, 0]) as c_int
}

pub(crate) fn mlockall(flags: c_int) -> c_int {
    call(libc::SYS_mlockall, [flags as usize, 0, 0, 0, 0, 0]) as c_int
}

pub(crate) fn munlockall() -> c_int {
    call(libc::SYS_munlockall, [0; 6]) as c_int
}

pub(crate) fn pkey_mprotect(at: usize, len: usize, prot: c_int, key: c_int) -> c_int {
    call(libc::SYS_pkey_mprotect, [at, len, prot as usize, key as usize, 0, 0]) as c_int
}

pub(crate) fn gettid() -> libc::pid_t {
    call(libc::SYS_gettid, [0; 6]) as libc::pid_t
}

pub(crate) fn set_tid_address(at: usize) {
    call(libc::SYS_set_tid_address, [at, 0, 0, 0, 0, 0]);
}

/// `struct sigaction` of the kernel.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) restorer: usize,
    pub(crate) mask: u64,
}

/// The action of a signal.
pub(crate) fn signal_action(signal: c_int) -> Action {
    exchange_action(signal, 0)
}

/// Sets the action of a signal. Returns the previous action.
pub(crate) fn set_action(signal: c_int, new: &Action) -> Action {
    exchange_action(signal, std::ptr::from_ref(new).addr())
}

/// Fails only for numbers that are not signals.
fn exchange_action(signal: c_int, new: usize) -> Action {
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    raw(libc::SYS_rt_sigaction, [signal as usize, new, (&raw mut old).addr(), size_of::<u64>(), 0, 0]);
    old
}

/// Sets the signals that are blocked in this thread, one bit each, including those of the C library. Returns the
/// previous set.
pub(crate) fn set_blocked(signals: u64) -> u64 {
    let mut old = 0_u64;
    let (new, to) = ((&raw const signals).addr(), (&raw mut old).addr());
    raw(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, new, to, size_of::<u64>(), 0, 0]);
    old
}

/// Sets the thread pointer, from which the thread finds its thread-local storage.
pub(crate) fn set_thread_pointer(at: usize) {
    /// `ARCH_SET_FS` of the kernel.
    const SET_FS: usize = 0x1002;
    call(libc::SYS_arch_prctl, [SET_FS, at, 0, 0, 0, 0]);
}

/// A resource limit of the process; the largest value if it has none.
pub(crate) fn limit(of: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: fills the structure.
    unsafe { libc::getrlimit(of, &raw mut limit) };
    limit.rlim_cur
}

pub(crate) fn close(fd: c_int) -> c_int {
    call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) as c_int
}

pub(crate) fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    call(libc::SYS_close_range, [first as usize, last as usize, flags as usize, 0, 0, 0]) as c_int
}

pub(crate) fn fstat(fd: c_int, about: *mut libc::stat) -> c_int {
    call(libc::SYS_fstat, [fd as usize, about.addr(), 0, 0, 0, 0]) as c_int
}

pub(crate) fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    call(libc::SYS_dup3, [from as usize, to as usize, flags as usize, 0, 0, 0]) as c_int
}

/// Access of memory that may be read and written.
pub(crate) const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Maps private memory for the library, with this access; only touched pages take DRAM.
pub(crate) fn reserve(len: usize, access: libc::c_int) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let at = mmap(0, len, access, flags, -1, 0);
    (at != libc::MAP_FAILED).then_some(at.addr())
}
