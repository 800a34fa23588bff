//! `syscall`: what this library stands before is the same where a program makes the call by its number.

use libc::{c_int, c_long, c_uint, c_void};

use crate::fork::copy;
use crate::malloc::set_errno;
use crate::places::unkept;
use crate::{advise, descriptors, direct, early, fork, helpers, kernel, memory, setup};

/// `IORING_REGISTER_BUFFERS` and `IORING_REGISTER_BUFFERS2`.
const BUFFERS: [c_uint; 2] = [0, 15];
/// `IORING_REGISTER_USE_REGISTERED_RING`: says how the ring is named.
const REGISTERED_RING: c_uint = 1 << 31;

/// A call as it lies on the stack, and its result, if it is answered here.
#[repr(C)]
struct Call {
    number: c_long,
    arguments: [usize; 5],
    result: isize,
    _return: usize,
    sixth: usize,
}

/// The C library's. All but what is answered here goes to the kernel as it is, and returns to the caller at once: a
/// child may be on another stack.
///
/// # Safety
/// As of the call.
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
        "call {answer}",
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
        "call {fail}",
        "add rsp, 8",
        "mov rax, -1",
        "ret",
        answer = sym answer,
        fail = sym fail,
    )
}

extern "C" fn fail(error: c_int) {
    set_errno(error);
}

/// Does something, and leaves the call to the kernel.
fn to_kernel_after(first: impl FnOnce()) -> c_int {
    first();
    0
}

fn pointer<T>(address: usize) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address)
}

/// Whether the call is answered here: then with its result.
extern "C" fn answer(call: *mut Call) -> c_int {
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
        libc::SYS_close => descriptors::close(a as c_int) as isize,
        libc::SYS_close_range => descriptors::close_range(a as u32, b as u32, third) as isize,
        libc::SYS_dup2 => descriptors::dup2(a as c_int, b as c_int) as isize,
        libc::SYS_dup3 => descriptors::dup3(a as c_int, b as c_int, third) as isize,
        libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity | libc::SYS_execve | libc::SYS_execveat => {
            unkept(to_kernel)
        }
        // A child that goes on in its parent's function can use its stack only if it has a copy.
        // SAFETY: as of the call.
        libc::SYS_fork | libc::SYS_vfork if early::is_on() => unsafe { fork::fork() as isize },
        // SAFETY: as of the call.
        libc::SYS_clone if early::is_on() && [a, b] == [libc::SIGCHLD as usize, 0] => unsafe {
            fork::fork() as isize
        },
        libc::SYS_clone if early::is_on() && a as c_int & libc::CLONE_VM == 0 => {
            child_by_number(a as c_int, [b, c, d, e])
        }
        libc::SYS_clone3 if early::is_on() => {
            // SAFETY: the promise of who calls: its flags are first.
            if b >= 8 && unsafe { pointer::<u64>(a).read() } & libc::CLONE_VM as u64 == 0 {
                setup::complain(
                    "a child by the number of clone3 cannot be followed: the call is refused as if there were none",
                );
                set_errno(libc::ENOSYS);
                -1
            } else {
                unkept(|| ());
                return 0;
            }
        }
        libc::SYS_clone => {
            unkept(|| ());
            return 0;
        }
        libc::SYS_exit => return to_kernel_after(|| helpers::note_exit(a as c_int)),
        libc::SYS_open => return to_kernel_after(|| direct::note(b as c_int)),
        libc::SYS_openat => return to_kernel_after(|| direct::note(third)),
        libc::SYS_openat2 if c != 0 && d >= size_of::<u64>() => {
            // SAFETY: the promise of who calls: its flags are first.
            return to_kernel_after(|| direct::note(unsafe { pointer::<u64>(c).read() } as c_int));
        }
        libc::SYS_fcntl => return to_kernel_after(|| direct::note_control(b as c_int, c)),
        libc::SYS_io_uring_register if BUFFERS.contains(&(b as c_uint & !REGISTERED_RING)) => {
            return to_kernel_after(direct::expect);
        }
        _ => return 0,
    };
    call.result = result;
    1
}

/// A child with a copy of the memory; its stack, and what follows in the order of the call.
fn child_by_number(flags: c_int, [stack, parent_tid, child_tid, tls]: [usize; 4]) -> isize {
    if stack != 0 {
        setup::complain("a child by the number of clone that has a stack of its own cannot be followed");
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the promise of who calls.
    unsafe {
        copy::by_number(flags, pointer(parent_tid), pointer(child_tid), pointer::<c_void>(tls)) as isize
    }
}
