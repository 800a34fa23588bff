//! Per-transaction logs in a persist region (FlatFlash, section 3.5): threads log and commit transactions
//! independently of each other, at byte granularity, without a shared log buffer.
//!
//! ```no_run
//! # fn main() -> deepram_pool::Result<()> {
//! # let pool = deepram_pool::Pool::open(&["data.pool"], &deepram_pool::OpenOptions::new(64 << 20))?;
//! use deepram_pool::log::TransactionLog;
//!
//! let log = TransactionLog::create(&pool, "orders", 1 << 20)?;
//! let mut transaction = log.begin();
//! transaction.append(b"debit 7");
//! transaction.append(b"credit 9");
//! let done = transaction.commit()?;
//!
//! // After a crash:
//! let log = TransactionLog::open(&pool, "orders")?;
//! for transaction in log.committed()? {
//!     println!("{}: {} records", transaction.sequence, transaction.records.len());
//! }
//! log.truncate(done + 1)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//! The log is a persist region with a root of the log's name. It begins with a header of 64 bytes, followed by slots
//! of 256 bytes. A transaction takes as many slots as it needs, in any place. Numbers are little-endian.
//!
//! | offset in the header | bytes | content |
//! |---:|---:|---|
//! | 0 | 8 | `DRTXLOG1` |
//! | 8 | 4 | CRC-32C of these 64 bytes, with these four as zeros |
//! | 12 | 4 | number of slots |
//! | 16 | 8 | transactions below this sequence are truncated |
//!
//! | offset in a slot | bytes | content |
//! |---:|---:|---|
//! | 0 | 4 | CRC-32C of the slot up to the end of its bytes, with these four as zeros |
//! | 4 | 2 | number of this piece in its transaction |
//! | 6 | 2 | pieces of the transaction |
//! | 8 | 2 | bytes in this piece |
//! | 10 | 6 | zero |
//! | 16 | 8 | sequence of the transaction, above 0 |
//! | 24 | | bytes |
//!
//! The bytes of a transaction's pieces, in order, are its records; each record follows its length in four bytes. A
//! transaction is committed if all of its pieces are present with valid checksums. All other slots are free.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use deepram_core::units::PAGE_BYTES;
use deepram_core::{Addr, Bytes};

use crate::error::{PoolError, Result};
use crate::format::codec::{Reader, Writer, crc32c_without};
use crate::pool::{Lifetime, Persist, Pool};
use deepram_linux::lock::lock;

const MAGIC: u64 = u64::from_le_bytes(*b"DRTXLOG1");
const HEADER: usize = 64;
const SLOT: usize = 256;
const FIXED: usize = 24;
/// Bytes of a transaction in one slot.
const PIECE: usize = SLOT - FIXED;
/// Upper bound of sequence numbers.
const END: u64 = 1 << 62;
/// Largest number of slots of a transaction.
const MOST_PIECES: usize = u16::MAX as usize;

/// A log of transactions, which any number of threads may share.
///
/// The log caches what it has read: open it again after a [`Pool::rollback`].
pub struct TransactionLog {
    pool: Pool,
    name: String,
    addr: Addr,
    slots: u32,
    state: Mutex<LogState>,
}

struct LogState {
    free: Vec<u32>,
    /// The slots of each transaction that is not truncated.
    taken: BTreeMap<u64, Vec<u32>>,
    next: u64,
    low: u64,
}

/// A transaction in progress. Nothing of it is in the log before its commit; dropping it discards it.
#[must_use = "nothing is logged before the commit"]
pub struct Transaction<'a> {
    log: &'a TransactionLog,
    bytes: Vec<u8>,
}

/// A transaction found in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Sequence number of the transaction; transactions are numbered in the order of their commits.
    pub sequence: u64,
    /// The records of the transaction, in the order in which they were appended.
    pub records: Vec<Vec<u8>>,
}

