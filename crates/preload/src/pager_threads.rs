//! The pager's threads. They are created without the C library, which so knows the program's threads only: it ends the
//! process when the last of these ends, changes the credentials of these only, and need not forget the pager's threads
//! at a fork. A child that is still inside the C library's `fork` can start them too.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

use deepram_linux::descriptors::OpenGuard;

use crate::{credentials, kernel, libc_symbols::symbol, library_context};

/// Largest number of threads.
const MAX_THREADS: usize = 64;
/// Bytes of each stack, with a guard page at its end.
const STACK_BYTES: usize = 256 << 10;
const GUARD_BYTES: usize = 4096;

/// Memory of a thread: reused for the thread of the same index in a forked child, which has a copy of it.
struct ThreadMemory {
    /// The thread's number, once it runs.
    thread: AtomicI32,
    stack: AtomicUsize,
    /// Address of the thread-local storage block of the C library.
    tls: AtomicUsize,
}

static THREADS: [ThreadMemory; MAX_THREADS] = [const {
    ThreadMemory { thread: AtomicI32::new(0), stack: AtomicUsize::new(0), tls: AtomicUsize::new(0) }
}; MAX_THREADS];
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// Exit status of the last program thread that ended by itself.
static EXIT_STATUS: AtomicI32 = AtomicI32::new(NO_STATUS);
const NO_STATUS: c_int = c_int::MIN;

/// Start parameters of a thread.
struct Start {
    name: CString,
    body: Box<dyn FnOnce() + Send>,
}

/// Resets the state in a forked child, where none of its parent's threads exists.
pub(crate) fn reset_in_child() {
    THREADS.iter().for_each(|memory| memory.thread.store(0, Relaxed));
    STARTED.store(0, Relaxed);
}

/// Records that a thread of the program ends with this status, by itself and not through the C library.
pub(crate) fn note_exit(status: c_int) {
    EXIT_STATUS.store(status, Relaxed);
}

/// Ends the process if none of the program's threads is left. The C library does this when the last thread that it
/// knows ends; these threads have ended without it.
pub(crate) fn exit_if_program_ended() {
    let mut path = [0_u8; 8];
    let first = c"/proc/self/exe";
    // SAFETY: the path ends with a zero, and the call stores at most the length of the buffer.
    let exists = unsafe { libc::readlink(first.as_ptr(), path.as_mut_ptr().cast(), path.len()) } >= 0;
    // If the first thread of the process has ended, the kernel refuses to read the link.
    if exists || io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT) {
        return;
    }
    let _opening = OpenGuard::acquire();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    // Kernel threads of an io_uring run no program code, and end when no other thread is left.
    let is_thread = |path: PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| !name.starts_with("iou-wrk"))
    };
    // The first thread, which has ended, is still in the list.
    if threads.flatten().filter(|entry| is_thread(entry.path())).count() == 1 + STARTED.load(Relaxed) {
        let status = match EXIT_STATUS.load(Relaxed) {
            NO_STATUS => first_thread_status().unwrap_or(0),
            status => status,
        };
        // SAFETY: the kernel would do the same if the pager had no threads.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// The exit status of the first thread.
fn first_thread_status() -> Option<c_int> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let last: c_int = text.split_ascii_whitespace().last()?.parse().ok()?;
    Some(last >> 8)
}

/// Sends a signal to all threads of the pager. Returns how many threads got it.
pub(crate) fn signal_all(signal: c_int) -> usize {
    let threads = THREADS.iter().map(|memory| memory.thread.load(Relaxed)).filter(|thread| *thread != 0);
    // SAFETY: makes the threads run the signal's handler; none ends before the process does.
    threads
        .filter(|thread| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), *thread, signal) } == 0)
        .count()
}

/// Starts a thread that is in the library for good. The caller must be in the library.
///
/// # Errors
/// Memory for the thread is lacking, or the kernel creates no more threads.
pub(crate) fn start(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    debug_assert!(library_context::in_library(), "thread-local storage must be in memory that is not paged");
    let name = CString::new(name)?;
    let n = STARTED.fetch_add(1, Relaxed);
    let started = spawn(n, Start { name, body });
    if started.is_err() {
        STARTED.fetch_sub(1, Relaxed);
    }
    started
}

