//! Functions that change the user or the groups of the process. The C library changes the credentials of all threads
//! that it knows; this module gives the pager's threads the credentials that the caller then has, including
//! capabilities that it kept, so that no thread has more rights than the program.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use libc::{c_char, c_int, c_void, gid_t, siginfo_t, size_t, uid_t};

use crate::kernel::{self, Action};
use crate::libc_symbols::interpose;
use crate::library_context::enter_library;
use crate::memory::pager;
use crate::stacks::on_unpaged_stack;
use crate::{pager_threads, setup, syscall_dispatch};

/// The signal that the C library uses for the same purpose; programs cannot use it.
pub(crate) const SETXID_SIGNAL: c_int = 33;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The credentials of a thread. IDs of users and groups are the real, the effective and the saved one.
struct Credentials {
    users: [u32; 3],
    groups: [u32; 3],
    supplementary: Vec<u32>,
    capabilities: Capabilities,
}

/// Effective, permitted and inheritable sets, in two halves.
type Capabilities = [[u32; 3]; 2];

/// Set while a thread propagates its credentials. Not a mutex, because a forked child resets it.
static BUSY: AtomicBool = AtomicBool::new(false);
static CREDENTIALS: AtomicPtr<Credentials> = AtomicPtr::new(std::ptr::null_mut());
/// The signal's previous action, while the signal is in use here.
static SAVED_ACTION: AtomicPtr<Action> = AtomicPtr::new(std::ptr::null_mut());
/// Number of pager threads that have handled the signal, and of those that could not adopt all credentials.
static DONE: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);

fn capabilities(number: libc::c_long, all: &mut Capabilities) -> isize {
    let head = [CAPABILITY_VERSION, 0];
    kernel::raw(number, [head.as_ptr().addr(), all.as_mut_ptr().addr(), 0, 0, 0, 0])
}

fn get_ids(number: libc::c_long) -> [u32; 3] {
    let mut all = [0_u32; 3];
    let [a, b, c] = all.each_mut().map(|one| std::ptr::from_mut(one).addr());
    kernel::raw(number, [a, b, c, 0, 0, 0]);
    all
}

fn set_ids(number: libc::c_long, [a, b, c]: [u32; 3]) -> isize {
    kernel::raw(number, [a as usize, b as usize, c as usize, 0, 0, 0])
}

/// The supplementary groups of the calling thread.
fn supplementary() -> Vec<u32> {
    let count = kernel::raw(libc::SYS_getgroups, [0; 6]);
    let mut all = vec![0_u32; usize::try_from(count).unwrap_or(0)];
    kernel::raw(libc::SYS_getgroups, [all.len(), all.as_mut_ptr().addr(), 0, 0, 0, 0]);
    all
}

/// Whether the calling thread has exactly these supplementary groups. Allocates no memory: the signal may have
/// interrupted an allocation. Returns `false` if there are too many groups to compare.
fn has_supplementary(wanted: &[u32]) -> bool {
    let mut all = [0_u32; 64];
    let count = kernel::raw(libc::SYS_getgroups, [all.len(), all.as_mut_ptr().addr(), 0, 0, 0, 0]);
    usize::try_from(count).is_ok_and(|count| all[..count] == *wanted)
}

impl Credentials {
    /// The credentials of the calling thread.
    fn of_caller() -> Self {
        let mut all = Capabilities::default();
        capabilities(libc::SYS_capget, &mut all);
        let [users, groups] = [libc::SYS_getresuid, libc::SYS_getresgid].map(get_ids);
        Self { users, groups, supplementary: supplementary(), capabilities: all }
    }