/// A valid slot.
struct Piece {
    slot: u32,
    sequence: u64,
    number: u16,
    pieces: u16,
    bytes: Vec<u8>,
}

/// Pieces by the sequence number of their transaction.
type Pieces = BTreeMap<u64, Vec<Piece>>;

impl TransactionLog {
    /// Creates a log of `capacity` bytes under a root with this name. Syncs the pool, as [`Pool::create_pmem_region`]
    /// does.
    ///
    /// # Errors
    /// [`PoolError::Option`] for a capacity that holds no transaction; [`PoolError::Root`] for a name that is taken
    /// or invalid; the errors of [`Pool::alloc`] and [`Pool::create_pmem_region`].
    pub fn create(pool: &Pool, name: &str, capacity: u64) -> Result<Self> {
        let slots = capacity.saturating_sub(HEADER as u64) / SLOT as u64;
        let Some(slots) = u32::try_from(slots).ok().filter(|&slots| slots > 0) else {
            let problem =
                format!("{} is not between {} and 1 TiB", Bytes(capacity), Bytes((HEADER + SLOT) as u64));
            return Err(PoolError::Option { option: "capacity", problem });
        };
        if pool.roots()?.iter().any(|root| root.name == name) {
            let problem = "a root of this name exists already";
            return Err(PoolError::Root { name: name.into(), problem });
        }
        let addr = pool.alloc(capacity, Lifetime::Permanent)?;
        let made = (|| {
            let log = Self::with(pool, name, addr, slots, 1);
            pool.write(addr, &log.header(1))?;
            pool.set_root(name, addr, capacity)?;
            pool.create_pmem_region(addr, capacity.next_multiple_of(PAGE_BYTES))?;
            Ok(log)
        })();
        if made.is_err() {
            // The caller gets the first error; nothing of the log has become durable.
            let _ = pool.remove_root(name);
            let _ = pool.free(addr, capacity);
        }
        made
    }

    /// Opens the log with this name and finds its committed transactions.
    ///
    /// # Errors
    /// [`PoolError::Root`] if no such root exists or it is not a transaction log; the errors of [`Pool::read`].
    pub fn open(pool: &Pool, name: &str) -> Result<Self> {
        let root = pool.root(name)?;
        let no_log = |problem| PoolError::Root { name: name.into(), problem };
        if root.len < (HEADER + SLOT) as u64 {
            return Err(no_log("it is too short for a transaction log"));
        }
        let mut header = [0; HEADER];
        pool.read(root.addr, &mut header)?;
        let mut fields = Reader::new("transaction log", &header);
        if fields.u64() != Ok(MAGIC) {
            return Err(no_log("it is not a transaction log"));
        }
        if fields.u32() != Ok(crc32c_without(&header, 8)) {
            return Err(no_log("the header of the transaction log is damaged"));
        }
        let (Ok(slots), Ok(low)) = (fields.u32(), fields.u64()) else {
            return Err(no_log("the header of the transaction log is too short"));
        };
        if low >= END {
            return Err(no_log("the transaction log begins beyond sequence 2^62"));
        }
        if u64::from(slots) * SLOT as u64 + HEADER as u64 > root.len {
            return Err(no_log("the transaction log is longer than its root says"));
        }
        let log = Self::with(pool, name, root.addr, slots, low);
        let (pieces, free) = log.scan(low)?;
        let mut state = log.state()?;
        state.free = free;
        // An incomplete transaction also uses up its sequence number.
        state.next = pieces.keys().last().map_or(low, |last| last + 1).max(1);
        for (sequence, pieces) in pieces {
            let slots = pieces.iter().map(|piece| piece.slot);
            if records(&pieces).is_some() {
                state.taken.insert(sequence, slots.collect());
            } else {
                state.free.extend(slots);
            }
        }
        drop(state);
        Ok(log)
    }

