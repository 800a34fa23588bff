//! The pager's threads. They are made without the C library, which so knows of the program's threads alone: it ends the
//! process when the last of these ends, changes the user of these alone, and a fork has nothing of ours to forget. A child that
//! is in the middle of the C library's `fork` can start them too.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering::Relaxed};

use deepram_pool::descriptors::Low;

use crate::{inside, kernel, next, users};

/// Most threads of a process.
const MOST: usize = 64;
/// Of each stack, with a page that cannot be used at its end.
const STACK: usize = 256 << 10;
const GUARD: usize = 4096;

/// What a thread uses: kept for the thread of the same place in a forked child, which has a copy of it.
struct Place {
    /// Its number, once there is one.
    thread: AtomicI32,
    stack: AtomicUsize,
    /// The C library's block of what is the thread's own.
    own: AtomicUsize,
}

static PLACES: [Place; MOST] =
    [const { Place { thread: AtomicI32::new(0), stack: AtomicUsize::new(0), own: AtomicUsize::new(0) } };
        MOST];
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// With what the last thread that ended by itself has ended.
static STATUS: AtomicI32 = AtomicI32::new(UNKNOWN);
const UNKNOWN: c_int = c_int::MIN;

/// What a thread begins with.
struct Start {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

/// In a forked child: none of its parent's threads is here.
pub(crate) fn forget() {
    PLACES.iter().for_each(|place| place.thread.store(0, Relaxed));
    STARTED.store(0, Relaxed);
}

/// A thread of the program ends with this status, by itself and not by the C library.
pub(crate) fn note_exit(status: c_int) {
    STATUS.store(status, Relaxed);
}

/// Ends the process if none of the program's threads is left. The C library does when the last that it knows ends: these have
/// ended without it.
pub(crate) fn look() {
    let mut path = [0_u8; 8];
    let first = c"/proc/self/exe";
    // SAFETY: the path ends with a zero, and the call stores no more than there is room for.
    let there = unsafe { libc::readlink(first.as_ptr(), path.as_mut_ptr().cast(), path.len()) } >= 0;
    // Of a process whose first thread has ended the kernel does not tell.
    if there || io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT) {
        return;
    }
    let _low = Low::hold();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    // The kernel's for a ring run nothing of the program, and end when nobody else is left.
    let is_thread = |path: PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| !name.starts_with("iou-wrk"))
    };
    // The first one that has ended is among them as well.
    if threads.flatten().filter(|entry| is_thread(entry.path())).count() == 1 + STARTED.load(Relaxed) {
        let status = match STATUS.load(Relaxed) {
            UNKNOWN => first_status().unwrap_or(0),
            status => status,
        };
        // SAFETY: what the kernel would do if the pager had no threads.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// The status with which the first thread has ended.
fn first_status() -> Option<c_int> {
    let told = std::fs::read_to_string("/proc/self/stat").ok()?;
    let last: c_int = told.split_ascii_whitespace().last()?.parse().ok()?;
    Some(last >> 8)
}

/// Sends all threads a signal, and returns how many there are.
pub(crate) fn tell_all(signal: c_int) -> usize {
    let threads = PLACES.iter().map(|place| place.thread.load(Relaxed)).filter(|thread| *thread != 0);
    // SAFETY: has them run the signal's handler; none ends before the process does.
    threads
        .filter(|thread| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *thread, signal) } == 0)
        .count()
}

/// Starts a thread that is inside for good. Whoever calls is inside.
///
/// # Errors
/// There is no memory for it, or the kernel makes no more threads.
pub(crate) fn start(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    debug_assert!(inside::is_inside(), "the block of what is a thread's own must not be paged");
    let name = CString::new(name)?;
    let n = STARTED.fetch_add(1, Relaxed);
    let started = launch(n, Start { name, body });
    if started.is_err() {
        STARTED.fetch_sub(1, Relaxed);
    }
    started
}

fn launch(n: usize, start: Start) -> io::Result<()> {
    let place = PLACES.get(n).ok_or_else(|| io::Error::other("the pager has too many threads"))?;
    let (stack, own) = (stack(place)?, own(place)?);
    let start = Box::into_raw(Box::new(start));
    let top = stack + STACK - 2 * size_of::<usize>();
    // SAFETY: the end of a stack that nobody uses: `clone` takes both words from there.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<[usize; 2]>(top)
            .write([begin as *const () as usize, start.expose_provenance()]);
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    // It begins with its maker's.
    let blocked = kernel::set_blocked(u64::MAX);
    // SAFETY: the stack and the block are the new thread's alone, and both words are there.
    let result = unsafe { clone(flags, top, own) };
    kernel::set_blocked(blocked);
    if result < 0 {
        // SAFETY: as there is no thread, this is the only owner.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    place.thread.store(result as i32, Relaxed);
    Ok(())
}

fn stack(place: &Place) -> io::Result<usize> {
    let mut stack = place.stack.load(Relaxed);
    if stack == 0 {
        stack = kernel::reserve(STACK).ok_or_else(io::Error::last_os_error)?;
        if kernel::mprotect(stack, GUARD, libc::PROT_NONE) != 0 {
            return Err(io::Error::last_os_error());
        }
        place.stack.store(stack, Relaxed);
    }
    Ok(stack)
}

/// The block with the variables that each thread has for itself, as the C library makes it for its own threads.
fn own(place: &Place) -> io::Result<usize> {
    static ALLOCATE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    type Allocate = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    let mut own = place.own.load(Relaxed);
    if own == 0 {
        let allocate = next::find(&ALLOCATE, c"_dl_allocate_tls")
            .ok_or_else(|| io::Error::other("this C library makes no threads of others"))?;
        // SAFETY: the loader's function of this name: without a block it makes one.
        own = unsafe { std::mem::transmute::<*mut c_void, Allocate>(allocate)(std::ptr::null_mut()) }.addr();
        if own == 0 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let block = std::ptr::with_exposed_provenance_mut::<usize>(own);
        // What the architecture's rules for threads' variables and the compilers say is there: where the block is, twice, and the
        // values that guard stacks and kept pointers, which are the process's.
        // SAFETY: a new block, whose head is larger; `fs` leads to the caller's own.
        unsafe {
            let (guard, pointers): (usize, usize);
            std::arch::asm!(
                "mov {0}, fs:[0x28]", "mov {1}, fs:[0x30]", out(reg) guard, out(reg) pointers,
                options(nostack, readonly)
            );
            block.write(own);
            block.add(2).write(own);
            block.add(5).write(guard);
            block.add(6).write(pointers);
        }
        place.own.store(own, Relaxed);
    }
    Ok(own)
}

/// The kernel's: the new thread takes its function and that one's argument from its stack. Returns the thread's number, or that of an
/// error below 0.
#[unsafe(naked)]
unsafe extern "C" fn clone(flags: c_int, stack: usize, own: usize) -> isize {
    std::arch::naked_asm!(
        "mov r8, rdx",
        "xor edx, edx",
        "xor r10d, r10d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "pop rax",
        "pop rdi",
        "call rax",
        "ud2",
        clone = const libc::SYS_clone,
    )
}

/// Body of a thread.
extern "C" fn begin(start: *mut Start) {
    inside::for_good();
    kernel::set_blocked(!(1 << (users::SIGNAL - 1)));
    // SAFETY: `launch` gave it to this thread.
    let Start { name, body } = *unsafe { Box::from_raw(start) };
    // SAFETY: names the thread.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    body();
    kernel::raw(libc::SYS_exit, [0; 6]);
}
