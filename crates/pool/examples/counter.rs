//! A persistent counter: each run adds one to it.
//!
//! `cargo run --release -p deepram-pool --example counter -- counter.pool`

use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "counter.pool".into());
    let new = !std::path::Path::new(&path).exists();
    if new {
        // The file takes 2.4 times the memory, and more for pools below 1 GiB: 4 MiB take 14.75 MiB.
        Pool::create(&[&path], &CreateOptions::new(4 * MIB))?;
    }

    // 16 MiB of DRAM, including the pool's tables. `UserOnly` needs no privilege: the program uses the memory itself and
    // passes no pointer into it to a system call.
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::UserOnly))?;
    if new {
        let addr = pool.alloc(8, Lifetime::Permanent)?;
        pool.set_root("counter", addr, 8)?; // the name under which later runs find it
    }

    let words = pool.words(pool.root("counter")?.addr, 1)?;
    let count = words[0].fetch_add(1, Relaxed) + 1; // an ordinary store to memory
    let token = pool.sync()?; // durable from here on, even after a power cut
    println!("run {count}, durable as token {token}");

    pool.close()?;
    Ok(())
}