    fn with(pool: &Pool, name: &str, addr: Addr, slots: u32, low: u64) -> Self {
        // Slots are popped from the end, so the first slots are used first.
        let state =
            LogState { free: (0..slots).rev().collect(), taken: BTreeMap::new(), next: low.max(1), low };
        Self { pool: pool.clone(), name: name.into(), addr, slots, state: Mutex::new(state) }
    }

    /// In a forked child another thread of the parent may have held the lock, so the check of the pool comes first.
    fn state(&self) -> Result<MutexGuard<'_, LogState>> {
        self.pool.ensure_live()?;
        Ok(lock(&self.state))
    }

    fn header(&self, low: u64) -> Vec<u8> {
        let mut w = Writer::default();
        w.u64(MAGIC);
        w.u32(0);
        w.u32(self.slots);
        w.u64(low);
        w.0.resize(HEADER, 0);
        with_checksum(w.0, 8)
    }

    fn slot_addr(&self, slot: u32) -> Result<Addr> {
        Ok(self.addr.offset_by(HEADER as u64 + u64::from(slot) * SLOT as u64)?)
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Transaction<'_> {
        Transaction { log: self, bytes: Vec::new() }
    }

    /// Returns the sequence number of the next transaction.
    ///
    /// # Errors
    /// [`PoolError::Closed`], [`PoolError::ForkedChild`].
    pub fn next_sequence(&self) -> Result<u64> {
        Ok(self.state()?.next)
    }

    /// Returns the transactions that are committed and not truncated, in the order of their commits.
    ///
    /// # Errors
    /// The errors of [`Pool::read`].
    pub fn committed(&self) -> Result<Vec<Committed>> {
        let low = self.state()?.low;
        let (pieces, _) = self.scan(low)?;
        let found = pieces
            .into_iter()
            .filter_map(|(sequence, pieces)| Some(Committed { sequence, records: records(&pieces)? }));
        Ok(found.collect())
    }

    /// Removes the transactions below this sequence number, durably, and frees their slots.
    ///
    /// # Errors
    /// The errors of [`Pool::persist`]: no transaction is removed then.
    pub fn truncate(&self, below: u64) -> Result<()> {
        let mut state = self.state()?;
        let low = below.max(state.low);
        self.pool.write(self.addr, &self.header(low))?;
        self.pool.persist(self.addr, HEADER as u64)?;
        state.low = low;
        let kept = state.taken.split_off(&low);
        let gone = std::mem::replace(&mut state.taken, kept);
        state.free.extend(gone.into_values().flatten());
        state.next = state.next.max(low);
        Ok(())
    }

    /// Returns the pieces of each transaction from `low` on, and the slots without a piece.
    fn scan(&self, low: u64) -> Result<(Pieces, Vec<u32>)> {
        const TOGETHER: u32 = 256;
        let (mut pieces, mut free) = (Pieces::new(), Vec::new());
        let mut bytes = vec![0; TOGETHER as usize * SLOT];
        for first in (0..self.slots).step_by(TOGETHER as usize) {
            let count = TOGETHER.min(self.slots - first);
            let bytes = &mut bytes[..count as usize * SLOT];
            self.pool.read(self.slot_addr(first)?, bytes)?;
            for (slot, bytes) in (first..).zip(bytes.chunks_exact(SLOT)) {
                match piece(slot, bytes).filter(|piece| piece.sequence >= low) {
                    Some(piece) => pieces.entry(piece.sequence).or_default().push(piece),
                    None => free.push(slot),
                }
            }
        }
        Ok((pieces, free))
    }

    /// Writes a transaction to slots of its own. Returns its sequence number and the persist of its last piece.
    fn write(&self, bytes: &[u8]) -> Result<(u64, Persist)> {
        let count = bytes.len().div_ceil(PIECE).max(1);
        let (sequence, slots) = {
            let mut state = self.state()?;
            if count > MOST_PIECES || count > state.free.len() {
                let (needed, free) = (count * SLOT, state.free.len() * SLOT);
                return Err(PoolError::TransactionLogFull {
                    name: self.name.clone(),
                    needed: Bytes(needed as u64),
                    free: Bytes(free as u64),
                });
            }
            let at = state.free.len() - count;
            let slots = state.free.split_off(at);
            let sequence = state.next;
            state.next += 1;
            state.taken.insert(sequence, slots.clone());
            (sequence, slots)
        };
        let mut last = None;
        // An empty transaction has one piece too.
        for (n, slot) in slots.iter().enumerate() {
            let part = &bytes[(n * PIECE).min(bytes.len())..((n + 1) * PIECE).min(bytes.len())];
            let image = slot_image(sequence, n as u16, count as u16, part);
            let addr = self.slot_addr(*slot)?;
            self.pool.write(addr, &image)?;
            last = Some(self.pool.persist_async(addr, image.len() as u64)?);
        }
        Ok((sequence, last.expect("a transaction has a piece")))
    }
}

