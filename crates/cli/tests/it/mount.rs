//! Mounted pools: real programs on `deepram pool mount`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{deepram, folder};

/// Whether pools can be mounted here; says why if not.
pub(crate) fn can_mount() -> bool {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let can = opened.is_ok() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse ({opened:?})");
    }
    can
}

/// A folder with a pool, mounted at `files` by a process of its own.
struct Mounted {
    folder: TempDir,
    child: Child,
}

impl Mounted {
    fn new(options: &[&str]) -> Self {
        let folder = folder();
        let create = ["pool", "create", "a.pool", "--size", "256M", "--keep", "4"];
        deepram(folder.path(), &create).good();
        fs::create_dir(folder.path().join("files")).unwrap();
        let child = start(folder.path(), options);
        Self { folder, child }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// Kills the process, which leaves a mount without a process.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        rustix::mount::unmount(self.dir(), UnmountFlags::DETACH).unwrap();
    }

    fn mount_again(&mut self, options: &[&str]) {
        self.child = start(self.folder.path(), options);
    }

    fn umount(&mut self) {
        let text = deepram(self.folder.path(), &["pool", "umount", "files"]).good();
        assert!(text.contains("unmounted files"), "{text}");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a test that failed the process may still be there.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = rustix::mount::unmount(self.dir(), UnmountFlags::DETACH);
    }
}

/// A directory that is unmounted in any case.
struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        // Nothing is mounted there unless a test has failed.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Starts the process that mounts, and waits for its mount.
fn start(folder: &Path, options: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deepram"));
    command
        .args(["pool", "mount", "--dram", "32M"])
        .args(options)
        .args(["a.pool", "files"])
        .current_dir(folder);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = Vec::new();
    let stdout = child.stdout.as_mut().unwrap();
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        assert_eq!(
            stdout.read(&mut byte).unwrap(),
            1,
            "the process ended: {:?}",
            String::from_utf8_lossy(&line)
        );
        line.push(byte[0]);
    }
    child
}

fn run(program: &str, folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a folder, by path: permissions, and contents or target.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_path_buf()]);
    while let Some(path) = waiting.pop() {
        let status = fs::symlink_metadata(&path).unwrap();
        let contents = if status.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else if status.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).unwrap()
        };
        found.insert(path.strip_prefix(folder).unwrap().into(), (status.permissions().mode(), contents));
    }
    found
}

#[test]
fn a_copied_tree_is_the_same_and_is_there_after_mounting_again() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    run("cp", mounted.folder.path(), &["-r", sources.to_str().unwrap(), "files/src"]);
    symlink("src/main.rs", mounted.dir().join("link")).unwrap();
    fs::hard_link(mounted.dir().join("src/main.rs"), mounted.dir().join("second name")).unwrap();
    assert_eq!(fs::metadata(mounted.dir().join("second name")).unwrap().nlink(), 2);
    assert_eq!(tree(&mounted.dir().join("src")), tree(&sources));
    let before = tree(&mounted.dir());
    mounted.umount();
    assert_eq!(fs::read_dir(mounted.dir()).unwrap().count(), 0);
    mounted.mount_again(&[]);
    assert_eq!(tree(&mounted.dir()), before);
    run("rm", &mounted.dir(), &["-r", "src"]);
    assert_eq!(
        fs::read(mounted.dir().join("second name")).unwrap(),
        fs::read(sources.join("main.rs")).unwrap()
    );
    mounted.umount();
}

#[test]
fn git_works_on_a_pool() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let dir = mounted.dir();
    run("git", &dir, &["init", "--quiet", "repository"]);
    let repository = dir.join("repository");
    for n in 0..100 {
        fs::write(repository.join(format!("file {n}")), vec![b'0' + (n % 10) as u8; n * 50]).unwrap();
    }
    let user = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "core.fsync=all"];
    run("git", &repository, &["add", "."]);
    run("git", &repository, &[&user[..], &["commit", "--quiet", "-m", "all"]].concat());
    run("git", &repository, &["mv", "file 7", "file seven"]);
    run("git", &repository, &[&user[..], &["commit", "--quiet", "-m", "one"]].concat());
    run("git", &repository, &["gc", "--quiet"]);
    run("git", &repository, &["fsck", "--strict"]);
    assert_eq!(run("git", &repository, &["status", "--porcelain"]), "");
    mounted.umount();
    mounted.mount_again(&[]);
    assert_eq!(run("git", &repository, &["log", "--format=%s"]), "one\nall\n");
    run("git", &repository, &["fsck", "--strict"]);
    mounted.umount();
}

