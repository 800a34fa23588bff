//! What `deepram run` asks of the processes that it starts, and the pager made of it.

use std::ffi::{CStr, OsStr};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use deepram_pool::pager::{Pager, PagerOptions, SharedBudget};

use crate::descriptors::{self, aloft};
use crate::inside::{self, Inside};

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
    descriptors::protect(&pager.descriptors());
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    PAGER.store(Box::into_raw(Box::new(pager)), Ordering::Release);
}

/// Whether this is the pager's process, not a child that uses its memory (`vfork`).
pub(crate) fn is_here() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Says something to the user, once, without touching the program's streams.
pub(crate) fn complain(what: &str) {
    // Without memory from anywhere: whoever says it may be on a stack that is paged.
    let mut text = [0; 512];
    let mut rest = &mut text[..];
    let _ = writeln!(rest, "deepram run: {what}");
    let len = 512 - rest.len();
    // There is nobody to tell if this fails.
    let _ = std::io::stderr().write_all(&text[..len]);
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
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let Some(dram) = number(dram) else {
        complain("DEEPRAM_RUN_DRAM is no number of bytes; the program runs without paging");
        return;
    };
    let path = |text: &[u8]| PathBuf::from(OsStr::from_bytes(text));
    let directory = variable(c"DEEPRAM_RUN_STORE").map_or_else(std::env::temp_dir, path);
    let mut options = PagerOptions::new(dram, directory);
    options.whole = true;
    options.keep = true;
    options.on_thread = Some(inside::for_good);
    options.on_descriptor = Some(descriptors::note);
    if let Some(name) = variable(c"DEEPRAM_RUN_POLICY") {
        match String::from_utf8_lossy(name).parse() {
            Ok(policy) => options.policy = policy,
            Err(error) => {
                complain(&format!("DEEPRAM_RUN_POLICY: {error}; the program runs without paging"));
                return;
            }
        }
    }
    if let Some(limit) = variable(c"DEEPRAM_RUN_LIMIT").and_then(number) {
        options.store_limit = limit;
    }
    options.shared = variable(c"DEEPRAM_RUN_SHARED").and_then(|text| aloft(|| shared(&path(text))));
    options.record = variable(c"DEEPRAM_RUN_RECORD").map(path);
    let pager = descriptors::suffice()
        .and_then(|()| inside::starting(|| aloft(|| Pager::new(options))).map_err(|error| error.to_string()));
    match pager {
        Ok(pager) => install(pager),
        Err(error) => complain(&format!("memory cannot be paged here ({error}); the program runs without")),
    }
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
