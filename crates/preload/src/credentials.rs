//! Functions that change the process's user or groups. The C library changes these for all threads that it knows; the pager's threads
//! get the rights that the caller then has, capabilities that it kept included, so that no thread has more than the program.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use libc::{c_char, c_int, c_void, gid_t, siginfo_t, size_t, uid_t};

use crate::inside::enter;
use crate::kernel::{self, Action};
use crate::memory::pager;
use crate::next::stand_before;
use crate::stacks::aside;
use crate::{dispatch, helpers, setup};

/// The C library's own signal for the same purpose, which programs cannot use.
pub(crate) const SIGNAL: c_int = 33;
/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// What a thread may do. Numbers of users and groups are the real, the effective and the saved one.
struct Rights {
    users: [u32; 3],
    groups: [u32; 3],
    others: Vec<u32>,
    capabilities: Capabilities,
}

/// Effective, permitted and inheritable ones, in two halves.
type Capabilities = [[u32; 3]; 2];

/// A thread hands on its rights. No mutex: a forked child resets it.
static BUSY: AtomicBool = AtomicBool::new(false);
static RIGHTS: AtomicPtr<Rights> = AtomicPtr::new(std::ptr::null_mut());
/// What the signal does otherwise, while it is in use.
static BEFORE: AtomicPtr<Action> = AtomicPtr::new(std::ptr::null_mut());
/// Threads of the pager that have them, and how many of these have not got them all.
static DONE: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);

fn capabilities(number: libc::c_long, all: &mut Capabilities) -> isize {
    let head = [VERSION, 0];
    kernel::raw(number, [head.as_ptr().addr(), all.as_mut_ptr().addr(), 0, 0, 0, 0])
}

fn three(number: libc::c_long) -> [u32; 3] {
    let mut all = [0_u32; 3];
    let [a, b, c] = all.each_mut().map(|one| std::ptr::from_mut(one).addr());
    kernel::raw(number, [a, b, c, 0, 0, 0]);
    all
}

fn set_three(number: libc::c_long, [a, b, c]: [u32; 3]) -> isize {
    kernel::raw(number, [a as usize, b as usize, c as usize, 0, 0, 0])
}

/// The other groups of the calling thread.
fn others() -> Vec<u32> {
    let count = kernel::raw(libc::SYS_getgroups, [0; 6]);
    let mut all = vec![0_u32; usize::try_from(count).unwrap_or(0)];
    kernel::raw(libc::SYS_getgroups, [all.len(), all.as_mut_ptr().addr(), 0, 0, 0, 0]);
    all
}

/// Whether these are the other groups of the calling thread. No memory is allocated: the thread may be about that. Of more than
/// a few it is not known.
fn has_others(wanted: &[u32]) -> bool {
    let mut all = [0_u32; 64];
    let count = kernel::raw(libc::SYS_getgroups, [all.len(), all.as_mut_ptr().addr(), 0, 0, 0, 0]);
    usize::try_from(count).is_ok_and(|count| all[..count] == *wanted)
}

impl Rights {
    /// Those of the calling thread.
    fn own() -> Self {
        let mut all = Capabilities::default();
        capabilities(libc::SYS_capget, &mut all);
        let [users, groups] = [libc::SYS_getresuid, libc::SYS_getresgid].map(three);
        Self { users, groups, others: others(), capabilities: all }
    }

    /// Makes them the calling thread's, whose rights are those that their owner had before. Whether it has them all.
    fn adopt(&self) -> bool {
        let mut own = Capabilities::default();
        capabilities(libc::SYS_capget, &mut own);
        // What the owner may have made effective in between.
        own.iter_mut().for_each(|[effective, permitted, _]| *effective = *permitted);
        capabilities(libc::SYS_capset, &mut own);
        // A new user would take all of them away.
        kernel::raw(libc::SYS_prctl, [libc::PR_SET_KEEPCAPS as usize, 1, 0, 0, 0, 0]);
        let others = has_others(&self.others) || {
            let list = [self.others.len(), self.others.as_ptr().addr(), 0, 0, 0, 0];
            kernel::raw(libc::SYS_setgroups, list) == 0
        };
        let groups = set_three(libc::SYS_setresgid, self.groups) == 0;
        let users = set_three(libc::SYS_setresuid, self.users) == 0;
        let mut all = self.capabilities;
        others && groups && users && capabilities(libc::SYS_capset, &mut all) == 0
    }
}

/// In a thread of the pager.
extern "C" fn take(_: c_int, _: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: of the thread that hands them on, which waits for this one.
    let rights = unsafe { RIGHTS.load(Acquire).as_ref() };
    if !rights.is_none_or(Rights::adopt) {
        FAILED.fetch_add(1, Relaxed);
    }
    DONE.fetch_add(1, Release);
}

/// Gives the caller's rights to all threads of the pager.
fn hand_on() {
    while BUSY.swap(true, Acquire) {
        std::thread::yield_now();
    }
    let mut rights = Rights::own();
    RIGHTS.store(&raw mut rights, Release);
    DONE.store(0, Relaxed);
    let handler = take as extern "C" fn(c_int, *mut siginfo_t, *mut c_void) as usize;
    let ours = dispatch::action(handler, libc::SA_RESTART);
    let mut before = kernel::action(SIGNAL);
    BEFORE.store(&raw mut before, Release);
    kernel::set_action(SIGNAL, &ours);
    let told = helpers::tell_all(SIGNAL);
    while DONE.load(Acquire) < told {
        std::thread::yield_now();
    }
    restore(&ours, &before);
    BEFORE.store(std::ptr::null_mut(), Release);
    BUSY.store(false, Release);
    if FAILED.swap(0, Relaxed) > 0 {
        setup::complain(
            "a thread of deepram's has other rights than the program, which has changed its user",
        );
    }
}

/// In a forked child: a thread of its parent may have been at it.
pub(crate) fn forget() {
    // SAFETY: on the stack of that thread, which is not here: what it has left behind is not used for anything else yet.
    let before = unsafe { BEFORE.swap(std::ptr::null_mut(), Relaxed).as_ref() };
    if let Some(before) = before {
        kernel::set_action(SIGNAL, before);
    }
    BUSY.store(false, Relaxed);
}

/// Gives the signal back to the C library, which may have begun to use it meanwhile.
fn restore(ours: &Action, before: &Action) {
    let found = kernel::set_action(SIGNAL, before);
    if found.handler != ours.handler {
        kernel::set_action(SIGNAL, &found);
    }
}

fn change(call: impl FnOnce() -> c_int + 'static) -> c_int {
    if pager().is_none() || !setup::is_here() {
        return call();
    }
    // The C library has the other threads look at the caller's stack.
    aside(|| {
        let result = call();
        if result == 0 {
            enter(hand_on);
        }
        result
    })
}

stand_before! {
    change;
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
