//! Pools on simulated devices, and listings of file systems.

use std::collections::{BTreeMap, BTreeSet};

use deepram_files::{Files, Result, TOP};
use deepram_pool::{CreateOptions, Mapping, OpenOptions, Pool};
use deepram_testkit::{FaultyDevice, FaultyKernel, Image};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const PAGE: u64 = 1 << 16;
/// Memory of the pools.
const SIZE: u64 = 16 * MIB;
const FLASH: u64 = 64 * MIB;

/// Makes a device with an empty pool.
pub(crate) fn new_pool() -> Image {
    new_pool_of(SIZE)
}

/// Makes a device with an empty pool of this much memory.
pub(crate) fn new_pool_of(size: u64) -> Image {
    let device = FaultyDevice::new(FLASH + 4 * MIB);
    let options = CreateOptions { flash: Some(FLASH), ..CreateOptions::new(size) };
    Pool::create_on(FaultyKernel::file_devices(std::slice::from_ref(&device)), &options)
        .expect("creating a pool");
    device.durable_image()
}

/// Opens the pool of a device.
pub(crate) fn open_pool(device: &FaultyDevice) -> deepram_pool::Result<Pool> {
    let options = OpenOptions::new(16 * MIB).mapping(Mapping::Off);
    Pool::open_on(FaultyKernel::file_devices(std::slice::from_ref(device)), &options)
}

/// Opens the file system of a device.
pub(crate) fn open(device: &FaultyDevice) -> Result<Files> {
    Files::open(open_pool(device)?)
}

/// A new file system, and its device.
pub(crate) fn new_files() -> (FaultyDevice, Files) {
    let device = FaultyDevice::from_image(new_pool());
    let files = open(&device).expect("an empty file system");
    (device, files)
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listed {
    File { bytes: Vec<u8>, links: u32 },
    Directory { links: u32 },
    Link { target: Vec<u8> },
}

/// Lists a whole file system by paths.
pub(crate) fn listing(files: &Files) -> BTreeMap<Vec<u8>, Listed> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(Vec::new(), TOP, TOP)];
    while let Some((path, number, parent)) = waiting.pop() {
        let status = files.status(number).expect("a listed inode is in use");
        let kind = status.mode & libc::S_IFMT;
        let listed = match kind {
            libc::S_IFDIR => {
                assert_eq!(files.parent(number).expect("a directory has a parent"), parent, "of {path:?}");
                let mut entries = Vec::new();
                files
                    .list(number, 0, &mut |entry| {
                        entries.push(entry);
                        true
                    })
                    .expect("listing a directory");
                for entry in entries {
                    let (inode, _) = files.lookup(number, &entry.name).expect("a listed name is found");
                    assert_eq!(inode, entry.inode, "of {:?}", entry.name);
                    let mut below = path.clone();
                    below.push(b'/');
                    below.extend_from_slice(&entry.name);
                    waiting.push((below, entry.inode, number));
                }
                Listed::Directory { links: status.links }
            }
            libc::S_IFLNK => Listed::Link { target: files.read_link(number).expect("reading a link") },
            _ => {
                let bytes = files.read(number, 0, status.size as usize).expect("reading a file");
                Listed::File { bytes, links: status.links }
            }
        };
        found.insert(path, listed);
    }
    found
}

/// Checks that the pool's pages belong to files, held ones without a name included, and to nothing else.
pub(crate) fn check_pages(files: &Files, nameless: &[u64]) {
    let mut inodes: BTreeSet<u64> = nameless.iter().copied().collect();
    let mut waiting = vec![TOP];
    while let Some(number) = waiting.pop() {
        if !inodes.insert(number)
            || files.status(number).expect("in use").mode & libc::S_IFMT != libc::S_IFDIR
        {
            continue;
        }
        let listed = files.list(number, 0, &mut |entry| {
            waiting.push(entry.inode);
            true
        });
        listed.expect("listing a directory");
    }
    let of_files: u64 = inodes.iter().map(|&number| files.status(number).expect("in use").allocated).sum();
    let space = files.space().expect("reading the space");
    assert_eq!(space.files, inodes.len() as u64, "inodes in use");
    // The superblock, and one page of the inode table.
    let allocated = files.pool().info().expect("an open pool").allocated.0;
    assert_eq!(allocated, of_files + 2 * PAGE, "allocated pages");
}
