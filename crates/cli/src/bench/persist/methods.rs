//! Methods to make 64 bytes durable that need no other program.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_core::Addr;
use deepram_peers::DirectFile;
use deepram_pool::log::TransactionLog;
use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool, PoolError};
use deepram_trace::workload::mix64;

use super::super::Scratch;

/// Size of an update, bytes.
const LINE: u64 = 64;
/// Size of the transaction log, bytes.
const LOG_BYTES: u64 = 1 << 20;

pub(super) const DSYNC_4K: &str = "dsync-4k";
pub(super) const DSYNC_512: &str = "dsync-512";

/// Makes one update durable.
pub(super) type Step<'a> = Box<dyn FnMut() -> anyhow::Result<()> + Send + 'a>;

/// A method to make updates durable.
pub(super) struct UpdateMethod {
    pub(super) name: &'static str,
    /// Makes the step that thread number `usize` repeats.
    pub(super) make: for<'a> fn(&'a Bench, usize) -> anyhow::Result<Step<'a>>,
}

/// All methods, in the order of the table.
pub(super) const METHODS: [UpdateMethod; 7] = [
    UpdateMethod { name: "persist", make: persist },
    UpdateMethod { name: "persist-async", make: persist_async },
    UpdateMethod { name: "transaction-log", make: transaction },
    UpdateMethod { name: DSYNC_512, make: |bench, n| dsync(bench, n, 512) },
    UpdateMethod { name: DSYNC_4K, make: |bench, n| dsync(bench, n, 4096) },
    UpdateMethod { name: "overwrite-fdatasync", make: overwrite },
    UpdateMethod { name: "append-fdatasync", make: append },
];

/// The files and the pool that the methods update.
pub(super) struct Bench {
    pool: Pool,
    region: Addr,
    log: TransactionLog,
    size: u64,
    direct: DirectFile,
    buffered: File,
    folder: std::path::PathBuf,
    /// Persists in flight for each thread of `persist-async`.
    outstanding: usize,
    /// Number of updates so far, from which each update draws its offset; no two rounds use the same sequence.
    updates: AtomicU64,
}

impl Bench {
    pub(super) fn new(scratch: &Scratch, size: u64, outstanding: usize) -> anyhow::Result<Self> {
        let size = size / (1 << 20) * (1 << 20);
        let file = scratch.file("pool");
        let memory = size + LOG_BYTES;
        Pool::create(&[&file], &CreateOptions { pmem: memory, ..CreateOptions::new(memory) })?;
        let pool = Pool::open(&[&file], &OpenOptions::new(size + size / 4 + (64 << 20)))?;
        let region = pool.alloc(size, Lifetime::Permanent)?;
        let words = pool.words(region, (size / 8) as usize)?;
        words.iter().step_by(512).for_each(|word| word.store(1, Relaxed));
        pool.create_pmem_region(region, size)?;
        let log = TransactionLog::create(&pool, "log", LOG_BYTES)?;
        let direct = DirectFile::create(&scratch.file("direct"), size)?;
        let buffered_path = scratch.file("buffered");
        drop(DirectFile::create(&buffered_path, size)?);
        let buffered = File::options().read(true).write(true).open(&buffered_path)?;
        let folder = scratch.file("appended");
        std::fs::create_dir(&folder)?;
        Ok(Self {
            pool,
            region,
            log,
            size,
            direct,
            buffered,
            folder,
            outstanding,
            updates: AtomicU64::new(0),
        })
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        drop(self.log);
        Ok(self.pool.close()?)
    }

    /// Random offset of the next update, a multiple of `unit`.
    fn next_offset(&self, unit: u64) -> u64 {
        mix64(self.updates.fetch_add(1, Relaxed)) % (self.size / unit) * unit
    }

    /// Stores to a random line of the region and returns its address.
    fn store(&self, words: &[AtomicU64]) -> anyhow::Result<Addr> {
        let at = self.next_offset(LINE);
        for word in &words[(at / 8) as usize..][..8] {
            word.fetch_add(1, Relaxed);
        }
        Ok(self.region.offset_by(at)?)
    }
}

fn persist(bench: &Bench, _: usize) -> anyhow::Result<Step<'_>> {
    let words = bench.pool.words(bench.region, (bench.size / 8) as usize)?;
    Ok(Box::new(move || Ok(bench.pool.persist(bench.store(&words)?, LINE)?)))
}

fn persist_async(bench: &Bench, _: usize) -> anyhow::Result<Step<'_>> {
    let words = bench.pool.words(bench.region, (bench.size / 8) as usize)?;
    let mut in_flight = VecDeque::new();
    Ok(Box::new(move || {
        if in_flight.len() == bench.outstanding
            && let Some(oldest) = in_flight.pop_front()
        {
            bench.pool.wait(oldest)?;
        }
        in_flight.push_back(bench.pool.persist_async(bench.store(&words)?, LINE)?);
        Ok(())
    }))
}

fn transaction(bench: &Bench, _: usize) -> anyhow::Result<Step<'_>> {
    Ok(Box::new(move || {
        loop {
            let mut transaction = bench.log.begin();
            transaction.append(&[7; LINE as usize]);
            match transaction.commit() {
                Ok(_) => return Ok(()),
                // An application truncates its log once it has applied the logged updates.
                Err(PoolError::TransactionLogFull { .. }) => {
                    bench.log.truncate(bench.log.next_sequence()?)?
                }
                Err(error) => return Err(error.into()),
            }
        }
    }))
}

fn dsync(bench: &Bench, _: usize, unit: u64) -> anyhow::Result<Step<'_>> {
    Ok(Box::new(move || Ok(bench.direct.overwrite_durably(bench.next_offset(unit), unit as usize)?)))
}

fn overwrite(bench: &Bench, _: usize) -> anyhow::Result<Step<'_>> {
    Ok(Box::new(move || {
        bench.buffered.write_all_at(&[7; LINE as usize], bench.next_offset(LINE))?;
        Ok(bench.buffered.sync_data()?)
    }))
}

fn append(bench: &Bench, n: usize) -> anyhow::Result<Step<'_>> {
    let mut file = File::create(bench.folder.join(n.to_string()))?;
    Ok(Box::new(move || {
        file.write_all(&[7; LINE as usize])?;
        Ok(file.sync_data()?)
    }))
}