/// Commits numbers one after the other to a database, and prints each when it is durable: with a rollback journal, `FULL` alone does
/// not sync the removal of the journal.
const SQLITE: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA journal_mode=' + sys.argv[2])
db.execute('PRAGMA synchronous=EXTRA')
db.execute('PRAGMA mmap_size=16777216')
db.execute('CREATE TABLE IF NOT EXISTS numbers (n INTEGER PRIMARY KEY, filler BLOB)')
for n in range(int(sys.argv[3]), int(sys.argv[4])):
    db.execute('INSERT INTO numbers VALUES (?, ?)', (n, bytes(3000)))
    print(n, flush=True)
";

/// Checks the database and prints its largest number and the number of rows.
const SQLITE_CHECK: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'
print(*db.execute('SELECT coalesce(max(n), -1), count(*) FROM numbers').fetchone())
";

/// The same with LMDB, whose commit is an `fdatasync` of what it wrote, or an `msync` of its mapping with `writemap`.
const LMDB: &str = "
import lmdb, sys
env = lmdb.open(sys.argv[1], map_size=256 << 20, writemap=sys.argv[2] == 'writemap', subdir=False)
for n in range(int(sys.argv[3]), int(sys.argv[4])):
    with env.begin(write=True) as transaction:
        transaction.put(b'%08d' % n, bytes(3000))
    print(n, flush=True)
";

const LMDB_CHECK: &str = "
import lmdb, sys
env = lmdb.open(sys.argv[1], map_size=256 << 20, subdir=False)
with env.begin() as transaction:
    keys = [int(key) for key, value in transaction.cursor() if value == bytes(3000)]
print(max(keys, default=-1), len(keys))
";

/// Kills the mount while `program` commits numbers, three times, and holds what it has printed against what `check` then finds.
fn commits_survive_kills(program: &str, mode: &str, check: &str, options: &[&str]) {
    let mut mounted = Mounted::new(options);
    let mut committed = -1;
    for round in 1..=3 {
        let mut python = Command::new("python3");
        let first = (committed + 1).to_string();
        python.args(["-c", program, "files/db", mode, &first, "1000000"]);
        python.current_dir(mounted.folder.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut python = python.spawn().unwrap();
        let mut output = BufReader::new(python.stdout.take().unwrap());
        let mut printed = String::new();
        for _ in 0..20 * round {
            assert!(output.read_line(&mut printed).unwrap() > 0, "the program ended: {printed}");
        }
        mounted.kill();
        output.read_to_string(&mut printed).unwrap();
        python.wait().unwrap();
        committed = printed.lines().last().map_or(committed, |line| line.parse().unwrap());
        mounted.mount_again(options);
        let found = run("python3", mounted.folder.path(), &["-c", check, "files/db"]);
        let found: Vec<i64> = found.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert!(found[0] >= committed, "{mode} {options:?}: {found:?}, but {committed} was committed");
        assert_eq!(found[0] + 1, found[1], "{mode} {options:?}");
        committed = found[0];
    }
    assert!(committed > 2, "{mode} {options:?}: only {committed} rows were committed");
    mounted.umount();
}

#[test]
fn what_sqlite_has_committed_survives_a_kill_of_the_mount() {
    if !can_mount() {
        return;
    }
    for (journal, options) in [("WAL", &[][..]), ("DELETE", &["--write-through"]), ("WAL", &["--direct"])] {
        commits_survive_kills(SQLITE, journal, SQLITE_CHECK, options);
    }
}

#[test]
fn what_lmdb_has_committed_survives_a_kill_of_the_mount() {
    if !can_mount() {
        return;
    }
    // From a registry, once; Python finds it where this file says.
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lmdb");
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--root-user-action",
        "ignore",
        "--target",
        library.to_str().unwrap(),
        "lmdb",
    ];
    let installed =
        library.is_dir() || Command::new("python3").args(install).status().is_ok_and(|s| s.success());
    if !installed {
        return eprintln!("skipped: the package lmdb cannot be installed");
    }
    let with_path = |program: &str| format!("import sys; sys.path.append({library:?})\n{program}");
    for (mode, options) in [("", &[][..]), ("writemap", &[]), ("", &["--write-through"])] {
        commits_survive_kills(&with_path(LMDB), mode, &with_path(LMDB_CHECK), options);
    }
}

