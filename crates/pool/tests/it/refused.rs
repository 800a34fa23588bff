//! A kernel that starts to refuse system calls without which memory cannot be kept correct. A process whose
//! memory is paged then ends with a message, and a pool stops: no store is lost, no stale byte is read and no
//! thread waits for ever.
//!
//! Each case runs in a process of its own, with a system call filter (seccomp).

use std::ffi::{c_int, c_long};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use deepram_pager::{self as pager, PAGE, Pager, PagerOptions};
use deepram_pool::{CreateOptions, Lifetime, PoolError};

use crate::scratch::{MIB, Scratch, mappable, mix};

const CASE: &str = "DEEPRAM_TEST_REFUSED";
/// Seconds after which a process counts as hung.
const LIMIT: &str = "100";

const UFFDIO_WAKE: u32 = 0x8010_AA02;
const UFFDIO_COPY: u32 = 0xC028_AA03;
const UFFDIO_WRITEPROTECT: u32 = 0xC018_AA06;

/// A system call and, if only some of its calls are meant, the number and value of an argument.
type Call = (c_long, Option<(u32, u32)>);

const PROTECT: &[Call] = &[(libc::SYS_ioctl, Some((1, UFFDIO_WRITEPROTECT)))];
const WAKE: &[Call] = &[(libc::SYS_ioctl, Some((1, UFFDIO_WAKE)))];
const COPY: &[Call] = &[(libc::SYS_ioctl, Some((1, UFFDIO_COPY)))];
const DISCARD: &[Call] = &[
    (libc::SYS_madvise, Some((2, libc::MADV_DONTNEED as u32))),
    (libc::SYS_madvise, Some((2, libc::MADV_DONTNEED_LOCKED as u32))),
    (libc::SYS_process_madvise, Some((4, libc::MADV_DONTNEED as u32))),
];
const READ: &[Call] = &[(libc::SYS_pread64, None)];
const RING: &[Call] = &[(libc::SYS_io_uring_enter, None)];
const RING_AND_READ: &[Call] = &[RING[0], READ[0]];
const SLEEP: &[Call] =
    &[(libc::SYS_epoll_wait, None), (libc::SYS_epoll_pwait, None), (libc::SYS_epoll_pwait2, None)];
const LEAD: &[Call] = &[(libc::SYS_epoll_ctl, None)];
/// The `read` calls whose length is the size of a userfaultfd event.
const EVENT: &[Call] = &[(libc::SYS_read, Some((2, 32)))];

/// Makes these calls fail in all threads from now on.
fn refuse(calls: &[Call], errno: i32) {
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    let unless = |value: u32, skip: u8| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, 0, skip);
    let end = |value: u32| step(libc::BPF_RET | libc::BPF_K, value, 0, 0);
    let mut program = Vec::new();
    for &(number, argument) in calls {
        program.extend([load(0), unless(number as u32, if argument.is_some() { 3 } else { 1 })]);
        if let Some((n, value)) = argument {
            // The lower half of the argument.
            program.extend([load(16 + 8 * n), unless(value, 1)]);
        }
        program.push(end(libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads a program that outlives the calls.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (operation, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program)
    };
    assert_eq!(refused, 0, "{}", std::io::Error::last_os_error());
}

/// The refused calls, their error, and the configuration of the process.
struct Case {
    name: &'static str,
    calls: &'static [Call],
    errno: i32,
    dram: u64,
    ring: bool,
    threads: usize,
    /// The pager moves pages out of memory, because devices may store to it.
    direct: bool,
    /// Parts of the message: the call and the error.
    message: &'static [&'static str],
}

const PLAIN: Case = Case {
    name: "",
    calls: &[],
    errno: libc::EPERM,
    dram: 8,
    ring: true,
    threads: 4,
    direct: false,
    message: &[],
};

