//! A forked child and the pool that it inherits from its parent: every call in the child is refused, the
//! memory is not mapped, the parent is unaffected, and the lock is released when the parent ends.

use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::calls::{Known, MIB, calls, fill, options};
use crate::own_process::in_own_process;
use crate::scratch::{Scratch, mappable};
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError};

/// Time after which a child, whose work is short, counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exit status of a child whose checks all passed.
const GOOD: i32 = 42;

/// Runs `body` in a forked child. Returns the child's wait status; a child that hangs is an error.
pub(crate) fn in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the C library keeps its allocator usable in a child; the body uses no other lock of this process.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let good = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the child without running any of the parent's exit handlers.
        unsafe { libc::_exit(if good { GOOD } else { 1 }) };
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let mut status = 0;
        // SAFETY: waits for the child made above.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            0 => {
                // SAFETY: ends and reaps the same child.
                unsafe {
                    libc::kill(child, libc::SIGKILL);
                    libc::waitpid(child, &raw mut status, 0);
                }
                panic!("the child hangs");
            }
            _ => return status,
        }
    }
}

pub(crate) fn exited_well(status: i32) -> bool {
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == GOOD
}

fn every_call_is_refused(pool: &Pool, known: &Known) {
    let (opener, here) = (std::os::unix::process::parent_id(), std::process::id());
    let refused = |name: &str, error: &PoolError| {
        let text = error.to_string();
        let names =
            [opener.to_string(), here.to_string(), "forked".into()].iter().all(|part| text.contains(part));
        assert!(matches!(error, PoolError::ForkedChild(_)) && names, "{name} in a child: {text}");
    };
    for (name, call) in calls() {
        refused(name, &call(pool, known).expect_err(name));
    }
    refused("take_errors", &pool.take_errors()[0]);
    refused("close", &pool.clone().close().unwrap_err());
    refused("abandon", &pool.clone().abandon().unwrap_err());
    let _ =
        (pool.stats(), pool.is_mapped(), pool.address_of(std::ptr::null()), pool.is_durable(known.persist));
    assert_eq!(pool.without_pinning(|| 7), 7);
}

fn mappings() -> impl Iterator<Item = Mapping> {
    [Mapping::Off, Mapping::Full].into_iter().filter(|mapping| *mapping == Mapping::Off || mappable())
}

#[test]
fn a_child_is_refused_every_call_and_the_parents_sync_stays() {
    in_own_process!();
    for mapping in mappings() {
        let scratch = Scratch::new(&CreateOptions::new(16 * MIB));
        let pool = Pool::open(&[scratch.path()], &options().mapping(mapping)).unwrap();
        let known = fill(&pool);
        pool.write(known.plain, &[7; 4096]).unwrap();
        let status = in_child(|| every_call_is_refused(&pool, &known));
        assert!(exited_well(status), "{mapping:?}: {status:#x}");
        let token = pool.sync().unwrap();
        // The same with other threads that hold locks and have operations in flight at the fork.
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        pool.write(known.lines, &[8; 64]).unwrap();
                        pool.persist(known.lines, 64).unwrap();
                        pool.sync().unwrap();
                        let _ = (pool.stats(), pool.history().unwrap(), known.log.next_sequence().unwrap());
                    }
                });
            }
            let results: Vec<i32> =
                (0..20).map(|_| in_child(|| every_call_is_refused(&pool, &known))).collect();
            stop.store(true, Relaxed);
            assert!(results.into_iter().all(exited_well), "{mapping:?}");
        });
        pool.abandon().unwrap();
        let pool = Pool::open(&[scratch.path()], &options().mapping(Mapping::Off)).unwrap();
        assert!(pool.history().unwrap().last().unwrap().token >= token);
        let mut bytes = [0; 4096];
        pool.read(known.plain, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 4096], "{mapping:?}: what the parent synced");
    }
}

#[test]
fn a_child_may_drop_what_it_has_inherited() {
    in_own_process!();
    for mapping in mappings() {
        let scratch = Scratch::new(&CreateOptions::new(16 * MIB));
        let pool = Pool::open(&[scratch.path()], &options().mapping(mapping)).unwrap();
        let known = fill(&pool);
        let words = pool.is_mapped().then(|| pool.words(known.plain, 1).unwrap());
        let mut owned = Some((pool, known, words));
        let status = in_child(|| drop(owned.take()));
        assert!(exited_well(status), "{mapping:?}: {status:#x}");
        let (pool, known, _words) = owned.unwrap();
        pool.write(known.plain, &[9; 64]).unwrap();
        pool.close().unwrap();
    }
}

