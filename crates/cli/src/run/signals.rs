//! Waits for the program's end, and forwards signals that `deepram run` receives to it.

use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

/// Interval at which the end of the program is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the program and waits for its end. Every [`POLL_INTERVAL`] meanwhile it forwards signals and calls `on_poll`.
///
/// # Errors
/// The program cannot be started.
pub(super) fn run_to_end(command: &mut Command, mut on_poll: impl FnMut()) -> anyhow::Result<ExitStatus> {
    let mut signals = SignalForwarder::install()?;
    let mut child = command.spawn().context("starting the program")?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(POLL_INTERVAL);
        signals.forward(&child);
        on_poll();
    }
}

/// Collects the signals of this process. It forwards signals that a process sent; a terminal sends its signals to the program
/// itself.
struct SignalForwarder {
    received: SignalsInfo<WithOrigin>,
}

impl SignalForwarder {
    /// Installs handlers for all of these signals except those that this process ignores (`nohup`). The program inherits an
    /// ignored signal; a handler here would reset it.
    ///
    /// # Errors
    /// /proc cannot be read, or the kernel refuses a handler.
    fn install() -> anyhow::Result<Self> {
        let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
        let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
        let ignored = ignored(&status).context("/proc/self/status has no line SigIgn")?;
        Ok(Self {
            received: SignalsInfo::new(all.iter().filter(|signal| ignored & 1 << (**signal - 1) == 0))?,
        })
    }

    /// Forwards the signals received since the last call.
    fn forward(&mut self, child: &Child) {
        let Some(pid) = Pid::from_raw(child.id().cast_signed()) else { return };
        for signal in self
            .received
            .pending()
            .filter(is_for_program)
            .filter_map(|origin| Signal::from_named_raw(origin.signal))
        {
            // An error means that the program has just ended.
            let _ = kill_process(pid, signal);
        }
    }
}

/// The mask of ignored signals in `/proc/PID/status`.
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Whether the signal must be forwarded: the program has not received it from the terminal.
fn is_for_program(origin: &Origin) -> bool {
    !matches!(origin.signal, SIGINT | SIGQUIT) || !matches!(origin.cause, Cause::Kernel | Cause::Unknown)
}
