//! A reopened mapped pool with data, of which no segment is resident; for each fault-serving mode.

use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{Addr, CreateOptions, FaultOptions, Lifetime, OpenOptions, Pool, Words};

use crate::scratch::{MIB, Scratch, mix};

pub(crate) const SEGMENT: u64 = 4096;
pub(crate) const WORDS: u64 = SEGMENT / 8;

/// Both fault-serving modes: with io_uring and without it.
pub(crate) fn ways() -> [FaultOptions; 2] {
    [true, false].map(|ring| FaultOptions { io_uring: ring, ..FaultOptions::default() })
}

/// A pool of `bytes` in which word n is `mix(n)`, reopened, so that no segment is resident.
pub(crate) fn filled(bytes: u64, options: &OpenOptions) -> (Scratch, Pool, Addr, Words) {
    let scratch = Scratch::new(&CreateOptions::new(bytes + MIB));
    let pool = scratch.open(64 * MIB);
    let first = pool.alloc(bytes, Lifetime::Permanent).unwrap();
    let table = pool.words(first, (bytes / 8) as usize).unwrap();
    (0..).zip(&*table).for_each(|(n, word)| word.store(mix(n), Relaxed));
    drop(table);
    pool.close().unwrap();
    let pool = Pool::open(&[scratch.path()], options).unwrap();
    let table = pool.words(first, (bytes / 8) as usize).unwrap();
    (scratch, pool, first, table)
}

pub(crate) fn word_of(table: &Words, segment: u64) -> u64 {
    table[(segment * WORDS + segment % WORDS) as usize].load(Relaxed)
}

pub(crate) fn expected(segment: u64) -> u64 {
    mix(segment * WORDS + segment % WORDS)
}
