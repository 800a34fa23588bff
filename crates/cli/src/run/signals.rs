//! Signals that are the program's to decide about.

use std::process::Child;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Signals that have come to this process. Those that a process has sent are passed on; a terminal sends its own to the program
/// as well.
pub(super) struct Signals {
    came: SignalsInfo<WithOrigin>,
}

impl Signals {
    /// Takes all of them from now on, but for those that this process ignores (`nohup`): the program is to ignore them too, and
    /// would not if they had a handler here.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn watch() -> anyhow::Result<Self> {
        let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
        let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
        let ignored = ignored(&status).context("/proc/self/status: no line SigIgn")?;
        Ok(Self { came: SignalsInfo::new(all.iter().filter(|signal| ignored & 1 << (**signal - 1) == 0))? })
    }

    /// Sends the program what has come since.
    pub(super) fn pass_on(&mut self, child: &Child) {
        let Some(pid) = Pid::from_raw(child.id().cast_signed()) else { return };
        for signal in self
            .came
            .pending()
            .filter(is_for_program)
            .filter_map(|origin| Signal::from_named_raw(origin.signal))
        {
            // It may have ended just now.
            let _ = kill_process(pid, signal);
        }
    }
}

/// A bit for each signal that is ignored, of what the kernel says of a process.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Whether the program has not had it from the terminal already.
fn is_for_program(origin: &Origin) -> bool {
    !matches!(origin.signal, SIGINT | SIGQUIT) || !matches!(origin.cause, Cause::Kernel | Cause::Unknown)
}
