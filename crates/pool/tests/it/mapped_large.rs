//! A pool eight times as large as its DRAM, at real size, in a process of its own, because the test measures
//! resident memory.

use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{CreateOptions, Lifetime};

use crate::own_process::in_own_process;
use crate::scratch::{Scratch, mappable, mix};

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

#[test]
fn four_gib_through_half_a_gib_of_dram_keeps_the_budget_and_every_byte() {
    in_own_process!();
    if !mappable() {
        return;
    }
    const SIZE: u64 = 4 << 30;
    const DRAM: u64 = 512 << 20;
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let free = rustix::fs::statvfs(dir).map(|s| s.f_bavail * s.f_frsize).unwrap();
    if free < 10 << 30 {
        eprintln!("skipped: {} GiB are free in {}, 10 are needed", free >> 30, dir.display());
        return;
    }
    let scratch = Scratch::new(&CreateOptions::new(SIZE));
    let before = resident_bytes();
    let pool = scratch.open(DRAM);
    let addr = pool.alloc(SIZE, Lifetime::Permanent).unwrap();
    let table = pool.words(addr, (SIZE / 8) as usize).unwrap();
    let keep = || {
        let resident = resident_bytes().saturating_sub(before);
        assert!(resident <= DRAM, "{} MiB resident beyond the {} at the start", resident >> 20, before >> 20);
    };
    // Checking one word in every 512 bytes covers every sector of every segment.
    for (n, word) in (0_u64..).zip(&*table).step_by(64) {
        word.store(mix(n), Relaxed);
        if n % (64 << 17) == 0 {
            keep();
        }
    }
    keep();
    let token = pool.sync().unwrap();
    keep();
    for n in 0..50_000_u64 {
        let at = mix(n) as usize % table.len() / 64 * 64;
        table[at].fetch_xor(0xABCD, Relaxed);
    }
    keep();
    pool.rollback(token).unwrap();
    pool.abandon().unwrap();
    drop(table);
    let pool = scratch.open(DRAM);
    let table = pool.words(addr, (SIZE / 8) as usize).unwrap();
    for (n, word) in (0_u64..).zip(&*table).step_by(64) {
        assert_eq!(word.load(Relaxed), mix(n), "word {n}");
        if n % (64 << 17) == 0 {
            keep();
        }
    }
    let stats = pool.stats();
    assert!(stats.dram_bytes <= DRAM, "{stats:?}");
}
