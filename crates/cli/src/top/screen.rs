//! The terminal while `deepram top` has it: a screen of its own, keys as they are typed, and all as it was before
//! when the screen is dropped, by an error, a panic or a signal too.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Another screen, no cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Ctrl-C and Ctrl-D, which the terminal passes on as they are.
const END_KEYS: [u8; 4] = [b'q', b'Q', 3, 4];

/// What whoever sits there wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Again,
    End,
}

/// The terminal.
pub(super) struct Screen {
    before: Termios,
    ended: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// Standard input is none.
    pub(super) fn open() -> anyhow::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT]
        {
            signal_hook::flag::register(signal, Arc::clone(&ended))?;
        }
        let before = tcgetattr(io::stdin()).context("the terminal's settings")?;
        let mut ours = before.clone();
        ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Now, &ours).context("the terminal's settings")?;
        let screen = Self { before, ended };
        write(ENTER)?;
        Ok(screen)
    }

    /// Shows these lines, cut to what there is room for.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()));
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().take(rows).enumerate() {
            if n > 0 {
                text.push_str("\r\n");
            }
            // Nothing of a program's name is to reach the terminal as a command.
            text.extend(line.chars().map(|c| if c.is_control() { '?' } else { c }).take(columns));
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        write(&text)
    }

    /// Waits so long, or until somebody wants something.
    pub(super) fn wait(&self, time: Duration) -> io::Result<Wish> {
        let end = Instant::now() + time;
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return Ok(Wish::End);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Wish::Again);
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
            // Nothing to be read: the terminal has gone.
            if count == 0 || keys[..count].iter().any(|key| END_KEYS.contains(key)) {
                return Ok(Wish::End);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that takes no settings any more has gone.
        let _ = write(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
