//! `clone` where the child gets a copy of the memory, as with `fork`, but begins with a function on a stack
//! that the program gives; and by its number, where it goes on where the parent does.
//!
//! The kernel and the C library store to that stack and to the places for thread numbers while everything is
//! at rest, and those may lie in memory that is paged. So the child begins on a stack of ours, and the rest
//! is done when it has its pager.

use std::sync::atomic::AtomicPtr;

use libc::{c_int, c_void, pid_t};

use super::{before, child, keeping_errno, parent};
use crate::inside::apart;
use crate::malloc::set_errno;
use crate::places::unkept;
use crate::stacks::aside;
use crate::{descriptors, early, kernel, next, setup};

type Body = extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(Body, *mut c_void, c_int, *mut c_void, ...) -> c_int;

/// Of the stack on which a child gets its pager.
const STACK: usize = 256 << 10;

static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// What the child does when it has its pager; at the start of its first stack.
struct Start {
    body: Body,
    argument: *mut c_void,
    stack: *mut c_void,
    later: Later,
    /// What the kernel stores for the parent: a thread number or a descriptor.
    parent_tid: pid_t,
}

/// What the kernel would do to the child, but to memory that may be paged: done when it has its pager.
struct Later {
    flags: c_int,
    tls: *mut c_void,
    child_tid: *mut pid_t,
}

impl Later {
    /// Flags of all that.
    const ALL: c_int = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::CLONE_SETTLS;

    /// What the kernel does at once. Nor does the parent wait for the child (`CLONE_VFORK`): everybody would.
    fn without(flags: c_int) -> c_int {
        flags & !(Self::ALL | libc::CLONE_VFORK)
    }

    fn now(&self) {
        if self.flags & libc::CLONE_CHILD_SETTID != 0 {
            // SAFETY: the promise of who called `clone`.
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

/// Where the parent learns of the child.
const FOR_THE_PARENT: c_int = libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD;

/// The C library's. It takes the last three arguments only where the flags speak of them; where they are not
/// given they are read as whatever there is, and not used.
///
/// # Safety
/// As of the C library's.
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
    let Some(found) = next::find(&NEXT, c"clone") else { return refuse(libc::ENOSYS) };
    // SAFETY: the C library's function of this name.
    let next = unsafe { std::mem::transmute::<*mut c_void, Clone>(found) };
    let Some(body) = body.filter(|_| !stack.is_null()) else { return refuse(libc::EINVAL) };
    if flags & libc::CLONE_FILES != 0 {
        descriptors::expect_threads();
    }
    if flags & libc::CLONE_VM != 0 || !early::is_on() {
        unkept(|| ());
        // SAFETY: the caller's arguments.
        return unsafe { next(body, stack, flags, argument, parent_tid, tls, child_tid) };
    }
    let later = Later { flags, tls, child_tid };
    // Not with signals kept waiting for all of it: the child begins with a function of its own.
    aside(move || copied(next, body, stack, flags, argument, parent_tid, later))
}

fn refuse(error: c_int) -> c_int {
    set_errno(error);
    -1
}

/// Whether the child would have the pager's descriptors, which close with those of the parent.
fn shares_descriptors(flags: c_int) -> bool {
    let shares = flags & libc::CLONE_FILES != 0;
    if shares {
        setup::complain(
            "a child with a copy of the memory cannot share descriptors: the pager's are its own",
        );
    }
    shares
}

fn copied(
    next: Clone,
    body: Body,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut pid_t,
    later: Later,
) -> c_int {
    if shares_descriptors(flags) {
        return refuse(libc::EINVAL);
    }
    let Some(base) = kernel::reserve(STACK) else { return refuse(libc::ENOMEM) };
    let start = std::ptr::with_exposed_provenance_mut::<Start>(base);
    let first = std::ptr::with_exposed_provenance_mut::<c_void>(base + STACK);
    // SAFETY: new memory of ours, aligned to a page and larger.
    unsafe { start.write(Start { body, argument, stack, later, parent_tid: 0 }) };
    before();
    // SAFETY: `begin` gets what it takes, on a stack that is its own; the kernel stores one number.
    let pid = unsafe {
        let to = &raw mut (*start).parent_tid;
        next(begin, first, Later::without(flags), start.cast(), to, std::ptr::null_mut::<c_void>(), to)
    };
    keeping_errno(parent);
    if pid >= 0 && flags & FOR_THE_PARENT != 0 {
        // SAFETY: the caller's promise.
        unsafe { parent_tid.write((*start).parent_tid) };
    }
    kernel::munmap(base, STACK);
    pid
}

/// `clone` by its number, without a stack and with a copy of the memory: the child goes on where the parent does.
///
/// # Safety
/// The places that the flags speak of may be written.
pub(crate) unsafe fn by_number(
    flags: c_int,
    parent_tid: *mut pid_t,
    child_tid: *mut pid_t,
    tls: *mut c_void,
) -> c_int {
    if shares_descriptors(flags) {
        return refuse(libc::EINVAL);
    }
    let later = Later { flags, tls, child_tid };
    apart(move || {
        let mut number: pid_t = 0;
        before();
        let arguments =
            [Later::without(flags).cast_unsigned() as usize, 0, (&raw mut number).addr(), 0, 0, 0];
        let pid = kernel::call(libc::SYS_clone, arguments) as c_int;
        if pid == 0 {
            child();
            later.now();
            return 0;
        }
        keeping_errno(parent);
        if pid > 0 && flags & FOR_THE_PARENT != 0 {
            // SAFETY: the caller's promise.
            unsafe { parent_tid.write(number) };
        }
        pid
    })
}

/// Where the child begins.
extern "C" fn begin(start: *mut c_void) -> c_int {
    child();
    // SAFETY: what `clone` wrote there, in the child's copy.
    let start = unsafe { start.cast::<Start>().read() };
    start.later.now();
    let stack = start.stack.addr() / 16 * 16;
    // SAFETY: the program gave the stack and the function for this; nothing of the stack left behind is used
    // again. When the function returns, so does the process.
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
