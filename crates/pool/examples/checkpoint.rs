//! A long computation that continues after it was killed: heat spreads along a rod that lies in memory of a pool, and every
//! 20th step ends with a checkpoint.
//!
//! `cargo run --release -p deepram-pool --example checkpoint -- rod.pool`
//!
//! A second argument is a step at which the process aborts, as if it crashed there.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use deepram_pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool, Words};

const MIB: u64 = 1 << 20;
const CELLS: usize = 128 << 10;
const STEPS: u64 = 60;
/// Steps from checkpoint to checkpoint.
const INTERVAL: u64 = 20;

/// The whole state. Word 0 counts the steps done; two rows of cells follow. A step reads one row and writes the other.
struct Rod(Words);

impl Rod {
    const WORDS: usize = 1 + 2 * CELLS;

    fn steps(&self) -> u64 {
        self.0[0].load(Relaxed)
    }

    /// The row that holds the heat after this many steps.
    fn row(&self, steps: u64) -> &[AtomicU64] {
        let first = 1 + (steps % 2) as usize * CELLS;
        &self.0[first..first + CELLS]
    }

    /// Each cell keeps half of its heat and gives a quarter to each neighbour.
    fn step(&self) {
        let done = self.steps();
        let (from, to) = (self.row(done), self.row(done + 1));
        let heat = |cell: usize| from[cell.min(CELLS - 1)].load(Relaxed);
        for (cell, to) in to.iter().enumerate() {
            to.store((heat(cell.saturating_sub(1)) + 2 * heat(cell) + heat(cell + 1)) / 4, Relaxed);
        }
        self.0[0].store(done + 1, Relaxed);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "rod.pool".into());
    let crash = std::env::args().nth(2).map(|step| step.parse::<u64>()).transpose()?;
    let bytes = 8 * Rod::WORDS as u64;

    let new = !std::path::Path::new(&path).exists();
    if new {
        Pool::create(&[&path], &CreateOptions::new(bytes + MIB))?;
    }
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::UserOnly))?;
    // The root is missing too if the first run crashed before its first checkpoint.
    if pool.root("rod").is_err() {
        let addr = pool.alloc(bytes, Lifetime::Permanent)?;
        pool.set_root("rod", addr, bytes)?;
        let rod = Rod(pool.words(addr, Rod::WORDS)?);
        rod.row(0)[CELLS / 2].store(1 << 40, Relaxed);
    }
    let rod = Rod(pool.words(pool.root("rod")?.addr, Rod::WORDS)?);
    println!("start at step {}", rod.steps());

    while rod.steps() < STEPS {
        rod.step();
        if crash == Some(rod.steps()) {
            std::process::abort();
        }
        if rod.steps().is_multiple_of(INTERVAL) {
            let token = pool.sync()?; // a crash from here on costs the steps after this one
            println!("step {}: checkpoint, token {token}", rod.steps());
        }
    }
    let row = rod.row(STEPS);
    let warm = row.iter().filter(|cell| cell.load(Relaxed) > 0).count();
    println!("end: {warm} warm cells, {} in the middle one", row[CELLS / 2].load(Relaxed));

    pool.close()?;
    Ok(())
}
