//! A hash table that is larger than its DRAM. A rollback undoes a wrong batch of updates at once.
//!
//! `cargo run --release -p deepram-pool --example hash_table -- table.pool`

use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, Words};

const MIB: u64 = 1 << 20;
/// Number of slots, a power of two. A slot is a key and a value of 8 bytes each, so the table takes 32 MiB.
const SLOTS: usize = 2 << 20;
/// The largest key; the smallest is 1, and 0 marks a free slot.
const KEYS: u64 = 10_000;

/// Open addressing with linear probing, in memory of a pool.
struct Table(Words);

impl Table {
    /// Returns the slot that holds `key`, or the free slot for it. A slot always exists, because the table never fills.
    fn slot(&self, key: u64) -> usize {
        // Multiplication by 2^64 divided by the golden ratio spreads neighbouring keys.
        let mut slot = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS;
        while ![0, key].contains(&self.0[2 * slot].load(Relaxed)) {
            slot = (slot + 1) % SLOTS;
        }
        slot
    }

    fn get(&self, key: u64) -> Option<u64> {
        let slot = self.slot(key);
        (self.0[2 * slot].load(Relaxed) == key).then(|| self.0[2 * slot + 1].load(Relaxed))
    }

    fn put(&self, key: u64, value: u64) {
        let slot = self.slot(key);
        self.0[2 * slot].store(key, Relaxed);
        self.0[2 * slot + 1].store(value, Relaxed);
    }

    /// Returns the sum of all values. The pool reads ahead, because the scan is in order of addresses.
    fn sum(&self) -> u64 {
        self.0.chunks_exact(2).map(|slot| slot[1].load(Relaxed)).sum()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "table.pool".into());
    let bytes = 16 * SLOTS as u64;
    let new = !std::path::Path::new(&path).exists();
    if new {
        Pool::create(&[&path], &CreateOptions::new(bytes + MIB))?;
    }
    let dram = 16 * MIB; // half of the size of the table
    let pool = Pool::open(&[&path], &OpenOptions::new(dram).mapping(Mapping::UserOnly))?;
    if new {
        // Fresh memory reads as zeros: every slot is free.
        let addr = pool.alloc(bytes, Lifetime::Permanent)?;
        pool.set_root("table", addr, bytes)?;
    }
    let table = Table(pool.words(pool.root("table")?.addr, 2 * SLOTS)?);
    println!("found: {}", table.sum());

    // Each run adds one to every value.
    for key in 1..=KEYS {
        table.put(key, table.get(key).unwrap_or(0) + 1);
    }
    let good = pool.sync()?;
    println!("updated: {}", table.sum());

    // A batch turns out to be wrong when half of it is done and a part is already on the device.
    for key in 1..=KEYS / 2 {
        table.put(key, 1_000_000);
    }
    println!("wrong: {}", table.sum());
    pool.rollback(good)?;
    println!("rolled back: {}", table.sum());
    println!("{} in at most {} of DRAM", deepram_pool::Bytes(bytes), deepram_pool::Bytes(dram));

    pool.close()?;
    Ok(())
}