const CASES: &[Case] = &[
    Case {
        name: "protect",
        calls: PROTECT,
        errno: libc::ENOMEM,
        message: &["UFFDIO_WRITEPROTECT", " 0x", "ENOMEM", "12"],
        ..PLAIN
    },
    Case {
        name: "protect_moved",
        calls: PROTECT,
        errno: libc::EINVAL,
        direct: true,
        message: &["UFFDIO_WRITEPROTECT", " 0x", "EINVAL", "22"],
        ..PLAIN
    },
    Case {
        name: "protect_huge",
        calls: PROTECT,
        errno: libc::ENOMEM,
        dram: 80,
        message: &["UFFDIO_WRITEPROTECT", " 0x", "ENOMEM", "12"],
        ..PLAIN
    },
    Case {
        name: "discard",
        calls: DISCARD,
        errno: libc::EINVAL,
        message: &["madvise(MADV_DONTNEED)", " 0x", "EINVAL", "22"],
        ..PLAIN
    },
    // The error for memory that is not mapped, although this memory is mapped.
    Case {
        name: "discard_mapped",
        calls: DISCARD,
        errno: libc::ENOMEM,
        message: &["madvise(MADV_DONTNEED)", " 0x", "ENOMEM", "12"],
        ..PLAIN
    },
    Case {
        name: "discard_huge",
        calls: DISCARD,
        errno: libc::EINVAL,
        dram: 80,
        message: &["madvise(MADV_DONTNEED)", " 0x", "EINVAL", "22"],
        ..PLAIN
    },
    Case {
        name: "wake",
        calls: WAKE,
        errno: libc::EINVAL,
        message: &["UFFDIO_WAKE", " 0x", "EINVAL", "22"],
        ..PLAIN
    },
    Case {
        name: "wake_huge",
        calls: WAKE,
        errno: libc::EINVAL,
        dram: 80,
        message: &["UFFDIO_WAKE", " 0x", "EINVAL", "22"],
        ..PLAIN
    },
    Case {
        name: "copy",
        calls: COPY,
        errno: libc::ENOMEM,
        message: &["UFFDIO_COPY", " 0x", "ENOMEM", "12"],
        ..PLAIN
    },
    Case {
        name: "read",
        calls: READ,
        errno: libc::EIO,
        ring: false,
        message: &["pread", " 0x", "EIO", "5"],
        ..PLAIN
    },
    Case {
        name: "ring_and_read",
        calls: RING_AND_READ,
        errno: libc::EIO,
        message: &["pread", " 0x", "EIO", "5"],
        ..PLAIN
    },
    Case { name: "sleep", calls: SLEEP, message: &["epoll_wait", "EPERM"], ..PLAIN },
    Case { name: "lead", calls: LEAD, threads: 1, message: &["epoll_ctl", "EPERM"], ..PLAIN },
    Case {
        name: "event",
        calls: EVENT,
        errno: libc::EIO,
        message: &["read of the userfaultfd", "EIO"],
        ..PLAIN
    },
    // Refusing these calls ends no process: the pager has another way.
    Case { name: "ring", calls: RING, ..PLAIN },
    Case { name: "ring_short_of_memory", calls: RING, errno: libc::EAGAIN, ..PLAIN },
];

/// Runs a test of this file in its own process. If the process hangs, it is killed together with the
/// processes it started.
fn run(test: &str, case: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", LIMIT]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", &format!("refused::{test}")]).env(CASE, case);
    command.output().expect("timeout runs")
}

fn assert_ended_by(output: &Output, signal: c_int, message: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.signal() == Some(signal) || status.code() == Some(128 + signal), "{status}: {text}");
    let is_it = |line: &str| line.starts_with("deepram: ") && message.iter().all(|part| line.contains(part));
    assert!(text.lines().any(is_it), "{message:?} in: {text}");
}

