//! A program's signals are its own threads' matter: ours take none. A signal that the program has blocked everywhere, to
//! wait for it (`sigwait`, `signalfd`), would else come to one of ours, and a handler there would use memory whose faults
//! the thread itself is to serve.

use std::io;
use std::mem::MaybeUninit;
use std::thread::JoinHandle;

/// All signals of this thread wait until this is dropped, but for the C library's own.
pub struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    /// From now on.
    #[must_use]
    pub fn all() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the calls fill both sets; they fail only for an unknown `how`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is as the kernel gave it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Starts a thread that takes no signals.
pub(crate) fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    stack: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = std::thread::Builder::new().name(name.into());
    let builder = stack.into_iter().fold(builder, std::thread::Builder::stack_size);
    // It begins with its maker's.
    let _blocked = Blocked::all();
    builder.spawn(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("the kernel tells");
        status.lines().find(|line| line.starts_with("SigBlk")).expect("a line of it").to_owned()
    }

    #[test]
    fn a_thread_of_ours_blocks_signals_and_its_maker_does_not() {
        let before = blocked();
        let there =
            spawn("deepram-test", Some(256 << 10), blocked).expect("it starts").join().expect("it ends");
        assert_eq!(blocked(), before);
        // All but 32 and 33, which are the C library's, and those that nobody can block.
        assert_eq!(there, "SigBlk:\tfffffffe7ffbfeff");
    }
}
