//! An unprivileged user whom the kernel denies userfaultfd: mapping fails with a message that names the
//! remedy, and everything else works.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError, WatchError};

const MIB: u64 = 1 << 20;
/// "nobody" on every Linux.
const NOBODY: u32 = 65534;

#[test]
fn child_without_privileges() {
    let Some(path) = std::env::var_os("DEEPRAM_TEST_UNPRIVILEGED") else { return };
    let paths = [Path::new(&path)];
    Pool::create(&paths, &CreateOptions::new(MIB)).unwrap();
    match Pool::open(&paths, &OpenOptions::new(16 * MIB)) {
        Err(PoolError::Watch(error @ WatchError::Unavailable { .. })) => {
            let text = error.to_string();
            for advice in ["vm.unprivileged_userfaultfd=1", "CAP_SYS_PTRACE", "/dev/userfaultfd", "UserOnly"]
            {
                assert!(text.contains(advice), "{text}");
            }
        }
        Err(other) => panic!("unexpected error: {other}"),
        Ok(_) => {
            println!("\nskipped: this system lets every user have userfaultfd");
            return;
        }
    }
    let pool = Pool::open(&paths, &OpenOptions::new(16 * MIB).mapping(Mapping::Off)).unwrap();
    let addr = pool.alloc(MIB / 2, Lifetime::Permanent).unwrap();
    assert!(matches!(pool.pointer(addr, 8), Err(PoolError::Watch(_))));
    pool.write(addr, b"by call").unwrap();
    let token = pool.sync().unwrap();
    pool.write(addr, b"changed").unwrap();
    pool.rollback(token).unwrap();
    let mut back = [0; 7];
    pool.read(addr, &mut back).unwrap();
    assert_eq!(&back, b"by call");
    pool.close().unwrap();

    // Mapping for user code only needs no privilege where the kernel supports it (Linux 5.11).
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::UserOnly);
    match Pool::open(&paths, &options) {
        Ok(pool) => {
            let words = pool.words(addr, 8).unwrap();
            assert_eq!(words[0].load(std::sync::atomic::Ordering::Relaxed).to_le_bytes()[..7], *b"by call");
        }
        Err(PoolError::Watch(error)) => println!("\nskipped the rest: {error}"),
        Err(other) => panic!("unexpected error: {other}"),
    }
    println!("\nall done");
}

#[test]
fn without_userfaultfd_mapping_says_how_to_enable_it_and_calls_work() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let child = std::env::current_exe().unwrap();
    // Other users may have no access to the build folder, so the child runs from a copy.
    let copy = dir.path().join("child");
    std::fs::copy(child, &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let mut command = Command::new(&copy);
    command
        .args(["--exact", "unprivileged::child_without_privileges", "--nocapture", "--test-threads=1"])
        .env("DEEPRAM_TEST_UNPRIVILEGED", dir.path().join("pool"))
        .current_dir(dir.path());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    for line in text.lines().filter(|l| l.starts_with("skipped")) {
        eprintln!("{line}");
    }
    assert!(text.contains("all done") || text.contains("skipped:"), "{text}");
}
