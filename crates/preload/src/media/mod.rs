//! Makes the program's memory behave like slower, persistent memory (`deepram run --media`; emulator of the NVMM application
//! study, section II). Memory is not paged meanwhile.
//!
//! | module | what it does |
//! |---|---|
//! | `stall` | looks at windows of each thread's instructions and stalls the thread: read latency and bandwidth |
//! | `threads` | the timer of each thread, which counts its processor time |
//! | [`sync`] | `msync`, `fsync`: flush the lines of mapped files, then a barrier |
//! | `files`, `dirty` | which files are mapped where, and their dirty pages |

mod dirty;
mod files;
mod spin_lock;
mod stall;
pub mod sync;
mod threads;

use std::str::FromStr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use deepram_linux::flush::{Flusher, Method};
use deepram_linux::slow_memory::Machine;

pub(crate) use files::{note_mapped, note_moved, note_unmapped};
pub(crate) use threads::{ThreadTimer, with_timer};

use crate::{fork, setup};

/// How the memory of this process behaves.
#[derive(Debug)]
struct Settings {
    flusher: Flusher,
    selective: bool,
    speed: Option<Speed>,
}

/// What the stalls of the threads follow from.
#[derive(Debug, Clone, Copy)]
struct Speed {
    machine: Machine,
    /// Emulated read latency, picoseconds.
    read_ps: u64,
    /// Time of a line under the cap of the bandwidth, picoseconds; 0 without a cap.
    line_ps: u64,
}

impl FromStr for Settings {
    type Err = String;

    /// Reads what `deepram run` writes: keys and values with spaces between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let (mut flush, mut barrier, mut selective) = (Method::Clflush, Duration::ZERO, false);
        let (mut machine, mut read_ps, mut line_ps) = (None, None, 0);
        for word in text.split(' ') {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("\"{word}\" is not KEY=VALUE"))?;
            let number = || value.parse::<u64>().map_err(|error| format!("{key}: {error}"));
            match key {
                "flush" => flush = value.parse().map_err(|error| format!("{error}"))?,
                "wbarrier_ns" => barrier = Duration::from_nanos(number()?),
                "selective" => selective = value == "on",
                "machine" => machine = Some(value.parse::<Machine>()?),
                "read_ps" => read_ps = Some(number()?),
                "line_ps" => line_ps = number()?,
                _ => return Err(format!("unknown key {key}")),
            }
        }
        let flusher = Flusher::new(flush).map_err(|error| error.to_string())?.with_barrier(barrier);
        let speed =
            machine.map(|machine| Speed { machine, read_ps: read_ps.unwrap_or(machine.memory_ps), line_ps });
        Ok(Self { flusher, selective, speed })
    }
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(std::ptr::null_mut());

fn settings() -> Option<&'static Settings> {
    // SAFETY: null, or settings that are never freed.
    unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }
}

/// Whether the memory of this process is emulated.
pub(crate) fn is_enabled() -> bool {
    !SETTINGS.load(Ordering::Relaxed).is_null()
}

/// Begins with the settings of the environment; called once, before the program's `main`. `bus` is the file with the clock that
/// all processes of the run share.
pub(crate) fn begin(text: &[u8], bus: Option<&[u8]>) {
    let text = String::from_utf8_lossy(text);
    let settings: Settings = match text.parse() {
        Ok(settings) => settings,
        Err(error) => fail(&format!("DEEPRAM_RUN_MEDIA=\"{text}\": {error}")),
    };
    let speed = settings.speed;
    SETTINGS.store(Box::into_raw(Box::new(settings)), Ordering::Release);
    fork::register_handlers();
    // SAFETY: the functions exist as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
    if let Some(speed) = speed
        && let Err(error) = stall::begin(speed, bus)
    {
        fail(&error);
    }
}

/// Ends the process, whose memory would not be as its user asked.
fn fail(why: &str) -> ! {
    setup::report(&format!("the memory cannot be emulated: {why}"));
    // SAFETY: no code of the program has run yet.
    unsafe { libc::_exit(1) }
}

extern "C" fn before_fork() {
    dirty::lock_for_fork();
    files::lock_for_fork();
}

extern "C" fn after_fork() {
    files::unlock_after_fork();
    dirty::unlock_after_fork();
}

extern "C" fn after_fork_in_child() {
    after_fork();
    dirty::begin_in_child();
    threads::begin_thread();
}