impl Transaction<'_> {
    /// Adds a record.
    ///
    /// # Panics
    /// If the record is longer than 4 GiB, which no log can hold.
    pub fn append(&mut self, record: &[u8]) {
        let len = u32::try_from(record.len()).expect("a record is shorter than 4 GiB");
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(record);
    }

    /// Makes the transaction durable and returns its sequence number. Commits of several threads share device writes.
    ///
    /// # Errors
    /// [`PoolError::TransactionLogFull`], after which [`TransactionLog::truncate`] makes room for a new attempt; the
    /// errors of [`Pool::persist`], after which the transaction may or may not be durable.
    pub fn commit(self) -> Result<u64> {
        let (log, (sequence, persist)) = (self.log, self.log.write(&self.bytes)?);
        log.pool.wait(persist)?;
        Ok(sequence)
    }

    /// Commits without waiting: the transaction is durable when [`Pool::wait`] has returned for the persist.
    ///
    /// # Errors
    /// The errors of [`Transaction::commit`].
    pub fn commit_async(self) -> Result<(u64, Persist)> {
        self.log.write(&self.bytes)
    }
}

/// Returns the bytes with their checksum at `at`.
fn with_checksum(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    let crc = crc32c_without(&bytes, at);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn slot_image(sequence: u64, n: u16, pieces: u16, part: &[u8]) -> Vec<u8> {
    let mut w = Writer::default();
    w.u32(0);
    w.u16(n);
    w.u16(pieces);
    w.u16(part.len() as u16);
    w.bytes(&[0; 6]);
    w.u64(sequence);
    debug_assert_eq!(w.0.len(), FIXED);
    w.bytes(part);
    with_checksum(w.0, 0)
}

fn piece(slot: u32, bytes: &[u8]) -> Option<Piece> {
    let mut fields = Reader::new("transaction slot", bytes);
    let crc = fields.u32().ok()?;
    let (number, pieces, len) = (fields.u16().ok()?, fields.u16().ok()?, usize::from(fields.u16().ok()?));
    fields.take(6).ok()?;
    let sequence = fields.u64().ok()?;
    let image = bytes.get(..FIXED + len)?;
    let valid = (1..END).contains(&sequence) && crc == crc32c_without(image, 0);
    valid.then(|| Piece { slot, sequence, number, pieces, bytes: image[FIXED..].to_vec() })
}

/// Returns the records of a transaction if all of its pieces are present.
fn records(pieces: &[Piece]) -> Option<Vec<Vec<u8>>> {
    let mut pieces: Vec<&Piece> = pieces.iter().collect();
    pieces.sort_by_key(|piece| piece.number);
    let whole = pieces.len() == usize::from(pieces.first()?.pieces)
        && (0..).zip(&pieces).all(|(n, piece)| piece.number == n);
    if !whole {
        return None;
    }
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| &piece.bytes).copied().collect();
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (record, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        records.push(record.to_vec());
        rest = after;
    }
    rest.is_empty().then_some(records)
}
