//! A note with history: a program can read every version, and return to it.
//!
//! `cargo run --release -p deepram-pool --example time_travel -- note.pool`

use deepram_pool::{Addr, CreateOptions, Epoch, Lifetime, Mapping, OpenOptions, Pool, Retention};

const MIB: u64 = 1 << 20;
const NOTE: usize = 64;

fn write(pool: &Pool, addr: Addr, text: &str) -> deepram_pool::Result<Epoch> {
    let mut note = [b' '; NOTE];
    note[..text.len()].copy_from_slice(text.as_bytes());
    pool.write(addr, &note)?;
    pool.sync()
}

/// Returns the note as it was at a token, without changing the present.
fn read_at(pool: &Pool, token: Epoch, addr: Addr) -> deepram_pool::Result<String> {
    let mut note = [0; NOTE];
    pool.read_at(token, addr, &mut note)?;
    Ok(String::from_utf8_lossy(&note).trim_end().to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "note.pool".into());
    let new = !std::path::Path::new(&path).exists();
    if new {
        let options = CreateOptions { retention: Retention::KeepLast(4), ..CreateOptions::new(4 * MIB) };
        Pool::create(&[&path], &options)?;
    }
    // The program only calls `read` and `write`, so the pool is not mapped.
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::Off))?;
    if new {
        let addr = pool.alloc(NOTE as u64, Lifetime::Permanent)?;
        pool.set_root("note", addr, NOTE as u64)?;
        write(&pool, addr, "a first draft")?;
    }
    let addr = pool.root("note")?.addr;

    // The versions of earlier runs. A token older than the note's allocation has no note.
    for version in pool.history()? {
        if !pool.roots_at(version.token)?.is_empty() {
            println!("token {}: {}", version.token, read_at(&pool, version.token, addr)?);
        }
    }

    let better = write(&pool, addr, "a better draft")?;
    let worse = write(&pool, addr, "a draft that nobody likes")?;
    println!("token {better}: {}", read_at(&pool, better, addr)?);
    println!("token {worse}: {}", read_at(&pool, worse, addr)?);

    // Return to the better draft for good: later tokens are gone, and the next run finds this version.
    pool.rollback(better)?;
    let mut note = [0; NOTE];
    pool.read(addr, &mut note)?;
    println!("now: {}", String::from_utf8_lossy(&note).trim_end());

    pool.close()?;
    Ok(())
}
