//! The terminal of `deepram top`: alternate screen and unbuffered keys. Dropping [`Terminal`] restores the terminal, also
//! after an error, a panic or a signal.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Enters the alternate screen without a cursor; and leaves it.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Keys that end the command: q, Ctrl-C and Ctrl-D. The terminal does not interpret them.
const QUIT_KEYS: [u8; 4] = [b'q', b'Q', 3, 4];

/// What to do after a wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UserAction {
    Refresh,
    Quit,
}

/// The terminal, which this process controls until the value is dropped.
pub(super) struct Terminal {
    /// Settings to restore.
    original: Termios,
    /// Set by SIGTERM, SIGHUP or SIGINT.
    interrupted: Arc<AtomicBool>,
}

impl Terminal {
    /// Switches the terminal to the alternate screen.
    ///
    /// # Errors
    /// Standard input is not a terminal.
    pub(super) fn open() -> anyhow::Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT]
        {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let original = tcgetattr(io::stdin()).context("terminal settings")?;
        let mut ours = original.clone();
        ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Now, &ours).context("terminal settings")?;
        let terminal = Self { original, interrupted };
        write(ENTER)?;
        Ok(terminal)
    }

    /// Draws these lines, cut to the size of the terminal.
    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()));
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().take(rows).enumerate() {
            if n > 0 {
                text.push_str("\r\n");
            }
            // A program's name may contain control characters; the terminal must not interpret them.
            text.extend(line.chars().map(|c| if c.is_control() { '?' } else { c }).take(columns));
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    /// Waits for `time`, a key that quits or a signal.
    pub(super) fn wait(&self, time: Duration) -> io::Result<UserAction> {
        let end = Instant::now() + time;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Ok(UserAction::Quit);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(UserAction::Refresh);
            }
            let stdin = io::stdin();
            let mut polled = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
            let timeout =
                Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let mut keys = [0; 64];
            let count = rustix::io::read(&stdin, &mut keys)?;
            // An empty read means that the terminal is closed.
            if count == 0 || keys[..count].iter().any(|key| QUIT_KEYS.contains(key)) {
                return Ok(UserAction::Quit);
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that the terminal is closed.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.original);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