#[test]
fn memory_that_is_mapped_and_synced_survives_a_kill() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let program = "
import mmap, os
fd = os.open('files/map', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 3 << 20)
memory = mmap.mmap(fd, 3 << 20)
other = os.open('files/map', os.O_RDONLY)
memory[1 << 20:(1 << 20) + 5] = b'hello'
assert os.pread(other, 5, 1 << 20) == b'hello'
os.pwrite(fd, b'HELLO', 2 << 20)
assert memory[2 << 20:(2 << 20) + 5] == b'HELLO'
memory.flush()
";
    run("python3", mounted.folder.path(), &["-c", program]);
    mounted.kill();
    mounted.mount_again(&[]);
    let bytes = fs::read(mounted.dir().join("map")).unwrap();
    assert_eq!(bytes.len(), 3 << 20);
    assert_eq!((&bytes[1 << 20..][..5], &bytes[2 << 20..][..5]), (&b"hello"[..], &b"HELLO"[..]));
    mounted.umount();
}

#[test]
fn random_operations_do_on_a_pool_what_they_do_on_a_plain_folder() {
    if !can_mount() {
        return;
    }
    for (options, direct) in [(&[][..], false), (&["--direct"], false), (&["--write-through"], true)] {
        let mut mounted = Mounted::new(options);
        let plain = folder();
        let seed = std::env::var("DEEPRAM_SEED").map_or(7, |seed| seed.parse().expect("a number"));
        println!("seed {seed}: rerun with DEEPRAM_SEED={seed}; options {options:?}");
        let mut state = seed;
        let mut random = move |below: u64| {
            // SplitMix64.
            state = u64::wrapping_add(state, 0x9e37_79b9_7f4a_7c15);
            let mut word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ word >> 31) % below
        };
        let path = |folder: &Path| folder.join("file");
        let flags = if direct { libc_o_direct() } else { 0 };
        let open = |folder: &Path| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
            options.open(path(folder)).unwrap()
        };
        let (mut ours, mut theirs) =
            (open(&mounted.dir()), fs::File::create_new(path(plain.path())).unwrap());
        drop(theirs);
        theirs = fs::OpenOptions::new().read(true).write(true).open(path(plain.path())).unwrap();
        let unit = if direct { 4096 } else { 1 };
        for n in 0..600 {
            let offset = random(2 << 20) / unit * unit;
            let longest = if random(4) == 0 { 300_000 } else { 5000 };
            let len = ((random(longest) + 1) / unit).max(1) * unit;
            match random(6) {
                0..=2 => {
                    let bytes = aligned(
                        (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(n as u8)).collect(),
                    );
                    ours.write_all_at(&bytes.0[bytes.1..][..len as usize], offset).unwrap();
                    theirs.write_all_at(&bytes.0[bytes.1..][..len as usize], offset).unwrap();
                }
                3 => {
                    ours.set_len(offset).unwrap();
                    theirs.set_len(offset).unwrap();
                }
                4 if random(4) == 0 => ours.sync_all().unwrap(),
                4 if !direct => {
                    for file in [&mut ours, &mut theirs] {
                        file.seek(SeekFrom::End(0)).unwrap();
                        file.write_all(b"at the end").unwrap();
                    }
                }
                _ => {}
            }
            if n % 20 == 0 {
                assert!(
                    fs::read(path(&mounted.dir())).unwrap() == fs::read(path(plain.path())).unwrap(),
                    "step {n}"
                );
            }
        }
        drop(ours);
        mounted.umount();
        mounted.mount_again(options);
        assert!(
            fs::read(path(&mounted.dir())).unwrap() == fs::read(path(plain.path())).unwrap(),
            "after mounting again"
        );
        mounted.umount();
    }
}

fn libc_o_direct() -> i32 {
    rustix::fs::OFlags::DIRECT.bits() as i32
}

/// The bytes in a buffer, and where in it they begin: at a page.
fn aligned(bytes: Vec<u8>) -> (Vec<u8>, usize) {
    let mut buffer = vec![0; bytes.len() + 4096];
    let start = buffer.as_ptr().align_offset(4096);
    buffer[start..start + bytes.len()].copy_from_slice(&bytes);
    (buffer, start)
}

