//! Pools on block devices (loop devices): a device that is in use or holds data is not overwritten without
//! `force`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::{MIB, mappable};
use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, PoolError};

const BYTES: u64 = 64 * MIB;

fn options() -> OpenOptions {
    OpenOptions::new(16 * MIB).mapping(Mapping::Off)
}

fn create(path: &Path, overwrite: bool) -> Result<(), PoolError> {
    Pool::create(&[path], &CreateOptions { overwrite, ..CreateOptions::new(4 * MIB) })
}

/// Returns the output of a program, or `None` if the program is missing or fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device over a file; dropping it removes both.
struct Loop {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Loop {
    /// Returns `None` and prints a message where no loop device can be made.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = dir.path().join("device");
        std::fs::File::create(&file).unwrap().set_len(BYTES).unwrap();
        let Some(path) = output("losetup", &["--find", "--show", file.to_str().unwrap()]) else {
            eprintln!("skipped: no loop device can be made here (losetup, as root)");
            return None;
        };
        Some(Self { path: path.into(), _dir: dir })
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = output("losetup", &["--detach", self.name()]);
    }
}

/// A mounted file system, unmounted when this value is dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(device: &Loop) -> Option<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mounted = output("mount", &[device.name(), dir.path().to_str().unwrap()]);
        if mounted.is_none() {
            eprintln!("skipped: nothing can be mounted here");
        }
        mounted.map(|_| Self(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = output("umount", &[self.0.path().to_str().unwrap()]);
    }
}

#[test]
fn a_pool_on_a_device_is_not_overwritten_unasked() {
    let Some(device) = Loop::new() else { return };
    create(&device.path, false).unwrap();
    let pool = Pool::open(&[&device.path], &options()).unwrap();
    let addr = pool.alloc(64, Lifetime::Permanent).unwrap();
    pool.set_root("data", addr, 64).unwrap();
    pool.close().unwrap();
    match create(&device.path, false) {
        Err(PoolError::Holds { what, .. }) => assert_eq!(what, "a deepram pool"),
        other => panic!("{other:?}"),
    }
    let pool = Pool::open(&[&device.path], &options()).unwrap();
    assert_eq!(pool.root("data").unwrap().addr, addr);
    assert!(pool.check(&mut |_, _| {}).unwrap().is_sound());
    pool.close().unwrap();
    create(&device.path, true).unwrap();
    let pool = Pool::open(&[&device.path], &options()).unwrap();
    assert!(pool.roots().unwrap().is_empty());
}

#[test]
fn known_file_systems_are_not_overwritten_unasked() {
    for (program, arguments, what) in [
        ("mkfs.ext4", &["-q"][..], "an ext2, ext3 or ext4 file system"),
        ("mkswap", &[], "swap space"),
        ("mkfs.vfat", &[], "a partition table or a boot sector"),
        ("mkfs.btrfs", &["-q"], "a Btrfs file system"),
        ("pvcreate", &["-q"], "an LVM physical volume"),
    ] {
        let Some(device) = Loop::new() else { return };
        let made = output(program, &[arguments, &[device.name()]].concat());
        if made.is_none() {
            eprintln!("skipped: there is no {program}");
            continue;
        }
        let before = std::fs::read(&device.path).unwrap();
        match create(&device.path, false) {
            Err(PoolError::Holds { what: found, .. }) => assert!(found.contains(what), "{program}: {found}"),
            other => panic!("{program}: {other:?}"),
        }
        assert!(before == std::fs::read(&device.path).unwrap(), "{program}: the device was changed");
        create(&device.path, true).unwrap();
        Pool::open(&[&device.path], &options()).unwrap().close().unwrap();
        if let Some(found) = output("blkid", &["--probe", device.name()]) {
            panic!("{program}: blkid takes the pool's device for {found}");
        }
    }
}

#[test]
fn a_mounted_device_is_never_overwritten() {
    let Some(device) = Loop::new() else { return };
    if output("mkfs.ext4", &["-q", device.name()]).is_none() {
        eprintln!("skipped: there is no mkfs.ext4");
        return;
    }
    let Some(mounted) = Mounted::new(&device) else { return };
    let file = mounted.0.path().join("file");
    std::fs::write(&file, "contents").unwrap();
    for overwrite in [false, true] {
        let error = create(&device.path, overwrite).unwrap_err();
        assert!(matches!(error, PoolError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("mounted"), "{error}");
    }
    drop(mounted);
    let mounted = Mounted::new(&device).unwrap();
    assert_eq!(std::fs::read_to_string(mounted.0.path().join("file")).unwrap(), "contents");
}

#[test]
fn of_several_devices_none_is_changed_if_one_is_in_use() {
    let (Some(first), Some(second)) = (Loop::new(), Loop::new()) else { return };
    let made = [&first, &second].map(|device| output("mkfs.ext4", &["-q", device.name()]));
    if made.iter().any(Option::is_none) {
        eprintln!("skipped: there is no mkfs.ext4");
        return;
    }
    let Some(_mounted) = Mounted::new(&second) else { return };
    let before = std::fs::read(&first.path).unwrap();
    let options = CreateOptions { overwrite: true, ..CreateOptions::new(4 * MIB) };
    let error = Pool::create(&[&first.path, &second.path], &options).unwrap_err();
    assert!(matches!(error, PoolError::InUse { .. }), "{error}");
    assert!(before == std::fs::read(&first.path).unwrap());
}

#[test]
fn an_open_pool_claims_its_device_until_it_is_closed() {
    let Some(device) = Loop::new() else { return };
    create(&device.path, false).unwrap();
    let mapping = if mappable() { Mapping::Full } else { Mapping::Off };
    let pool = Pool::open(&[&device.path], &OpenOptions::new(24 * MIB).mapping(mapping)).unwrap();
    let addr = pool.alloc(64, Lifetime::Permanent).unwrap();
    let words = pool.is_mapped().then(|| pool.words(addr, 8).unwrap());
    let busy = || output("mkfs.ext4", &["-q", "-F", device.name()]).is_none();
    assert!(busy(), "mkfs.ext4 must find the device claimed");
    for error in [
        create(&device.path, true).unwrap_err(),
        Pool::open(&[&device.path], &options()).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, PoolError::InUse { .. }), "{error}");
    }
    pool.close().unwrap();
    // The device can be opened again although a view of the closed pool still exists.
    Pool::open(&[&device.path], &options()).unwrap().close().unwrap();
    drop(words);
}

#[test]
fn a_file_is_never_overwritten() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("file");
    for contents in ["", "somebody's"] {
        std::fs::write(&file, contents).unwrap();
        for overwrite in [false, true] {
            assert!(matches!(create(&file, overwrite), Err(PoolError::Exists { .. })));
            assert_eq!(std::fs::read_to_string(&file).unwrap(), contents);
        }
    }
}
