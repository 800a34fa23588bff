//! Problems with a pool's file, before and while it is open: each is an error, and no process hangs or is
//! ended by a signal.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::scratch::{MIB, Scratch};
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn options() -> OpenOptions {
    OpenOptions::new(16 * MIB).mapping(Mapping::Off)
}

/// Runs a test of this file in a process of its own, with this path.
fn alone(test: &str, path: &Path) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("files::{test}"), "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_FILES", path)
        .status()
        .unwrap()
}

fn own_path() -> Option<std::path::PathBuf> {
    std::env::var_os("DEEPRAM_TEST_FILES").map(Into::into)
}

#[test]
fn child_with_a_umask() {
    let Some(path) = own_path() else { return };
    for (n, umask) in [0, 0o022, 0o077, 0o777].into_iter().enumerate() {
        let file = path.join(n.to_string());
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        Pool::create(&[&file], &CreateOptions::new(MIB)).unwrap();
        let mode = file.metadata().unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o600, "umask {umask:o} gives {mode:o}");
        Pool::open(&[&file], &options()).unwrap().close().unwrap();
    }
}

#[test]
fn a_new_file_is_its_owners_whatever_the_umask() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    assert!(alone("child_with_a_umask", dir.path()).success());
}

#[test]
fn child_with_a_limit() {
    let Some(path) = own_path() else { return };
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    let told = |error: &PoolError| {
        let text = error.to_string();
        assert!(text.contains("ulimit -f"), "{text}");
    };
    // While the pool is open: every operation that writes.
    let pool = Pool::open(&[&path], &options()).unwrap();
    let addr = pool.alloc(MIB, Lifetime::Permanent).unwrap();
    pool.create_pmem_region(addr, 64 << 10).unwrap();
    pool.write(addr, &vec![1; MIB as usize]).unwrap();
    limit(Some(0));
    told(&pool.sync().unwrap_err());
    told(&pool.persist(addr, 64).unwrap_err());
    told(&pool.compact(&mut |_, _| {}).err().unwrap_or_else(|| pool.sync().unwrap_err()));
    limit(maximum);
    let token = pool.sync().unwrap();
    limit(Some(MIB));
    pool.abandon().unwrap();
    // Before the pool is opened or created.
    told(&Pool::open(&[&path], &options()).map(drop).unwrap_err());
    assert_eq!(Pool::inspect(&[&path]).unwrap().history().last().unwrap().token, token);
    let new = path.with_extension("new");
    told(&Pool::create(&[&new], &CreateOptions::new(MIB)).unwrap_err());
    assert!(!new.exists());
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_no_signal() {
    let scratch = Scratch::new(&CreateOptions::new(4 * MIB));
    let status = alone("child_with_a_limit", &scratch.path());
    assert!(status.success(), "{status}");
}

#[test]
fn a_file_that_was_removed_makes_syncs_and_persists_fail() {
    let scratch = Scratch::new(&CreateOptions::new(4 * MIB));
    let pool = Pool::open(&[scratch.path()], &options()).unwrap();
    let addr = pool.alloc(MIB, Lifetime::Permanent).unwrap();
    pool.create_pmem_region(addr, 64 << 10).unwrap();
    // Renaming the file has no effect.
    let other = scratch.path().with_extension("moved");
    std::fs::rename(scratch.path(), &other).unwrap();
    pool.write(addr, &[1; 64]).unwrap();
    pool.sync().unwrap();
    std::fs::remove_file(&other).unwrap();
    pool.write(addr, &[2; 64]).unwrap();
    for error in [pool.persist(addr, 64).unwrap_err(), pool.sync().unwrap_err(), pool.close().unwrap_err()] {
        assert!(error.to_string().contains("removed"), "{error}");
    }
}

#[test]
fn a_file_that_was_truncated_makes_syncs_fail_for_good() {
    let scratch = Scratch::new(&CreateOptions::new(4 * MIB));
    let pool = Pool::open(&[scratch.path()], &options()).unwrap();
    let addr = pool.alloc(4 * MIB - (64 << 10), Lifetime::Permanent).unwrap();
    pool.sync().unwrap();
    let len = scratch.path().metadata().unwrap().len();
    for shorter in [len - 1, len / 2, 0] {
        std::fs::OpenOptions::new().write(true).open(scratch.path()).unwrap().set_len(shorter).unwrap();
        // Writes all over the flash, so that the file grows again as far as possible.
        for n in 0..12_u8 {
            pool.write(addr, &vec![n; (4 * MIB - (64 << 10)) as usize]).unwrap();
            let error = pool.sync().unwrap_err();
            assert!(error.to_string().contains("truncated"), "{shorter} bytes, round {n}: {error}");
        }
    }
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [&pipe, &socket, &dir.path().to_owned(), &"/dev/null".into(), &"/dev/tty".into()] {
        for error in [
            Pool::inspect(&[path]).map(drop).unwrap_err(),
            Pool::open(&[path], &options()).map(drop).unwrap_err(),
            Pool::create(&[path], &CreateOptions::new(MIB)).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains("neither a regular file") || text.contains("exists already"), "{text}");
        }
    }
}

#[test]
fn a_persist_of_another_pool_is_refused() {
    let pools: Vec<(Scratch, Pool)> = (0..2)
        .map(|_| {
            let scratch = Scratch::new(&CreateOptions::new(4 * MIB));
            let pool = Pool::open(&[scratch.path()], &options()).unwrap();
            (scratch, pool)
        })
        .collect();
    let persists: Vec<_> = pools
        .iter()
        .map(|(_, pool)| {
            let addr = pool.alloc(64, Lifetime::Permanent).unwrap();
            pool.create_pmem_region(addr, 64).unwrap();
            pool.write(addr, &[1; 64]).unwrap();
            pool.persist_async(addr, 64).unwrap()
        })
        .collect();
    for (n, (scratch, pool)) in pools.into_iter().enumerate() {
        let foreign = |pool: &Pool, persist| match pool.wait(persist) {
            Err(PoolError::Option { option: "persist", .. }) => assert!(!pool.is_durable(persist)),
            other => panic!("{other:?}"),
        };
        foreign(&pool, persists[1 - n]);
        pool.wait(persists[n]).unwrap();
        assert!(pool.is_durable(persists[n]));
        pool.close().unwrap();
        foreign(&Pool::open(&[scratch.path()], &options()).unwrap(), persists[n]);
    }
}
