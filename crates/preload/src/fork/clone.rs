//! `clone` where the child gets a copy of the memory, as with `fork`, but begins with a function on a stack that the
//! program provides; and `clone` by its number, where the child continues where the parent does.
//!
//! The kernel and the C library store to that stack and to the addresses for thread numbers while all locks are held,
//! and these may be in managed memory. So the child begins on a stack of the library's, and the rest is done when the
//! child has its pager.

use libc::{c_int, c_void, pid_t};

use super::{lock_for_fork, preserving_errno, resume_child, resume_parent};
use crate::affinity::without_pinning;
use crate::library_context::on_library_stack;
use crate::malloc::set_errno;
use crate::stacks::on_unpaged_stack;
use crate::{descriptors, kernel, lazy_start, libc_symbols::symbol, setup};

type Body = extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(Body, *mut c_void, c_int, *mut c_void, ...) -> c_int;

/// Bytes of the stack on which a child starts its pager.
const STACK_BYTES: usize = 256 << 10;

symbol!(NEXT = c"clone");

/// Parameters of a child, at the start of its first stack.
struct Start {
    body: Body,
    argument: *mut c_void,
    stack: *mut c_void,
    deferred: DeferredFlags,
    /// Value that the kernel stores for the parent: a thread number or a descriptor.
    parent_tid: pid_t,
}

/// Settings of the child that the kernel would store in memory that may be managed: applied when the child has its
/// pager.
struct DeferredFlags {
    flags: c_int,
    tls: *mut c_void,
    child_tid: *mut pid_t,
}

impl DeferredFlags {
    /// Flags of the deferred settings.
    const DEFERRED: c_int = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::CLONE_SETTLS;

    /// The flags that the kernel handles at once. `CLONE_VFORK` is removed too: the parent would wait for the child
    /// with all locks held.
    fn without(flags: c_int) -> c_int {
        flags & !(Self::DEFERRED | libc::CLONE_VFORK)
    }

    fn apply(&self) {
        if self.flags & libc::CLONE_CHILD_SETTID != 0 {
            // SAFETY: the promise of the caller of `clone`.
            unsafe { self.child_tid.write(kernel::gettid()) };
        }
        if self.flags & libc::CLONE_CHILD_CLEARTID != 0 {
            kernel::set_tid_address(self.child_tid.addr());
        }
        if self.flags & libc::CLONE_SETTLS != 0 {
            kernel::set_thread_pointer(self.tls.addr());
        }
    }
}

/// Flags that make the kernel store something for the parent.
const STORES_FOR_PARENT: c_int = libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD;

/// Interposes the C library's `clone`. It takes the last three arguments only where the flags require them; otherwise
/// they have arbitrary values and are not used.
///
/// # Safety
/// As for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    body: Option<Body>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut pid_t,
    tls: *mut c_void,
    child_tid: *mut pid_t,
) -> c_int {
    let Some(found) = NEXT.find() else { return refuse(libc::ENOSYS) };
    // SAFETY: the C library's function of this name.
    let next = unsafe { std::mem::transmute::<*mut c_void, Clone>(found) };
    let Some(body) = body.filter(|_| !stack.is_null()) else { return refuse(libc::EINVAL) };
    if flags & libc::CLONE_FILES != 0 {
        descriptors::note_unknown_threads();
    }
    if flags & libc::CLONE_VM != 0 || !lazy_start::is_watching() {
        without_pinning(|| ());
        // SAFETY: the caller's arguments.
        return unsafe { next(body, stack, flags, argument, parent_tid, tls, child_tid) };
    }
    let deferred = DeferredFlags { flags, tls, child_tid };
    // Signals are not blocked for all of it: the child begins with a function of its own.
    on_unpaged_stack(move || clone_with_copy(next, body, stack, flags, argument, parent_tid, deferred))
}

fn refuse(error: c_int) -> c_int {
    set_errno(error);
    -1
}

/// Whether the child would share the pager's descriptors, which the parent would close.
fn shares_descriptors(flags: c_int) -> bool {
    let shares = flags & libc::CLONE_FILES != 0;
    if shares {
        setup::report(
            "a child with a copy of the memory cannot share file descriptors: its pager needs its own",
        );
    }
    shares
}

fn clone_with_copy(
    next: Clone,
    body: Body,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut pid_t,
    deferred: DeferredFlags,
) -> c_int {
    if shares_descriptors(flags) {
        return refuse(libc::EINVAL);
    }
    let Some(base) = kernel::reserve(STACK_BYTES, kernel::READ_WRITE) else { return refuse(libc::ENOMEM) };
    let start = std::ptr::with_exposed_provenance_mut::<Start>(base);
    let first = std::ptr::with_exposed_provenance_mut::<c_void>(base + STACK_BYTES);
    // SAFETY: new memory of the library, aligned to a page and larger.
    unsafe { start.write(Start { body, argument, stack, deferred, parent_tid: 0 }) };
    lock_for_fork();
    // SAFETY: `child_main` gets its parameters, on a stack of its own; the kernel stores one number.
    let pid = unsafe {
        let to = &raw mut (*start).parent_tid;
        next(
            child_main,
            first,
            DeferredFlags::without(flags),
            start.cast(),
            to,
            std::ptr::null_mut::<c_void>(),
            to,
        )
    };
    preserving_errno(resume_parent);
    if pid >= 0 && flags & STORES_FOR_PARENT != 0 {
        // SAFETY: the caller's promise.
        unsafe { parent_tid.write((*start).parent_tid) };
    }
    kernel::munmap(base, STACK_BYTES);
    pid
}

/// Makes the call `clone` by its number, without a stack and with a copy of the memory: the child continues where the
/// parent does.
///
/// # Safety
/// The addresses that the flags require may be written.
pub(crate) unsafe fn by_number(
    flags: c_int,
    parent_tid: *mut pid_t,
    child_tid: *mut pid_t,
    tls: *mut c_void,
) -> c_int {
    if shares_descriptors(flags) {
        return refuse(libc::EINVAL);
    }
    let deferred = DeferredFlags { flags, tls, child_tid };
    on_library_stack(move || {
        let mut number: pid_t = 0;
        lock_for_fork();
        let arguments =
            [DeferredFlags::without(flags).cast_unsigned() as usize, 0, (&raw mut number).addr(), 0, 0, 0];
        let pid = kernel::call(libc::SYS_clone, arguments) as c_int;
        if pid == 0 {
            resume_child();
            deferred.apply();
            return 0;
        }
        preserving_errno(resume_parent);
        if pid > 0 && flags & STORES_FOR_PARENT != 0 {
            // SAFETY: the caller's promise.
            unsafe { parent_tid.write(number) };
        }
        pid
    })
}

/// Entry point of the child.
extern "C" fn child_main(start: *mut c_void) -> c_int {
    resume_child();
    // SAFETY: written by `clone_with_copy`, in the child's copy.
    let start = unsafe { start.cast::<Start>().read() };
    start.deferred.apply();
    let stack = start.stack.addr() / 16 * 16;
    // SAFETY: the program provides the stack and the function for this; nothing on the old stack is used again. When
    // the function returns, the process ends.
    unsafe {
        std::arch::asm!(
            "mov rsp, {stack}",
            "xor ebp, ebp",
            "call {body}",
            "mov edi, eax",
            "call {exit}",
            "ud2",
            stack = in(reg) stack,
            body = in(reg) start.body,
            exit = sym libc::_exit,
            in("rdi") start.argument,
            options(noreturn),
        )
    }
}
