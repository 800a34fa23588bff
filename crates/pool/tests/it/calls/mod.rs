//! Every fallible operation of an open pool, by name.

use deepram_pool::log::TransactionLog;
use deepram_pool::{Addr, Epoch, Lifetime, OpenOptions, Permissions, Persist, Pool, Result, Retention};

pub(crate) const MIB: u64 = 1 << 20;
const LOG: &str = "log";

/// The allocations, token and log of a filled pool.
pub(crate) struct Known {
    /// 1 MiB of ordinary memory.
    pub(crate) plain: Addr,
    /// 64 KiB of a persist region.
    pub(crate) lines: Addr,
    pub(crate) token: Epoch,
    pub(crate) persist: Persist,
    pub(crate) log: TransactionLog,
}

/// Options with enough DRAM for everything that [`fill`] creates.
pub(crate) fn options() -> OpenOptions {
    OpenOptions::new(24 * MIB)
}

/// Allocates, stores, syncs and persists, so that every operation has data to work on.
pub(crate) fn fill(pool: &Pool) -> Known {
    let plain = pool.alloc(MIB, Lifetime::Permanent).unwrap();
    pool.set_root("plain", plain, MIB).unwrap();
    let lines = pool.alloc(64 << 10, Lifetime::Permanent).unwrap();
    pool.create_pmem_region(lines, 64 << 10).unwrap();
    let log = TransactionLog::create(pool, LOG, 64 << 10).unwrap();
    pool.write(plain, &[1; 4096]).unwrap();
    pool.sync().unwrap();
    pool.write(plain, &[2; 4096]).unwrap();
    let token = pool.sync().unwrap();
    pool.write(lines, &[3; 64]).unwrap();
    let persist = pool.persist_async(lines, 64).unwrap();
    pool.wait(persist).unwrap();
    // Dirty data that is in no token.
    pool.write(plain, &[4; 4096]).unwrap();
    Known { plain, lines, token, persist, log }
}

type Call = fn(&Pool, &Known) -> Result<()>;

/// The operations. On an unmapped pool, operations that need a mapping fail for that reason instead.
pub(crate) fn calls() -> Vec<(&'static str, Call)> {
    vec![
        ("alloc", |pool, _| pool.alloc(1, Lifetime::Permanent).map(drop)),
        ("alloc_on", |pool, _| pool.alloc_on(0, 1, Lifetime::Permanent).map(drop)),
        ("free", |pool, known| pool.free(known.plain, MIB)),
        ("setperms", |pool, known| {
            pool.setperms(known.plain, MIB, Permissions::read_write(Lifetime::Temporary))
        }),
        ("permissions", |pool, known| pool.permissions(known.plain).map(drop)),
        ("sync", |pool, _| pool.sync().map(drop)),
        ("rollback", |pool, known| pool.rollback(known.token)),
        ("drop_token", |pool, known| pool.drop_token(Epoch(known.token.0 - 1))),
        ("set_retention", |pool, _| pool.set_retention(Retention::KeepLast(8))),
        ("history", |pool, _| pool.history().map(drop)),
        ("info", |pool, _| pool.info().map(drop)),
        ("check", |pool, _| pool.check(&mut |_, _| {}).map(drop)),
        ("compact", |pool, _| pool.compact(&mut |_, _| {}).map(drop)),
        ("read", |pool, known| pool.read(known.plain, &mut [0; 8])),
        ("write", |pool, known| pool.write(known.plain, &[5; 8])),
        ("read_at", |pool, known| pool.read_at(known.token, known.plain, &mut [0; 8])),
        ("load", |pool, known| pool.load(known.plain, &mut [0; 8])),
        ("store", |pool, known| pool.store(known.plain, &[5; 8])),
        ("gather", |pool, known| pool.gather(&[known.plain], 8, &mut [0; 8])),
        ("scatter", |pool, known| pool.scatter(&[known.plain], 8, &[5; 8])),
        ("roots", |pool, _| pool.roots().map(drop)),
        ("roots_at", |pool, known| pool.roots_at(known.token).map(drop)),
        ("root", |pool, _| pool.root("plain").map(drop)),
        ("set_root", |pool, known| pool.set_root("other", known.plain, MIB)),
        ("remove_root", |pool, _| pool.remove_root("plain")),
        ("will_need", |pool, known| pool.will_need(known.plain, MIB)),
        ("will_need_pages", |pool, known| pool.will_need_pages(&[known.plain])),
        ("evict_range", |pool, known| pool.evict_range(known.plain, MIB)),
        ("pin", |pool, known| pool.pin(known.plain, 4096, true)),
        ("unpin", |pool, known| pool.pin(known.plain, 4096, false)),
        ("set_dram", |pool, _| pool.set_dram(25 * MIB)),
        ("create_pmem_region", |pool, known| pool.create_pmem_region(known.plain, MIB)),
        ("remove_pmem_region", |pool, known| pool.remove_pmem_region(known.lines, 1)),
        ("is_pmem_region", |pool, known| pool.is_pmem_region(known.lines).map(drop)),
        ("persist", |pool, known| pool.persist(known.lines, 64)),
        ("persist_async", |pool, known| pool.persist_async(known.lines, 64).map(drop)),
        ("wait", |pool, known| pool.wait(known.persist)),
        ("pointer", |pool, known| pool.pointer(known.plain, 8).map(drop)),
        ("words", |pool, known| pool.words(known.plain, 1).map(drop)),
        ("log: create", |pool, _| TransactionLog::create(pool, "second", 64 << 10).map(drop)),
        ("log: open", |pool, _| TransactionLog::open(pool, LOG).map(drop)),
        ("log: commit", |_, known| {
            let mut transaction = known.log.begin();
            transaction.append(b"record");
            transaction.commit().map(drop)
        }),
        ("log: commit_async", |_, known| known.log.begin().commit_async().map(drop)),
        ("log: next_sequence", |_, known| known.log.next_sequence().map(drop)),
        ("log: committed", |_, known| known.log.committed().map(drop)),
        ("log: truncate", |_, known| known.log.truncate(2)),
    ]
}