/// Paged memory of six times the DRAM, with a different value in each page's word.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn pages_while_the_kernel_refuses() {
    let name = std::env::var(CASE).expect("the test that starts it sets it");
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads a limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const core) };
    let mut options = PagerOptions::new(case.dram << 20, env!("CARGO_TARGET_TMPDIR"));
    (options.io_uring, options.pin_faulting_threads) = (case.ring, true);
    let pager = Pager::new(options).unwrap();
    let len = (case.dram as usize * 6) << 20;
    let start = anonymous(len);
    // SAFETY: fresh memory, which is not unmapped before the pager is gone.
    unsafe { pager.manage(start, len, true) }.unwrap();
    if case.direct {
        pager.expect_direct_io().unwrap();
    }
    let pages = len / PAGE;
    let word = |page: usize| word_at(start + page * PAGE);
    (0..pages).for_each(|page| word(page).store(mix(page as u64), Relaxed));
    refuse(case.calls, case.errno);
    let work = || {
        for pass in 0..6_u64 {
            for page in 0..pages {
                // Pages in order, then in a scattered order; the last quarter is stored to.
                let page = if pass % 2 == 0 { page } else { mix(page as u64 + pass) as usize % pages };
                let value = word(page).load(Relaxed);
                assert_eq!(value, mix(page as u64), "page {page}");
                if page > pages / 4 * 3 {
                    word(page).store(value, Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (1..case.threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    // SAFETY: the process exits without stopping the pager, which may need the refused calls.
    unsafe { libc::_exit(0) }
}

fn anonymous(len: usize) -> usize {
    // SAFETY: a new anonymous mapping.
    let start = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    start.expose_provenance()
}

/// Returns the word at the start of a page.
fn word_at<'a>(page: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's mapping, whose words are only used as atomics.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(page) }
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn unmaps_memory_unseen() {
    let pager = Pager::new(PagerOptions::new(8 << 20, env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let len = 24 << 20;
    // The two managed ranges are separated by unmanaged memory.
    let start = anonymous(2 * len + (4 << 20));
    let (gone, rest) = (start, start + len + (4 << 20));
    for (start, used) in [(rest, len), (gone, 4 << 20)] {
        // SAFETY: fresh memory. One of the two ranges is unmapped without notice to the pager, and not used
        // after that.
        unsafe { pager.manage(start, len, true) }.unwrap();
        (start..start + used).step_by(PAGE).for_each(|page| word_at(page).store(mix(page as u64), Relaxed));
    }
    // Unmaps the range while no page moves and while some of its pages are resident and dirty.
    // SAFETY: as above.
    let unmap = || unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(gone), len) };
    assert_eq!(pager.set_unreadable(rest, PAGE, false, unmap), 0);
    for _ in 0..3 {
        for page in (rest..rest + len).step_by(PAGE) {
            let value = word_at(page).load(Relaxed);
            assert_eq!(value, mix(page as u64), "page {page:#x}");
            word_at(page).store(value, Relaxed);
        }
    }
}

#[test]
fn memory_that_was_unmapped_unseen_is_forgotten() {
    if let Err(error) = pager::available() {
        return eprintln!("skipped: memory cannot be paged here ({error})");
    }
    let output = run("unmaps_memory_unseen", "");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn locks_memory_unseen() {
    let pager = Pager::new(PagerOptions::new(8 << 20, env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let len = 24 << 20;
    let start = anonymous(len);
    // SAFETY: fresh memory, used as long as the pager exists.
    unsafe { pager.manage(start, len, true) }.unwrap();
    // SAFETY: changes no contents.
    let locked =
        unsafe { libc::mlock2(std::ptr::with_exposed_provenance(start), 2 << 20, libc::MLOCK_ONFAULT) };
    assert_eq!(locked, 0, "{}", std::io::Error::last_os_error());
    for pass in 0..4 {
        for page in (start..start + len).step_by(PAGE) {
            if pass > 0 {
                assert_eq!(word_at(page).load(Relaxed), mix(page as u64 + pass - 1), "{page:#x}");
            }
            word_at(page).store(mix(page as u64 + pass), Relaxed);
        }
    }
}

#[test]
fn memory_that_was_locked_unseen_leaves() {
    if let Err(error) = pager::available() {
        return eprintln!("skipped: memory cannot be paged here ({error})");
    }
    let output = run("locks_memory_unseen", "");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

fn ends(name: &str) {
    if let Err(error) = pager::available() {
        return eprintln!("skipped: memory cannot be paged here ({error})");
    }
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let output = run("pages_while_the_kernel_refuses", name);
    if case.message.is_empty() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    } else {
        assert_ended_by(&output, libc::SIGABRT, case.message);
    }
}

#[test]
fn a_refused_protection_ends_the_process() {
    ["protect", "protect_moved", "protect_huge"].into_iter().for_each(ends);
}

#[test]
fn memory_that_cannot_be_dropped_ends_the_process() {
    ["discard", "discard_mapped", "discard_huge"].into_iter().for_each(ends);
}

#[test]
fn threads_that_cannot_be_woken_end_the_process() {
    ["wake", "wake_huge"].into_iter().for_each(ends);
}

#[test]
fn pages_that_cannot_be_installed_end_the_process() {
    ends("copy");
}

#[test]
fn pages_that_cannot_be_read_end_the_process() {
    ["read", "ring_and_read"].into_iter().for_each(ends);
}

#[test]
fn handlers_that_are_not_told_of_faults_end_the_process() {
    ["sleep", "event"].into_iter().for_each(ends);
    // A handler leads only where each processor has a handler.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if (2..=4).contains(&processors) {
        ends("lead");
    }
}

#[test]
fn a_ring_that_is_refused_is_done_without() {
    ["ring", "ring_short_of_memory"].into_iter().for_each(ends);
}

extern "C" fn wait_for_the_end(_: c_int) {
    loop {
        // SAFETY: waits for a signal.
        unsafe { libc::pause() };
    }
}

/// A pool whose memory several threads use until the pool stops. A signal handler then keeps each thread at
/// its access.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn uses_a_pool_while_the_kernel_refuses() {
    let name = std::env::var(CASE).expect("the test that starts it sets it");
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let scratch = Scratch::new(&CreateOptions::new(64 * MIB));
    let pool = scratch.open(16 * MIB);
    let len = 48 * MIB;
    let addr = pool.alloc(len, Lifetime::Permanent).unwrap();
    let words = pool.words(addr, (len / 8) as usize).unwrap();
    (0..).zip(&*words).for_each(|(n, word)| word.store(mix(n), Relaxed));
    pool.sync().unwrap();
    let handler: extern "C" fn(c_int) = wait_for_the_end;
    // SAFETY: the handler only waits, and is for signals of this thread's own accesses.
    unsafe { libc::signal(libc::SIGSEGV, handler as libc::sighandler_t) };
    refuse(case.calls, case.errno);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let words = &words;
            scope.spawn(move || {
                for turn in (0..).map(|turn: u64| mix(turn / 4 * 4 + turn / 64 % 4 * n)) {
                    let at = turn as usize % words.len();
                    let value = words[at].load(Relaxed);
                    assert_eq!(value, mix(at as u64), "word {at}");
                    words[at].store(value, Relaxed);
                }
            });
        }
        let mut bytes = [0; 8];
        loop {
            let results = [pool.sync().map(drop), pool.read(addr, &mut bytes)];
            if results.iter().any(|result| matches!(result, Err(PoolError::Stopped { .. }))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for again in [pool.sync().map(drop), pool.write(addr, &bytes), pool.read(addr, &mut bytes)] {
            assert!(matches!(again, Err(PoolError::Stopped { .. })), "{again:?}");
        }
        // SAFETY: the other threads wait for ever, as intended.
        unsafe { libc::_exit(7) }
    });
}

fn stops(name: &str) {
    if !mappable() {
        return;
    }
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let output = run("uses_a_pool_while_the_kernel_refuses", name);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{}: {text}", output.status);
    let is_it =
        |line: &str| line.starts_with("deepram: the pool has stopped: ") && line.contains(case.message[0]);
    assert!(text.lines().any(is_it), "{name}: {text}");
}

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn uses_a_pool_without_its_rings() {
    let name = std::env::var(CASE).expect("the test that starts it sets it");
    let case = CASES.iter().find(|case| case.name == name).expect("a case of this name");
    let scratch = Scratch::new(&CreateOptions::new(64 * MIB));
    let pool = scratch.open(16 * MIB);
    let len = 48 * MIB;
    let addr = pool.alloc(len, Lifetime::Permanent).unwrap();
    let words = pool.words(addr, (len / 8) as usize).unwrap();
    let set = |add: u64| (0..).zip(&*words).for_each(|(n, word)| word.store(mix(n + add), Relaxed));
    set(0);
    pool.sync().unwrap();
    refuse(case.calls, case.errno);
    for (n, word) in (0..).zip(&*words) {
        assert_eq!(word.load(Relaxed), mix(n), "word {n}");
    }
    set(1);
    pool.sync().unwrap();
    drop(words);
    pool.close().unwrap();
    let pool = scratch.open(16 * MIB);
    let words = pool.words(addr, (len / 8) as usize).unwrap();
    for n in (0..words.len()).map(|n| mix(n as u64) as usize % words.len()).take(100_000) {
        assert_eq!(words[n].load(Relaxed), mix(n as u64 + 1), "word {n}");
    }
}

#[test]
fn a_pool_does_without_rings_that_are_refused() {
    if !mappable() {
        return;
    }
    for name in ["ring", "ring_short_of_memory"] {
        let output = run("uses_a_pool_without_its_rings", name);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}: {text}", output.status);
    }
}

#[test]
fn a_pool_stops_where_its_memory_cannot_be_protected() {
    stops("protect");
}

#[test]
fn a_pool_stops_where_its_memory_cannot_be_dropped() {
    stops("discard");
}

#[test]
fn a_pool_stops_where_threads_cannot_be_woken() {
    stops("wake");
}

#[test]
fn a_pool_stops_where_its_handlers_are_not_told_of_faults() {
    ["sleep", "event"].into_iter().for_each(stops);
}
