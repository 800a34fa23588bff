//! The ways to make 64 bytes durable that need no other program.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_core::Addr;
use deepram_pool::log::TransactionLog;
use deepram_pool::peer::DirectFile;
use deepram_pool::{CreateOptions, Lifetime, OpenOptions, Pool, PoolError};

use super::super::{Scratch, mix};

/// Bytes of an update.
const LINE: u64 = 64;
/// Bytes of the transaction log.
const LOG_BYTES: u64 = 1 << 20;

pub(super) const DSYNC_4K: &str = "dsync-4k";
pub(super) const DSYNC_512: &str = "dsync-512";

/// One update.
pub(super) type Step<'a> = Box<dyn FnMut() -> anyhow::Result<()> + Send + 'a>;

/// A way to make updates durable.
pub(super) struct Way {
    pub(super) name: &'static str,
    /// What the thread of this number does again and again.
    pub(super) make: for<'a> fn(&'a Bench, usize) -> anyhow::Result<Step<'a>>,
}

/// In the order in which they are shown.
pub(super) const WAYS: [Way; 7] = [
    Way { name: "persist", make: persist },
    Way { name: "persist-async", make: persist_async },
    Way { name: "transaction-log", make: transaction },
    Way { name: DSYNC_512, make: |bench, n| dsync(bench, n, 512) },
    Way { name: DSYNC_4K, make: |bench, n| dsync(bench, n, 4096) },
    Way { name: "overwrite-fdatasync", make: overwrite },
    Way { name: "append-fdatasync", make: append },
];

/// The files and the pool that the ways work on.
pub(super) struct Bench {
    pool: Pool,
    region: Addr,
    log: TransactionLog,
    size: u64,
    direct: DirectFile,
    buffered: File,
    folder: std::path::PathBuf,
    /// Persists that a thread has under way in the asynchronous way.
    outstanding: usize,
    /// Numbers the updates of all threads, so that no two rounds touch the same places in turn.
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

    /// Where the next update goes, a multiple of `unit`.
    fn place(&self, unit: u64) -> u64 {
        mix(self.updates.fetch_add(1, Relaxed)) % (self.size / unit) * unit
    }

    /// Stores to a line of the region; says where it is.
    fn store(&self, words: &[AtomicU64]) -> anyhow::Result<Addr> {
        let at = self.place(LINE);
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
    let mut under_way = VecDeque::new();
    Ok(Box::new(move || {
        if under_way.len() == bench.outstanding
            && let Some(oldest) = under_way.pop_front()
        {
            bench.pool.wait(oldest)?;
        }
        under_way.push_back(bench.pool.persist_async(bench.store(&words)?, LINE)?);
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
                // As an application does when it has put what was logged where it belongs.
                Err(PoolError::TransactionLogFull { .. }) => {
                    bench.log.truncate(bench.log.next_sequence()?)?
                }
                Err(error) => return Err(error.into()),
            }
        }
    }))
}

fn dsync(bench: &Bench, _: usize, unit: u64) -> anyhow::Result<Step<'_>> {
    Ok(Box::new(move || Ok(bench.direct.overwrite_durably(bench.place(unit), unit as usize)?)))
}

fn overwrite(bench: &Bench, _: usize) -> anyhow::Result<Step<'_>> {
    Ok(Box::new(move || {
        bench.buffered.write_all_at(&[7; LINE as usize], bench.place(LINE))?;
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
