//! Interposes `syscall`: calls by number are treated like the interposed functions.

use libc::{c_int, c_long, c_uint, c_void};

use crate::affinity::without_pinning;
use crate::fork::clone;
use crate::malloc::set_errno;
use crate::{advise, descriptors, direct_io, fork, kernel, lazy_start, media, memory, pager_threads, setup};

/// `IORING_REGISTER_BUFFERS` and `IORING_REGISTER_BUFFERS2`.
const BUFFERS: [c_uint; 2] = [0, 15];
/// `IORING_REGISTER_USE_REGISTERED_RING`: a flag for how the ring is named.
const REGISTERED_RING: c_uint = 1 << 31;

/// The arguments of a call as they lie on the stack, and its result, if the library handles it.
#[repr(C)]
struct Call {
    number: c_long,
    arguments: [usize; 5],
    result: isize,
    _return: usize,
    sixth: usize,
}

/// Interposes the C library's `syscall`. Calls that the library does not handle go to the kernel unchanged, and return
/// directly to the caller: a child may be on another stack.
///
/// # Safety
/// As for the system call.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long) -> c_long {
    std::arch::naked_asm!(
        "sub rsp, 8",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, rsp",
        "call {handle_call}",
        "mov r11d, eax",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop r8",
        "pop r9",
        "pop rax",
        "test r11d, r11d",
        "jz 2f",
        "ret",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "neg eax",
        "mov edi, eax",
        "sub rsp, 8",
        "call {set_error}",
        "add rsp, 8",
        "mov rax, -1",
        "ret",
        handle_call = sym handle_call,
        set_error = sym set_error,
    )
}

extern "C" fn set_error(error: c_int) {
    set_errno(error);
}

/// Calls `first`, and leaves the system call to the kernel.
fn then_to_kernel(first: impl FnOnce()) -> c_int {
    first();
    0
}

fn pointer<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Handles the call if it concerns the library. Returns 1 if the result is stored in `call`, 0 if the call goes to the
/// kernel.
extern "C" fn handle_call(call: *mut Call) -> c_int {
    // SAFETY: `syscall` made it.
    let call = unsafe { &mut *call };
    let [a, b, c, d, e] = call.arguments;
    let (third, fourth, fifth) = (c as c_int, d as c_int, e as c_int);
    let to_kernel = || kernel::call(call.number, [a, b, c, d, e, call.sixth]);
    let result = match call.number {
        libc::SYS_mmap => {
            let offset = call.sixth.cast_signed() as i64;
            memory::mmap(pointer(a), b, third, fourth, fifth, offset).addr().cast_signed()
        }
        libc::SYS_munmap => memory::munmap(pointer(a), b) as isize,
        libc::SYS_mremap => memory::mremap(pointer(a), b, c, fourth, pointer(e)).addr().cast_signed(),
        libc::SYS_mprotect => memory::mprotect(pointer(a), b, third) as isize,
        libc::SYS_pkey_mprotect => memory::pkey_mprotect(pointer(a), b, third, fourth) as isize,
        libc::SYS_madvise => advise::madvise(pointer(a), b, third) as isize,
        libc::SYS_mlock => advise::mlock(pointer(a), b) as isize,
        libc::SYS_mlock2 => advise::mlock2(pointer(a), b, c as u32) as isize,
        libc::SYS_munlock => advise::munlock(pointer(a), b) as isize,
        libc::SYS_mlockall => advise::mlockall(a as c_int) as isize,
        libc::SYS_munlockall => advise::munlockall() as isize,
        // SAFETY: as for the system call.
        libc::SYS_msync if media::is_enabled() => unsafe {
            media::sync::msync(pointer(a), b, third) as isize
        },
        // SAFETY: as above.
        libc::SYS_fsync if media::is_enabled() => unsafe { media::sync::fsync(a as c_int) as isize },
        // SAFETY: as above.
        libc::SYS_fdatasync if media::is_enabled() => unsafe { media::sync::fdatasync(a as c_int) as isize },
        libc::SYS_close => descriptors::close(a as c_int) as isize,
        libc::SYS_close_range => descriptors::close_range(a as u32, b as u32, third) as isize,
        libc::SYS_dup2 => descriptors::dup2(a as c_int, b as c_int) as isize,
        libc::SYS_dup3 => descriptors::dup3(a as c_int, b as c_int, third) as isize,
        libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity | libc::SYS_execve | libc::SYS_execveat => {
            without_pinning(to_kernel)
        }
        // A child that continues in its parent's function can use the parent's stack only if it has a copy of it.
        // SAFETY: as for the system call.
        libc::SYS_fork | libc::SYS_vfork if lazy_start::is_watching() => unsafe { fork::fork() as isize },
        // SAFETY: as for the system call.
        libc::SYS_clone if lazy_start::is_watching() && [a, b] == [libc::SIGCHLD as usize, 0] => unsafe {
            fork::fork() as isize
        },
        libc::SYS_clone if lazy_start::is_watching() && a as c_int & libc::CLONE_VM == 0 => {
            clone_by_number(a as c_int, [b, c, d, e])
        }
        libc::SYS_clone3 if lazy_start::is_watching() => {
            // SAFETY: the caller's promise: its flags are the first field.
            if b >= 8 && unsafe { pointer::<u64>(a).read() } & libc::CLONE_VM as u64 == 0 {
                setup::report(
                    "clone3 by its number is not supported for a child with a copy of the memory; the call fails with \
                     ENOSYS",
                );
                set_errno(libc::ENOSYS);
                -1
            } else {
                without_pinning(|| ());
                return 0;
            }
        }
        libc::SYS_clone => {
            without_pinning(|| ());
            return 0;
        }
        libc::SYS_exit => return then_to_kernel(|| pager_threads::note_exit(a as c_int)),
        libc::SYS_open => return then_to_kernel(|| direct_io::check_flags(b as c_int)),
        libc::SYS_openat => return then_to_kernel(|| direct_io::check_flags(third)),
        libc::SYS_openat2 if c != 0 && d >= size_of::<u64>() => {
            // SAFETY: the caller's promise: its flags are the first field.
            return then_to_kernel(|| direct_io::check_flags(unsafe { pointer::<u64>(c).read() } as c_int));
        }
        libc::SYS_fcntl => return then_to_kernel(|| direct_io::check_fcntl(b as c_int, c)),
        libc::SYS_io_uring_register if BUFFERS.contains(&(b as c_uint & !REGISTERED_RING)) => {
            return then_to_kernel(direct_io::announce);
        }
        _ => return 0,
    };
    call.result = result;
    1
}

/// Makes the call `clone` for a child with a copy of the memory; `flags`, then the other arguments in the order of the
/// call.
fn clone_by_number(flags: c_int, [stack, parent_tid, child_tid, tls]: [usize; 4]) -> isize {
    if stack != 0 {
        setup::report(
            "clone by its number is not supported for a child with a copy of the memory and another stack; the call \
             fails with EINVAL",
        );
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        clone::by_number(flags, pointer(parent_tid), pointer(child_tid), pointer::<c_void>(tls)) as isize
    }
}