#[test]
fn threads_that_write_and_sync_at_once_lose_nothing() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&["--threads", "4"]);
    let dir = mounted.dir();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let dir = &dir;
            scope.spawn(move || {
                for n in 0..40_u8 {
                    let path = dir.join(format!("{thread}-{n}"));
                    let mut file = fs::File::create(&path).unwrap();
                    file.write_all(&vec![thread ^ n; 50_000]).unwrap();
                    file.sync_all().unwrap();
                    if n % 3 == 0 {
                        fs::rename(&path, dir.join(format!("renamed-{thread}-{n}"))).unwrap();
                    }
                }
            });
        }
    });
    fs::File::open(&dir).unwrap().sync_all().unwrap();
    mounted.kill();
    mounted.mount_again(&[]);
    for (thread, n) in (0..4_u8).flat_map(|thread| (0..40_u8).map(move |n| (thread, n))) {
        let name = if n % 3 == 0 { format!("renamed-{thread}-{n}") } else { format!("{thread}-{n}") };
        assert!(fs::read(dir.join(&name)).unwrap() == vec![thread ^ n; 50_000], "{name}");
    }
    mounted.umount();
}

#[test]
fn an_older_token_is_mounted_for_reading() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&[]);
    let file = mounted.dir().join("notes");
    fs::write(&file, "first").unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    fs::write(&file, "second").unwrap();
    mounted.umount();
    let history = deepram(mounted.folder.path(), &["pool", "history", "a.pool", "--json"]).json();
    let tokens: Vec<u64> =
        history["tokens"].as_array().unwrap().iter().map(|token| token["token"].as_u64().unwrap()).collect();
    let contents = |mounted: &mut Mounted, token: u64| {
        mounted.mount_again(&["--at", &token.to_string()]);
        let read = fs::read_to_string(&file).unwrap();
        assert!(fs::write(&file, "x").is_err(), "an older state cannot be written to");
        mounted.umount();
        read
    };
    let shown: Vec<String> =
        tokens[tokens.len() - 2..].iter().map(|&token| contents(&mut mounted, token)).collect();
    assert_eq!(shown.last().map(String::as_str), Some("second"));
    assert!(tokens.iter().any(|&token| {
        let mounts = deepram(
            mounted.folder.path(),
            &["pool", "mount", "--background", "--at", &token.to_string(), "a.pool", "files"],
        );
        let first = mounts.status == 0 && fs::read_to_string(&file).is_ok_and(|text| text == "first");
        if mounts.status == 0 {
            deepram(mounted.folder.path(), &["pool", "umount", "files"]).good();
        }
        first
    }));
    let after = deepram(mounted.folder.path(), &["pool", "history", "a.pool", "--json"]).json();
    assert_eq!(after, history, "mounting for reading leaves no token");
}

#[test]
fn a_signal_unmounts_and_keeps_everything() {
    if !can_mount() {
        return;
    }
    let mut mounted = Mounted::new(&["--commit", "0"]);
    fs::write(mounted.dir().join("a"), "text").unwrap();
    kill_process(Pid::from_raw(mounted.child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert!(mounted.child.wait().unwrap().success());
    assert_eq!(fs::read_dir(mounted.dir()).unwrap().count(), 0);
    mounted.mount_again(&[]);
    let open = fs::File::open(mounted.dir().join("a")).unwrap();
    let error = deepram(mounted.folder.path(), &["pool", "umount", "files"]).error(1);
    assert!(error.contains("in use"), "{error}");
    drop(open);
    mounted.umount();
}

#[test]
fn wrong_uses_are_errors_that_say_what_is_wrong() {
    let folder = folder();
    deepram(folder.path(), &["pool", "create", "a.pool", "--size", "16M"]).good();
    let error = deepram(folder.path(), &["pool", "umount", "a.pool"]).error(1);
    assert!(error.contains("no pool is mounted there"), "{error}");
    if !can_mount() {
        return;
    }
    let error = deepram(folder.path(), &["pool", "mount", "a.pool", "nowhere"]).error(1);
    assert!(error.contains("nowhere: not a directory to mount at"), "{error}");
    fs::create_dir(folder.path().join("files")).unwrap();
    let _unmounted = Unmounted(folder.path().join("files"));
    let error =
        deepram(folder.path(), &["pool", "mount", "--read-only", "--background", "a.pool", "files"]).error(1);
    assert!(error.contains("holds no files"), "{error}");
    let error = deepram(folder.path(), &["pool", "mount", "b.pool", "files"]).error(1);
    assert!(error.contains("b.pool"), "{error}");
}
