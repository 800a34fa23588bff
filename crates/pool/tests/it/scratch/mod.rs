//! Shared parts of the tests on real files.

use std::path::PathBuf;

use deepram_pool::{CreateOptions, OpenOptions, Pool, PoolError, WatchError};

pub(crate) const MIB: u64 = 1 << 20;

/// A pool file that is removed when the test ends.
pub(crate) struct Scratch {
    pub(crate) dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new(options: &CreateOptions) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let scratch = Self { dir };
        Pool::create(&[scratch.path()], options).unwrap();
        scratch
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("test.pool")
    }

    pub(crate) fn open(&self, dram: u64) -> Pool {
        Pool::open(&[self.path()], &OpenOptions::new(dram)).unwrap()
    }
}

/// Returns whether mapped access is available; prints a message if not.
pub(crate) fn mappable() -> bool {
    let scratch = Scratch::new(&CreateOptions::new(MIB));
    match Pool::open(&[scratch.path()], &OpenOptions::new(16 * MIB)) {
        Err(PoolError::Watch(WatchError::Unavailable { source })) => {
            eprintln!("skipped: userfaultfd is not available here ({source})");
            false
        }
        other => {
            other.unwrap().close().unwrap();
            true
        }
    }
}

pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (n ^ (n >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}
