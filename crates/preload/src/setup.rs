//! What `deepram run` asks of the processes that it starts, and the pager made of it.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pool::descriptors::{keep_only, note};
use deepram_pool::message::write_line;
use deepram_pool::pager::{Notice, Pager, PagerOptions, SharedBudget};

use crate::inside::Inside;
use crate::{descriptors, early, helpers, malloc, memory};

static PAGER: AtomicPtr<Pager> = AtomicPtr::new(std::ptr::null_mut());
/// Whose pager that is.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The process's pager, once there is one.
#[inline]
pub(crate) fn pager() -> Option<&'static Pager> {
    // SAFETY: null, or a pager that is never freed.
    unsafe { PAGER.load(Ordering::Acquire).as_ref() }
}

/// Makes this the process's pager, for good.
pub(crate) fn install(pager: Pager) {
    keep_only(&pager.descriptors());
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    PAGER.store(Box::into_raw(Box::new(pager)), Ordering::Release);
}

/// Whether this is the pager's process, not a child that uses its memory (`vfork`).
pub(crate) fn is_here() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Says something to the user, once, without touching the program's streams.
pub(crate) fn complain(what: &str) {
    write_line(format_args!("deepram run: {what}"));
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: before the program's own code runs, nobody changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string of the environment, which stays.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Reads the request and acts on it; called once, before the program's `main`.
pub(crate) fn begin() {
    let _inside = Inside::new();
    let Some(dram) = variable(c"DEEPRAM_RUN_DRAM") else { return };
    if under_valgrind() {
        complain(
            "under Valgrind memory cannot be paged: it runs one thread at a time, and so nobody would serve a thread that waits \
             for a page; run Valgrind without `deepram run`",
        );
        // SAFETY: nothing of the program has begun.
        unsafe { libc::_exit(1) }
    }
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let Some(dram) = number(dram) else {
        return unpaged(None, "DEEPRAM_RUN_DRAM is no number of bytes");
    };
    let path = |text: &[u8]| PathBuf::from(OsStr::from_bytes(text));
    let directory = variable(c"DEEPRAM_RUN_STORE").map_or_else(std::env::temp_dir, path);
    let mut options = PagerOptions::new(dram, directory);
    options.whole = true;
    options.keep = true;
    options.spawn = Some(helpers::start);
    options.look = Some(helpers::look);
    if let Some(name) = variable(c"DEEPRAM_RUN_POLICY") {
        match String::from_utf8_lossy(name).parse() {
            Ok(policy) => options.policy = policy,
            Err(error) => {
                return unpaged(None, &format!("DEEPRAM_RUN_POLICY: {error}"));
            }
        }
    }
    if let Some(limit) = variable(c"DEEPRAM_RUN_LIMIT").and_then(number) {
        options.store_limit = limit;
    }
    options.record = variable(c"DEEPRAM_RUN_RECORD").map(path);
    let shared = variable(c"DEEPRAM_RUN_SHARED").map(path);
    if let Some(number) = shared.as_deref().and_then(SharedBudget::inherited_number) {
        note(number, true);
    }
    if is_main()
        && let Err(error) = descriptors::suffice()
    {
        return unpaged(None, &error);
    }
    *WANTED.lock().unwrap_or_else(PoisonError::into_inner) = Some((options, shared));
    moved();
    malloc::use_arenas(false);
    early::begin(dram);
}

/// Whether this program is being run by Valgrind, which loads a library of its own into it.
fn under_valgrind() -> bool {
    const LIBRARY: &[u8] = b"vgpreload_";
    variable(c"LD_PRELOAD").is_some_and(|all| all.windows(LIBRARY.len()).any(|part| part == LIBRARY))
}

/// Whether this process is the program of the run, and none that it has started.
fn is_main() -> bool {
    let main = variable(c"DEEPRAM_RUN_MAIN");
    main.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u32>().ok()) == Some(std::process::id())
}

/// Memory of this process cannot be paged. The program of the run ends then; other processes of the run go on, and the first of
/// them says so.
fn unpaged(budget: Option<&'static SharedBudget>, why: &str) {
    if is_main() {
        complain(&format!("the program's memory cannot be paged: {why}"));
        // SAFETY: ends the process at once; nothing of it is used afterwards.
        unsafe { libc::_exit(1) }
    }
    if budget.is_none_or(|budget| budget.is_news(Notice::Unpaged)) {
        let process = std::process::id();
        complain(&format!(
            "memory of process {process} cannot be paged: {why}; it runs without, and others like it without a word"
        ));
    }
}

/// What the pager is made of, until it is made.
static WANTED: Mutex<Option<(PagerOptions, Option<PathBuf>)>> = Mutex::new(None);
/// Held while the pager is started, and across a fork.
static START: Mutex<()> = Mutex::new(());

/// Keeps the pager from being started.
pub(crate) fn hold() -> MutexGuard<'static, ()> {
    START.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process's pager, which is started if there is none; none if it cannot be. Whoever calls is inside, and has no marks.
pub(crate) fn start() -> Option<&'static Pager> {
    let _one = hold();
    if pager().is_some() {
        return pager();
    }
    let (mut options, path) = WANTED.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    // Also where there is no pager: what is said once a run is known there.
    options.shared = path.as_deref().and_then(shared);
    let budget = options.shared;
    let new = descriptors::suffice().and_then(|()| Pager::new(options).map_err(|error| error.to_string()));
    malloc::use_arenas(true);
    match new {
        Ok(new) => early::hand_over(|early| {
            for (start, end) in early {
                memory::manage_what(&new, *start, end - start, false);
            }
            install(new);
        }),
        Err(error) => {
            early::give_up();
            keep_only(&budget.map_or(Vec::new(), |budget| budget.descriptors().to_vec()));
            unpaged(budget, &error);
        }
    }
    pager()
}

/// The process is the one that has the pager: in a forked child as well.
pub(crate) fn moved() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// The budget that all processes of a run share. Without it the process has one of its own, as large.
fn shared(path: &Path) -> Option<&'static SharedBudget> {
    match SharedBudget::open(path) {
        Ok(budget) => Some(budget),
        Err(error) => {
            let path = path.display();
            complain(&format!(
                "{path}: {error}; this process has a budget of its own, as large as the run's"
            ));
            None
        }
    }
}