#[test]
fn the_memory_of_a_mapped_pool_is_not_there_in_a_child() {
    in_own_process!();
    if !mappable() {
        return;
    }
    let scratch = Scratch::new(&CreateOptions::new(16 * MIB));
    let pool = Pool::open(&[scratch.path()], &options()).unwrap();
    let known = fill(&pool);
    let words = pool.words(known.plain, 1).unwrap();
    for store in [false, true] {
        let status = in_child(|| {
            if store {
                words[0].store(1, Relaxed)
            } else {
                let _ = words[0].load(Relaxed);
            }
        });
        let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        assert_eq!(signal, Some(libc::SIGSEGV), "store: {store}, status {status:#x}");
    }
    assert_eq!(words[0].load(Relaxed).to_le_bytes(), [4; 8]);
}

#[test]
fn a_child_opens_the_pool_itself_when_the_parent_has_closed_it() {
    in_own_process!();
    for mapping in mappings() {
        let scratch = Scratch::new(&CreateOptions::new(16 * MIB));
        let pool = Pool::open(&[scratch.path()], &options().mapping(mapping)).unwrap();
        let known = fill(&pool);
        let inherited = pool.clone();
        pool.close().unwrap();
        let status = in_child(|| {
            let own = Pool::open(&[scratch.path()], &options().mapping(mapping)).unwrap();
            own.write(known.plain, &[6; 64]).unwrap();
            own.sync().unwrap();
            own.close().unwrap();
            assert!(matches!(inherited.sync(), Err(PoolError::ForkedChild(_))));
        });
        assert!(exited_well(status), "{mapping:?}: {status:#x}");
        let pool = Pool::open(&[scratch.path()], &options().mapping(Mapping::Off)).unwrap();
        let mut bytes = [0; 64];
        pool.read(known.plain, &mut bytes).unwrap();
        assert_eq!(bytes, [6; 64]);
    }
}

/// The parent of the next test: opens the pool, makes children that live on, and works until it is killed.
#[test]
#[allow(clippy::zombie_processes, reason = "this process is killed while the child lives on")]
fn parent_with_children() {
    let Some(path) = std::env::var_os("DEEPRAM_TEST_FORKED") else { return };
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::Off)).unwrap();
    let addr = pool.root("data").unwrap().addr;
    // SAFETY: the child calls only `sleep` and `_exit`.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        // SAFETY: as above.
        unsafe {
            libc::sleep(PATIENCE.as_secs() as u32);
            libc::_exit(0);
        }
    }
    // A child that executes another program.
    let other =
        Command::new("sleep").arg(PATIENCE.as_secs().to_string()).stdout(Stdio::null()).spawn().unwrap();
    println!("\nchildren {forked} {}", other.id());
    std::io::stdout().flush().unwrap();
    for n in 0_u64.. {
        pool.write(addr, &n.to_le_bytes()).unwrap();
        pool.sync().unwrap();
    }
}

#[test]
fn the_lock_goes_with_the_parent_though_its_children_live_on() {
    let scratch = Scratch::new(&CreateOptions::new(MIB));
    let path = scratch.path();
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::Off)).unwrap();
    let addr = pool.alloc(64, Lifetime::Permanent).unwrap();
    pool.set_root("data", addr, 64).unwrap();
    pool.close().unwrap();
    let (mut parent, children) = parent_of(&path);
    assert!(matches!(
        Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::Off)),
        Err(PoolError::Busy { .. })
    ));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let opened = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::Off));
    let alive =
        |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "));
    let alive = children.iter().all(alive);
    for child in children {
        // SAFETY: a signal to a process that the test's own child has made.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    assert!(alive, "the children must live while the pool is opened");
    opened.unwrap().close().unwrap();
}

fn parent_of(path: &Path) -> (std::process::Child, Vec<i32>) {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "forked::parent_with_children", "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_FORKED", path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).find_map(|line| {
        let pids = line.strip_prefix("children ")?;
        pids.split_whitespace().map(|pid| pid.parse().ok()).collect::<Option<Vec<i32>>>()
    });
    (parent, told.expect("the parent must report its children"))
}