    /// Makes these the credentials of the calling thread, which must have those that their owner had before. Returns
    /// whether all could be set.
    fn adopt(&self) -> bool {
        let mut own = Capabilities::default();
        capabilities(libc::SYS_capget, &mut own);
        // The owner may have made permitted capabilities effective in between.
        own.iter_mut().for_each(|[effective, permitted, _]| *effective = *permitted);
        capabilities(libc::SYS_capset, &mut own);
        // Changing the user would otherwise drop all capabilities.
        kernel::raw(libc::SYS_prctl, [libc::PR_SET_KEEPCAPS as usize, 1, 0, 0, 0, 0]);
        let supplementary = has_supplementary(&self.supplementary) || {
            let list = [self.supplementary.len(), self.supplementary.as_ptr().addr(), 0, 0, 0, 0];
            kernel::raw(libc::SYS_setgroups, list) == 0
        };
        let groups = set_ids(libc::SYS_setresgid, self.groups) == 0;
        let users = set_ids(libc::SYS_setresuid, self.users) == 0;
        let mut all = self.capabilities;
        supplementary && groups && users && capabilities(libc::SYS_capset, &mut all) == 0
    }
}

/// The signal's handler, in a thread of the pager.
extern "C" fn handle_signal(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the credentials belong to the thread that propagates them, which waits for this one.
    let credentials = unsafe { CREDENTIALS.load(Acquire).as_ref() };
    if !credentials.is_none_or(Credentials::adopt) {
        FAILED.fetch_add(1, Relaxed);
    }
    DONE.fetch_add(1, Release);
}

/// Gives the caller's credentials to all threads of the pager, which no longer reads its parent's memory.
fn propagate() {
    if let Some(pager) = setup::pager() {
        pager.close_parent_memory();
    }
    while BUSY.swap(true, Acquire) {
        std::thread::yield_now();
    }
    let mut credentials = Credentials::of_caller();
    CREDENTIALS.store(&raw mut credentials, Release);
    DONE.store(0, Relaxed);
    let handler = handle_signal as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
    let ours = syscall_dispatch::handler_action(handler, libc::SA_RESTART);
    let mut saved = kernel::signal_action(SETXID_SIGNAL);
    SAVED_ACTION.store(&raw mut saved, Release);
    kernel::set_action(SETXID_SIGNAL, &ours);
    let signalled = pager_threads::signal_all(SETXID_SIGNAL);
    while DONE.load(Acquire) < signalled {
        std::thread::yield_now();
    }
    restore_action(&ours, &saved);
    SAVED_ACTION.store(std::ptr::null_mut(), Release);
    BUSY.store(false, Release);
    if FAILED.swap(0, Relaxed) > 0 {
        setup::report(
            "a thread of the pager could not adopt the program's new user, groups and capabilities",
        );
    }
}

/// Resets the state in a forked child: a thread of its parent may have been propagating.
pub(crate) fn reset_in_child() {
    // SAFETY: on the stack of the propagating thread, which does not exist in the child: its stack is not used for
    // anything else yet.
    let saved = unsafe { SAVED_ACTION.swap(std::ptr::null_mut(), Relaxed).as_ref() };
    if let Some(saved) = saved {
        kernel::set_action(SETXID_SIGNAL, saved);
    }
    BUSY.store(false, Relaxed);
}

/// Returns the signal to the C library, which may have begun to use it meanwhile.
fn restore_action(ours: &Action, saved: &Action) {
    let found = kernel::set_action(SETXID_SIGNAL, saved);
    if found.handler != ours.handler {
        kernel::set_action(SETXID_SIGNAL, &found);
    }
}

fn change_credentials(call: impl FnOnce() -> c_int + 'static) -> c_int {
    if pager().is_none() || !setup::is_pager_process() {
        return call();
    }
    // The C library makes the other threads read the caller's stack.
    on_unpaged_stack(|| {
        let result = call();
        if result == 0 {
            enter_library(propagate);
        }
        result
    })
}

interpose! {
    change_credentials;
    setuid(user: uid_t) -> c_int, else -1;
    seteuid(user: uid_t) -> c_int, else -1;
    setreuid(real: uid_t, effective: uid_t) -> c_int, else -1;
    setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int, else -1;
    setgid(group: gid_t) -> c_int, else -1;
    setegid(group: gid_t) -> c_int, else -1;
    setregid(real: gid_t, effective: gid_t) -> c_int, else -1;
    setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int, else -1;
    setgroups(count: size_t, list: *const gid_t) -> c_int, else -1;
    initgroups(user: *const c_char, group: gid_t) -> c_int, else -1;
}
