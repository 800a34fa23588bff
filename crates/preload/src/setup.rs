//! Reads the options that `deepram run` passes in the environment, and starts the pager with them.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_linux::descriptors::{replace_own, set_own};
use deepram_linux::message::write_line;
use deepram_pager::{Notice, Pager, PagerOptions, SharedBudget};

use crate::library_context::LibraryGuard;
use crate::{code_readahead, descriptors, lazy_start, media, memory, pager_threads};

static PAGER: AtomicPtr<Pager> = AtomicPtr::new(std::ptr::null_mut());
/// Number of the process to which the pager belongs.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The process's pager, once it is started.
#[inline]
pub(crate) fn pager() -> Option<&'static Pager> {
    // SAFETY: null, or a pager that is never freed.
    unsafe { PAGER.load(Ordering::Acquire).as_ref() }
}

/// Makes this the process's pager, for good.
pub(crate) fn install(pager: Pager) {
    replace_own(&pager.descriptors());
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    PAGER.store(Box::into_raw(Box::new(pager)), Ordering::Release);
}

/// Whether this process owns the pager; not so in a child that uses its parent's memory (`vfork`).
pub(crate) fn is_pager_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Prints a message for the user without using the program's streams.
pub(crate) fn report(text: &str) {
    write_line(format_args!("deepram run: {text}"));
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: before the program's own code runs, no thread changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string of the environment, which is not freed.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Reads the options and prepares for paging; called once, before the program's `main`.
pub(crate) fn begin() {
    let _library = LibraryGuard::new();
    if let Some(settings) = variable(c"DEEPRAM_RUN_MEDIA") {
        return media::begin(settings, variable(c"DEEPRAM_RUN_MEDIA_BUS"));
    }
    let Some(dram) = variable(c"DEEPRAM_RUN_DRAM") else { return };
    if under_valgrind() {
        report(
            "under Valgrind memory cannot be paged: Valgrind runs one thread at a time, so no thread would serve the page faults \
             of the running one; run Valgrind without `deepram run`",
        );
        // SAFETY: no code of the program has run yet.
        unsafe { libc::_exit(1) }
    }
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let Some(dram) = number(dram) else {
        return run_unpaged(None, "DEEPRAM_RUN_DRAM is not a number of bytes");
    };
    let path = |text: &[u8]| PathBuf::from(OsStr::from_bytes(text));
    let directory = variable(c"DEEPRAM_RUN_STORE").map_or_else(std::env::temp_dir, path);
    let mut options = PagerOptions::new(dram, directory);
    options.whole_process = true;
    options.pin_faulting_threads = true;
    options.spawn_thread = Some(pager_threads::start);
    options.periodic = Some(pager_threads::exit_if_program_ended);
    if let Some(name) = variable(c"DEEPRAM_RUN_POLICY") {
        match String::from_utf8_lossy(name).parse() {
            Ok(policy) => options.policy = policy,
            Err(error) => {
                return run_unpaged(None, &format!("DEEPRAM_RUN_POLICY: {error}"));
            }
        }
    }
    if let Some(all) = variable(c"DEEPRAM_RUN_WITHOUT") {
        for name in String::from_utf8_lossy(all).split(',') {
            match name.parse() {
                Ok(heuristic) => options = options.without(heuristic),
                Err(error) => return run_unpaged(None, &format!("DEEPRAM_RUN_WITHOUT: {error}")),
            }
        }
    }
    if let Some(limit) = variable(c"DEEPRAM_RUN_LIMIT").and_then(number) {
        options.store_limit = limit;
    }
    options.record_faults_to = variable(c"DEEPRAM_RUN_RECORD").map(path);
    if variable(c"DEEPRAM_RUN_RECORD_ACCESSES").is_some() {
        options = options.recording_accesses();
    }
    let shared = variable(c"DEEPRAM_RUN_SHARED").map(path);
    if let Some(number) = shared.as_deref().and_then(SharedBudget::inherited_number) {
        set_own(number, true);
    }
    if is_main()
        && let Err(error) = descriptors::check_limit()
    {
        return run_unpaged(None, &error);
    }
    *PENDING_OPTIONS.lock().unwrap_or_else(PoisonError::into_inner) = Some((options, shared));
    set_pager_process();
    if variable(c"DEEPRAM_RUN_BOUND_CODE").is_some() {
        code_readahead::bound();
    }
    lazy_start::enable(dram);
}

/// Whether Valgrind is running this program: it loads a library of its own into it.
fn under_valgrind() -> bool {
    const LIBRARY: &[u8] = b"vgpreload_";
    variable(c"LD_PRELOAD").is_some_and(|all| all.windows(LIBRARY.len()).any(|part| part == LIBRARY))
}

/// Whether this process is the program of the run, and not a process that the program has started.
fn is_main() -> bool {
    let main = variable(c"DEEPRAM_RUN_MAIN");
    main.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u32>().ok()) == Some(std::process::id())
}

/// Handles a process whose memory cannot be paged. The program of the run is ended; other processes of the run go on,
/// and the first of them reports it.
fn run_unpaged(budget: Option<&'static SharedBudget>, why: &str) {
    if is_main() {
        report(&format!("the program's memory cannot be paged: {why}"));
        // SAFETY: ends the process at once; nothing of it is used afterwards.
        unsafe { libc::_exit(1) }
    }
    if budget.is_none_or(|budget| budget.is_first_notice(Notice::UnpagedProcess)) {
        let process = std::process::id();
        report(&format!(
            "memory of process {process} cannot be paged: {why}; it runs unpaged, and other such processes of the run do \
             so without a message"
        ));
    }
}

/// Options of the pager, until it is started.
static PENDING_OPTIONS: Mutex<Option<(PagerOptions, Option<PathBuf>)>> = Mutex::new(None);
/// Held while the pager is started, and across a fork.
static START: Mutex<()> = Mutex::new(());

/// Keeps the pager from being started.
pub(crate) fn lock_start() -> MutexGuard<'static, ()> {
    START.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the pager if there is none. Returns the process's pager; `None` if it cannot be started. The caller must be
/// in the library and must not hold the lock of the mappings.
pub(crate) fn start() -> Option<&'static Pager> {
    let _one = lock_start();
    if pager().is_some() {
        return pager();
    }
    let (mut options, path) = PENDING_OPTIONS.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    // Opened even if no pager can be started: the budget shows which notices have been printed in this run.
    options.shared_budget = path.as_deref().and_then(open_shared_budget);
    let budget = options.shared_budget;
    let new =
        descriptors::check_limit().and_then(|()| Pager::new(options).map_err(|error| error.to_string()));
    match new {
        Ok(new) => lazy_start::hand_over(|ranges| {
            for (start, end) in ranges {
                memory::manage_range(&new, *start, end - start, false);
            }
            install(new);
        }),
        Err(error) => {
            lazy_start::disable();
            replace_own(&budget.map_or(Vec::new(), |budget| budget.descriptors().to_vec()));
            run_unpaged(budget, &error);
        }
    }
    pager()
}

/// Records that this process owns the pager; also called in a forked child.
pub(crate) fn set_pager_process() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Opens the budget that all processes of a run share. If that fails, the process has a budget of its own, of the same
/// size.
fn open_shared_budget(path: &Path) -> Option<&'static SharedBudget> {
    match SharedBudget::open(path) {
        Ok(budget) => Some(budget),
        Err(error) => {
            let path = path.display();
            report(&format!("{path}: {error}; this process uses a budget of its own, of the same size"));
            None
        }
    }
}
