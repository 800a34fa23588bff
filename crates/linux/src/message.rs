//! Messages on standard error, written without allocation and without locks: the calling thread may run on a paged
//! stack, may hold the lock of standard error, or may be the thread that has to serve page faults.
//!
//! Rule for libraries of this workspace: a library prints nothing by itself, except when the process is about to end or
//! when memory is at stake (data stays in DRAM beyond the budget, or memory is not paged). Such messages go through
//! [`write_line`]. All other conditions are errors or counters for the caller.

use std::fmt::{self, Write};
use std::io;

/// Longest message in bytes, including the end of line.
const LEN: usize = 512;

struct Line {
    bytes: [u8; LEN],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is reserved for the end of line; text that does not fit is cut off.
        let n = text.len().min(LEN - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

fn line(text: fmt::Arguments<'_>) -> Line {
    let mut line = Line { bytes: [0; LEN], len: 0 };
    // Formatting fails only in a value's own `Display`; the line then holds the text before that value.
    let _ = line.write_fmt(text);
    line.bytes[line.len] = b'\n';
    line.len += 1;
    line
}

/// Writes one line to standard error.
pub fn write_line(text: fmt::Arguments<'_>) {
    let line = line(text);
    let mut rest = &line.bytes[..line.len];
    while !rest.is_empty() {
        // SAFETY: the call reads bytes that outlive it.
        let n = unsafe { libc::syscall(libc::SYS_write, 2, rest.as_ptr(), rest.len()) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => rest = &rest[n..],
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            // Standard error does not accept the message, and there is no other place to report it.
            _ => return,
        }
    }
}

/// Ends the process by SIGABRT. The program's own signal handler does not run: it may use memory whose faults the
/// calling thread would have to serve.
pub fn abort() -> ! {
    // The kernel's `sigaction` structure: SIG_DFL, no flags, empty mask.
    let (default, abort) = ([0_u64; 4], 1_u64 << (libc::SIGABRT - 1));
    // SAFETY: the calls read structures that outlive them. The calls are made by number because the C library's `abort`
    // takes a lock, which another thread may hold while it waits for a page fault.
    unsafe {
        let none = std::ptr::null_mut::<u64>();
        libc::syscall(libc::SYS_rt_sigaction, libc::SIGABRT, default.as_ptr(), none, 8);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_UNBLOCK, &raw const abort, none, 8);
        let (process, thread) = (libc::syscall(libc::SYS_getpid), libc::syscall(libc::SYS_gettid));
        libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGABRT);
        // The kernel ignores the signal for the first process of a PID namespace.
        libc::_exit(128 + libc::SIGABRT)
    }
}

/// Shows an I/O error without allocation: an error of the system by its name and number.
pub struct ShownError<'a>(pub &'a io::Error);

impl fmt::Display for ShownError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(errno) = self.0.raw_os_error() else { return self.0.fmt(f) };
        let name = match errno {
            libc::EPERM => "EPERM, ",
            libc::ENOENT => "ENOENT, ",
            libc::ESRCH => "ESRCH, ",
            libc::EINTR => "EINTR, ",
            libc::EIO => "EIO, ",
            libc::ENXIO => "ENXIO, ",
            libc::EBADF => "EBADF, ",
            libc::EAGAIN => "EAGAIN, ",
            libc::ENOMEM => "ENOMEM, ",
            libc::EACCES => "EACCES, ",
            libc::EFAULT => "EFAULT, ",
            libc::EBUSY => "EBUSY, ",
            libc::EEXIST => "EEXIST, ",
            libc::ENODEV => "ENODEV, ",
            libc::EINVAL => "EINVAL, ",
            libc::ENOSPC => "ENOSPC, ",
            libc::ENOSYS => "ENOSYS, ",
            libc::EOPNOTSUPP => "EOPNOTSUPP, ",
            libc::ESTALE => "ESTALE, ",
            libc::EREMOTEIO => "EREMOTEIO, ",
            _ => "",
        };
        write!(f, "{name}errno {errno}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_whole_however_long_it_is() {
        for len in [0, 5, LEN - 2, LEN - 1, LEN, 2 * LEN] {
            let line = line(format_args!("{}", "x".repeat(len)));
            let text = &line.bytes[..line.len];
            assert_eq!(text.len(), len.min(LEN - 1) + 1);
            assert_eq!(text.iter().position(|byte| *byte == b'\n'), Some(text.len() - 1));
        }
    }

    #[test]
    fn an_error_of_the_system_has_its_name_and_number() {
        let show = |error: io::Error| ShownError(&error).to_string();
        assert_eq!(show(io::Error::from_raw_os_error(5)), "EIO, errno 5");
        assert_eq!(show(io::Error::from_raw_os_error(4000)), "errno 4000");
        assert_eq!(show(io::ErrorKind::UnexpectedEof.into()), "unexpected end of file");
    }
}
