//! Persists of a pool's memory controller beside the bare flush instructions and PMDK's libpmem: the same ranges of shared memory,
//! in turns, in one run.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use anyhow::{Context, ensure};
use deepram_core::Bytes;
use deepram_linux::flush::{Flusher, Method};
use deepram_peers::{Bare, InPlace, Libpmem, dirty};
use deepram_pool::memory::MemoryOptions;
use deepram_pool::{Addr, CreateOptions, Lifetime, Mapping, MemoryFile, OpenOptions, Pool, Words};
use serde::Serialize;

use super::{Report, Scratch};
use crate::output::Table;

/// Memory of each peer, which fits into the caches of the processor.
const MEMORY: usize = 256 << 10;
/// Bytes of a persist.
const SIZES: [usize; 6] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// Goals: rate of the memory controller over that of the bare instructions, and of libpmem.
pub(super) const OVER_BARE: f64 = 0.9;
pub(super) const OVER_LIBPMEM: f64 = 0.95;

/// Memory of a pool's memory controller.
struct InPool {
    pool: Pool,
    start: Addr,
    words: Words,
}

impl InPlace for InPool {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn persist(&self, offset: usize, len: usize) -> io::Result<()> {
        let addr = self.start.offset_by(offset as u64).map_err(io::Error::other)?;
        self.pool.persist(addr, len as u64).map_err(io::Error::other)
    }
}

#[derive(Serialize)]
struct PeerReport {
    method: &'static str,
    goals: [f64; 2],
    rows: Vec<PeerRow>,
    /// Why a peer did not run.
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct PeerRow {
    size_bytes: usize,
    /// Median time of a persist of lines that were all stored to just before, barrier included.
    bare_ns: f64,
    pool_ns: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    libpmem_ns: Option<f64>,
    /// Rate of the pool over that of the bare instructions: median over the rounds.
    over_bare: f64,
    /// Rate of the pool over that of libpmem.
    #[serde(skip_serializing_if = "Option::is_none")]
    over_libpmem: Option<f64>,
}

/// Compares the peers, with the first of these methods or the processor's best.
pub(super) fn run(repeats: u16, methods: &[Method]) -> anyhow::Result<Report> {
    ensure!(methods.len() <= 1, "--methods: give one method for --peer, which compares persists by one");
    let method = methods.first().copied().unwrap_or_else(Method::best);
    let scratch = Scratch::new(Path::new("/dev/shm")).context("a folder in /dev/shm")?;
    let flusher = Flusher::new(method)?;
    let bare = std::fs::File::options().read(true).write(true).create_new(true).open(scratch.file("bare"))?;
    bare.set_len(MEMORY as u64)?;
    let bare = Bare::new(&bare, MEMORY, flusher)?;
    let (pool, files) = pool(&scratch, method)?;
    let mut skipped = Vec::new();
    let libpmem = Libpmem::map(&scratch.file("libpmem"), MEMORY);
    let libpmem = libpmem.map_err(|error| skipped.push(format!("libpmem: {error}"))).ok();
    let mut peers: Vec<&dyn InPlace> = vec![&bare, &pool];
    peers.extend(libpmem.as_ref().map(|peer| peer as &dyn InPlace));
    let rows =
        SIZES.iter().map(|&size| compare(&peers, size, repeats)).collect::<anyhow::Result<Vec<_>>>()?;
    drop(peers);
    let InPool { pool, words, .. } = pool;
    drop(words);
    pool.close()?;
    drop(files);
    let report = PeerReport { method: method.name(), goals: [OVER_BARE, OVER_LIBPMEM], rows, skipped };
    let text = text(&report);
    Report::new(&report, text)
}

/// A small pool with a memory controller, and its files.
fn pool(scratch: &Scratch, method: Method) -> anyhow::Result<(InPool, Vec<PathBuf>)> {
    let (data, memory) = (scratch.file("data.pool"), scratch.file("data.mem"));
    let file = MemoryFile { path: memory.clone(), size: 1 << 20 };
    Pool::create(&[&data], &CreateOptions { memory: vec![file], ..CreateOptions::new(1 << 20) })?;
    let options = MemoryOptions { method, ..MemoryOptions::default() };
    let files = vec![data, memory];
    let pool = Pool::open(&files, &OpenOptions::new(16 << 20).mapping(Mapping::Off).memory(options))?;
    let start = pool.alloc_on(1, MEMORY as u64, Lifetime::Permanent)?;
    let words = pool.words(start, MEMORY / 8)?;
    Ok((InPool { pool, start, words }, files))
}

/// Measures the peers in turns.
fn compare(peers: &[&dyn InPlace], size: usize, repeats: u16) -> anyhow::Result<PeerRow> {
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    // The first round fills page tables and caches.
    for round in 0..=repeats {
        let mut times = vec![0.0; peers.len()];
        for n in 0..peers.len() {
            // Each peer comes first as often as any other.
            let at = (n + usize::from(round)) % peers.len();
            times[at] = time(peers[at], size, u64::from(round))?;
        }
        rounds.push(times);
    }
    rounds.remove(0);
    let median = |of: &dyn Fn(&[f64]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(|times| of(times)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let has_libpmem = peers.len() > 2;
    Ok(PeerRow {
        size_bytes: size,
        bare_ns: median(&|times| times[0]),
        pool_ns: median(&|times| times[1]),
        libpmem_ns: has_libpmem.then(|| median(&|times| times[2])),
        over_bare: median(&|times| times[0] / times[1]),
        over_libpmem: has_libpmem.then(|| median(&|times| times[2] / times[1])),
    })
}

/// Stores to every line of the memory and persists it in parts of `size` bytes. Returns the time of one persist, in
/// nanoseconds.
fn time(peer: &dyn InPlace, size: usize, value: u64) -> anyhow::Result<f64> {
    dirty(peer, 0, MEMORY, value);
    let begin = Instant::now();
    for offset in (0..MEMORY).step_by(size) {
        peer.persist(offset, size)?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / (MEMORY / size) as f64)
}

fn text(report: &PeerReport) -> String {
    let headings = [
        "persist of",
        "bare, ns",
        "pool, ns",
        "libpmem, ns",
        "rate over bare",
        "rate over libpmem",
        "<goals",
    ];
    let mut table = Table::new(&headings);
    for row in &report.rows {
        let met = row.over_bare >= OVER_BARE && row.over_libpmem.is_none_or(|over| over >= OVER_LIBPMEM);
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        table.row(vec![
            Bytes(row.size_bytes as u64).to_string(),
            format!("{:.0}", row.bare_ns),
            format!("{:.0}", row.pool_ns),
            or_none(row.libpmem_ns.map(|ns| format!("{ns:.0}"))),
            format!("{:.3}", row.over_bare),
            or_none(row.over_libpmem.map(|over| format!("{over:.3}"))),
            if met { "met" } else { "missed" }.into(),
        ]);
    }
    let skipped: String = report.skipped.iter().map(|reason| format!("skipped: {reason}\n")).collect();
    format!(
        "Persists by {} of lines that were just stored to, on shared memory; goals: {OVER_BARE} of the bare instructions and \
         {OVER_LIBPMEM} of libpmem\n\n{}{skipped}",
        report.method,
        table.render()
    )
}