fn spawn(n: usize, start: Start) -> io::Result<()> {
    let memory = THREADS.get(n).ok_or_else(|| io::Error::other("the pager has too many threads"))?;
    let (stack, tls) = (stack(memory)?, tls(memory)?);
    let start = Box::into_raw(Box::new(start));
    let top = stack + STACK_BYTES - 2 * size_of::<usize>();
    // SAFETY: the top of a stack that is not in use: the new thread takes both words from there.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<[usize; 2]>(top)
            .write([thread_main as *const () as usize, start.expose_provenance()]);
    }
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS;
    // A new thread inherits the signal mask of its creator.
    let blocked = kernel::set_blocked(u64::MAX);
    // SAFETY: the stack and the block belong to the new thread alone, and both words are in place.
    let result = unsafe { clone(flags, top, tls) };
    kernel::set_blocked(blocked);
    if result < 0 {
        // SAFETY: no thread was created, so this is the only owner.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(-result as i32));
    }
    memory.thread.store(result as i32, Relaxed);
    Ok(())
}

fn stack(memory: &ThreadMemory) -> io::Result<usize> {
    let mut stack = memory.stack.load(Relaxed);
    if stack == 0 {
        stack = kernel::reserve(STACK_BYTES, kernel::READ_WRITE).ok_or_else(io::Error::last_os_error)?;
        if kernel::mprotect(stack, GUARD_BYTES, libc::PROT_NONE) != 0 {
            return Err(io::Error::last_os_error());
        }
        memory.stack.store(stack, Relaxed);
    }
    Ok(stack)
}

/// Allocates the thread-local storage block, as the C library does for its own threads.
fn tls(memory: &ThreadMemory) -> io::Result<usize> {
    symbol!(ALLOCATE = c"_dl_allocate_tls");
    type Allocate = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    let mut tls = memory.tls.load(Relaxed);
    if tls == 0 {
        let allocate = ALLOCATE.find().ok_or_else(|| {
            io::Error::other("the C library has no _dl_allocate_tls, which the pager needs for its threads")
        })?;
        // SAFETY: the loader's function of this name: called with null, it allocates a block.
        tls = unsafe { std::mem::transmute::<*mut c_void, Allocate>(allocate)(std::ptr::null_mut()) }.addr();
        if tls == 0 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let block = std::ptr::with_exposed_provenance_mut::<usize>(tls);
        // Fields that the architecture's ABI for thread-local storage and compilers expect: the address of the block,
        // twice, and the guard values for stacks and for stored pointers, which are the same for the whole process.
        // SAFETY: a new block, whose header is larger than these fields; `fs` is the caller's own thread pointer.
        unsafe {
            let (guard, pointers): (usize, usize);
            std::arch::asm!(
                "mov {0}, fs:[0x28]", "mov {1}, fs:[0x30]", out(reg) guard, out(reg) pointers,
                options(nostack, readonly)
            );
            block.write(tls);
            block.add(2).write(tls);
            block.add(5).write(guard);
            block.add(6).write(pointers);
        }
        memory.tls.store(tls, Relaxed);
    }
    Ok(tls)
}

/// The system call `clone`: the new thread pops a function and its argument from its stack and calls the function.
/// Returns the thread's number, or a negative error number.
#[unsafe(naked)]
unsafe extern "C" fn clone(flags: c_int, stack: usize, tls: usize) -> isize {
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
extern "C" fn thread_main(start: *mut Start) {
    library_context::mark_library_thread();
    kernel::set_blocked(!(1 << (credentials::SETXID_SIGNAL - 1)));
    // SAFETY: `spawn` gave the parameters to this thread.
    let Start { name, body } = *unsafe { Box::from_raw(start) };
    // SAFETY: sets the thread's name.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    body();
    kernel::raw(libc::SYS_exit, [0; 6]);
}
