//! Single properties of the file system.

use deepram_files::{Attributes, Files, FilesError, SetAttributes, TOP};
use deepram_pool::Epoch;
use deepram_testkit::{Failure, FaultyDevice, Op};

use crate::common::{MIB, PAGE, check_pages, listing, new_files, new_pool, open, open_pool};

const FILE: Attributes = Attributes::file(0o640);

fn sizes(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

#[test]
fn a_file_is_there_after_a_sync_and_gone_without_one() {
    let (device, files) = new_files();
    let (kept, _) = files.create(TOP, b"kept", &FILE).unwrap();
    files.write(kept, 0, b"hello").unwrap();
    files.sync().unwrap();
    files.create(TOP, b"lost", &FILE).unwrap();
    files.write(kept, 0, b"HELLO").unwrap();
    drop(files);
    let files = open(&device).unwrap();
    let (number, status) = files.lookup(TOP, b"kept").unwrap();
    assert_eq!((status.size, status.mode), (5, libc::S_IFREG | 0o640));
    assert_eq!(files.read(number, 0, 100).unwrap(), b"hello");
    assert!(matches!(files.lookup(TOP, b"lost"), Err(FilesError::NotFound)));
}

#[test]
fn a_sync_without_a_change_makes_no_token() {
    let (device, files) = new_files();
    files.sync().unwrap();
    let tokens = |files: &Files| files.pool().history().unwrap().len();
    let before = tokens(&files);
    files.sync().unwrap();
    assert_eq!(tokens(&files), before);
    files.create(TOP, b"a", &FILE).unwrap();
    files.sync().unwrap();
    assert_eq!(tokens(&files), before + 1);
    drop(files);
    let files = open(&device).unwrap();
    files.sync().unwrap();
    assert_eq!(tokens(&files), before + 1);
}

#[test]
fn an_older_token_shows_the_files_of_then_and_cannot_be_written_to() {
    let (device, files) = new_files();
    let (number, _) = files.create(TOP, b"a", &FILE).unwrap();
    files.write(number, 0, &vec![1; 100_000]).unwrap();
    files.sync().unwrap();
    let then = listing(&files);
    let token = files.pool().history().unwrap().last().unwrap().token;
    files.write(number, 50_000, &vec![2; 100_000]).unwrap();
    files.rename(TOP, b"a", TOP, b"b", deepram_files::Replace::Yes).unwrap();
    files.sync().unwrap();
    let now = listing(&files);
    files.close().unwrap();
    let tokens = || open_pool(&device).unwrap().history().unwrap().len();
    let before = tokens();

    let old = Files::open_read_only(open_pool(&device).unwrap(), Some(token)).unwrap();
    assert!(listing(&old) == then, "the state of the token");
    assert!(matches!(old.create(TOP, b"c", &FILE), Err(FilesError::ReadOnly)));
    assert!(matches!(old.write(number, 0, b"x"), Err(FilesError::ReadOnly)));
    assert!(matches!(old.unlink(TOP, b"a"), Err(FilesError::ReadOnly)));
    old.close().unwrap();
    assert_eq!(tokens(), before, "a view leaves no token");
    let files = Files::open_read_only(open_pool(&device).unwrap(), None).unwrap();
    assert!(listing(&files) == now, "the newest state");
    drop(files);
    let before_files = Files::open_read_only(open_pool(&device).unwrap(), Some(Epoch(0)));
    assert!(matches!(before_files, Err(FilesError::NoFiles(Some(0)) | FilesError::Pool(_))));
}

#[test]
fn a_rollback_of_the_pool_rolls_the_files_back() {
    let (device, files) = new_files();
    let (number, _) = files.create(TOP, b"a", &FILE).unwrap();
    files.write(number, 0, b"first").unwrap();
    files.sync().unwrap();
    let token = files.pool().history().unwrap().last().unwrap().token;
    files.unlink(TOP, b"a").unwrap();
    files.close().unwrap();
    let pool = open_pool(&device).unwrap();
    pool.rollback(token).unwrap();
    pool.abandon().unwrap();
    let files = open(&device).unwrap();
    let (number, _) = files.lookup(TOP, b"a").unwrap();
    assert_eq!(files.read(number, 0, 9).unwrap(), b"first");
    check_pages(&files, &[]);
}

#[test]
fn an_open_file_lives_on_without_a_name_and_a_crash_removes_it() {
    let (device, files) = new_files();
    for name in [b"a", b"b", b"c"] {
        let (number, _) = files.create(TOP, name, &FILE).unwrap();
        files.hold(number);
        files.unlink(TOP, name).unwrap();
        files.write(number, 0, &vec![7; 200_000]).unwrap();
    }
    let (first, second, third) = (2, 3, 4);
    assert_eq!(files.read(second, 199_999, 9).unwrap(), [7]);
    check_pages(&files, &[first, second, third]);
    files.release(second, 1).unwrap();
    assert!(matches!(files.status(second), Err(FilesError::Stale(_))));
    check_pages(&files, &[first, third]);
    files.sync().unwrap();
    drop(files);
    let files = open(&device).unwrap();
    check_pages(&files, &[]);
    assert!(matches!(files.status(first), Err(FilesError::Stale(_))));
    let (again, status) = files.create(TOP, b"d", &FILE).unwrap();
    assert!([first, second, third].contains(&again) && status.generation > 0, "{again} {status:?}");
}

#[test]
fn holes_read_as_zeros_up_to_the_largest_file() {
    let (_device, files) = new_files();
    let (number, _) = files.create(TOP, b"a", &FILE).unwrap();
    // One place behind each kind of index.
    let places = [0, 17 * PAGE + 5, 18 * PAGE - 2, (18 + 8192) * PAGE - 3, (18 + 3 * 8192) * PAGE + 77];
    for &place in &places {
        files.write(number, place, b"abcd").unwrap();
    }
    for &place in &places {
        assert_eq!(files.read(number, place, 4).unwrap(), b"abcd", "at {place}");
        assert_eq!(
            files.read(number, place + 4, 100).unwrap().iter().max(),
            files.read(number, place + 4, 100).unwrap().iter().min()
        );
    }
    assert_eq!(files.read(number, 100 * PAGE, 4 * PAGE as usize).unwrap(), vec![0; 4 * PAGE as usize]);
    let allocated = files.status(number).unwrap().allocated;
    assert!(allocated < 2 * MIB, "{allocated}");
    files.set_attributes(number, &sizes((18 + 8192) * PAGE)).unwrap();
    check_pages(&files, &[]);
    files.set_attributes(number, &sizes(3)).unwrap();
    assert_eq!(files.status(number).unwrap().allocated, PAGE);
    files.set_attributes(number, &sizes(10)).unwrap();
    assert_eq!(files.read(number, 0, 100).unwrap(), b"abc\0\0\0\0\0\0\0");
    let error = files.write(number, 5 << 40, b"x").unwrap_err();
    assert!(matches!(error, FilesError::TooLarge { .. }), "{error}");
    let error = files.set_attributes(number, &sizes(u64::MAX)).unwrap_err();
    assert_eq!(error.errno(), libc::EFBIG);
    check_pages(&files, &[]);
}

#[test]
fn a_full_pool_is_an_error_that_changes_nothing_and_frees_nothing() {
    let (_device, files) = new_files();
    let (number, _) = files.create(TOP, b"big", &FILE).unwrap();
    let mut size = 0;
    let error = loop {
        match files.write(number, size, &vec![size as u8; MIB as usize]) {
            Ok(()) => size += MIB,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC, "{error}");
    assert!(size >= 12 * MIB, "{size}");
    assert_eq!(files.status(number).unwrap().size, size);
    check_pages(&files, &[]);
    let before = listing(&files);
    let mut made = 0_u32;
    // Files without contents need no page until the directory needs another one.
    let error = loop {
        let (file, _) = match files.create(TOP, format!("{made}").as_bytes(), &FILE) {
            Ok(done) => done,
            Err(error) => break error,
        };
        made += 1;
        if let Err(error) = files.write(file, 0, &vec![1; 3 * PAGE as usize]) {
            files.unlink(TOP, format!("{}", made - 1).as_bytes()).unwrap();
            break error;
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC, "{error}");
    check_pages(&files, &[]);
    (0..made).for_each(|n| drop(files.unlink(TOP, format!("{n}").as_bytes())));
    assert!(listing(&files) == before);
    files.unlink(TOP, b"big").unwrap();
    check_pages(&files, &[]);
    files.sync().unwrap();
    assert!(files.space().unwrap().free > 12 * MIB);
}

#[test]
fn a_large_directory_is_found_listed_in_parts_and_emptied() {
    let (device, files) = new_files();
    let (directory, _) = files.create(TOP, b"d", &Attributes::directory(0o755)).unwrap();
    let name = |n: u32| format!("file number {n}").into_bytes();
    let (target, _) = files.create(TOP, b"f", &FILE).unwrap();
    for n in 0..3000 {
        files.link(target, directory, &name(n)).unwrap();
    }
    files.close().unwrap();
    let files = open(&device).unwrap();
    assert_eq!(files.status(target).unwrap().links, 3001);
    let (mut seen, mut from) = (Vec::new(), 0);
    loop {
        let before = seen.len();
        files
            .list(directory, from, &mut |entry| {
                from = entry.next;
                seen.push(entry.name);
                seen.len() < before + 100
            })
            .unwrap();
        if seen.len() == before {
            break;
        }
        // A listing goes on while entries are removed and made.
        let gone = seen[before].clone();
        files.unlink(directory, &gone).unwrap();
        files.link(target, directory, &gone).unwrap();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3000);
    (0..3000).for_each(|n| files.unlink(directory, &name(n)).unwrap());
    assert_eq!(files.status(directory).unwrap().allocated, 0);
    files.remove_directory(TOP, b"d").unwrap();
    check_pages(&files, &[]);
}

#[test]
fn names_and_arguments_that_make_no_sense_are_errors() {
    let (_device, files) = new_files();
    let errno = |name: &[u8]| files.create(TOP, name, &FILE).unwrap_err().errno();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(errno(name), libc::EINVAL, "{name:?}");
    }
    assert_eq!(errno(&[b'x'; 256]), libc::ENAMETOOLONG);
    files.create(TOP, &[b'x'; 255], &FILE).unwrap();
    assert_eq!(errno(&[b'x'; 255]), libc::EEXIST);
    let no_type = Attributes { mode: 0o644, ..FILE };
    assert_eq!(files.create(TOP, b"a", &no_type).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(files.status(0).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(files.status(u64::MAX).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(files.read(TOP, 0, 10).unwrap_err().errno(), libc::EISDIR);
    assert_eq!(files.symlink(TOP, b"l", &[b'x'; 5000], 0, 0).unwrap_err().errno(), libc::ENAMETOOLONG);
}

#[test]
fn a_sync_that_fails_loses_nothing() {
    let device = FaultyDevice::from_image(new_pool());
    let files = open(&device).unwrap();
    let (number, _) = files.create(TOP, b"a", &FILE).unwrap();
    files.write(number, 0, b"hello").unwrap();
    device.fail_from(Op::Write, 1, Failure::EIO);
    assert!(files.sync().is_err());
    device.heal();
    files.sync().unwrap();
    drop(files);
    let files = open(&device).unwrap();
    assert_eq!(files.read(files.lookup(TOP, b"a").unwrap().0, 0, 9).unwrap(), b"hello");
}

#[test]
fn another_root_of_that_name_is_not_taken_for_files() {
    let device = FaultyDevice::from_image(new_pool());
    let pool = open_pool(&device).unwrap();
    let addr = pool.alloc(PAGE, deepram_pool::Lifetime::Permanent).unwrap();
    pool.set_root("files", addr, PAGE).unwrap();
    pool.close().unwrap();
    let error = open(&device).unwrap_err();
    assert!(matches!(error, FilesError::Damaged(_)), "{error}");
    assert!(error.to_string().contains("superblock"), "{error}");
}
