//! A counter that survives: each run adds one to it.
//!
//! `cargo run --release -p deepram-pool --example counter -- counter.pool`

use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "counter.pool".into());
    let new = !std::path::Path::new(&path).exists();
    if new {
        // 4 MiB of memory in a file of a little over twice that.
        Pool::create(&[&path], &CreateOptions::new(4 * MIB))?;
    }

    // 16 MiB of DRAM, the pool's tables included. `UserOnly`: the program uses the memory itself and hands no pointer
    // into it to system calls, so it needs no privilege.
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::UserOnly))?;
    if new {
        let addr = pool.alloc(8, Lifetime::Permanent)?;
        pool.set_root("counter", addr, 8)?; // the name under which later runs find it
    }

    let words = pool.words(pool.root("counter")?.addr, 1)?;
    let count = words[0].fetch_add(1, Relaxed) + 1; // a store to memory, as any other
    let token = pool.sync()?; // durable from here on: a power cut now loses nothing
    println!("run {count}, durable as token {token}");

    pool.close()?;
    Ok(())
}
