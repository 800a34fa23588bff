//! Named roots, under which a program finds its data again. The roots are in page 0 of the first controller, so they
//! are synced, rolled back and checked like other memory.
//!
//! ```text
//! record of 128 bytes, 512 of them:
//! 0 length of name, 0 = free │ 1..112 name │ 112 address u64 │ 120 length u64
//! ```

use deepram_core::{Addr, Epoch};

use super::Pool;
use crate::cache::{AccessKind, Permit};
use crate::error::{PoolError, Result};
use deepram_linux::buffer::AlignedBuf;

const RECORD: usize = 128;
const RECORDS: usize = 512;
const NAME_AT: usize = 1;
/// Longest name, in bytes.
const NAME_BYTES: usize = 111;
const ADDRESS_AT: usize = 112;
const LEN_AT: usize = 120;

const _: () = assert!(RECORD * RECORDS == 1 << 16, "the roots fill page 0");
const _: () = assert!(NAME_AT + NAME_BYTES == ADDRESS_AT);

/// A name for a range of memory in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// The name.
    pub name: String,
    /// The first address of the range.
    pub addr: Addr,
    /// Length of the range, in bytes.
    pub len: u64,
}

impl Root {
    fn decode(record: &[u8]) -> Option<Self> {
        let n = usize::from(record[0]);
        if n == 0 || n > NAME_BYTES {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        Some(Self {
            name: String::from_utf8_lossy(&record[NAME_AT..NAME_AT + n]).into_owned(),
            addr: Addr::from_raw(word(ADDRESS_AT)),
            len: word(LEN_AT),
        })
    }

    fn encode(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[0] = self.name.len() as u8;
        record[NAME_AT..NAME_AT + self.name.len()].copy_from_slice(self.name.as_bytes());
        record[ADDRESS_AT..ADDRESS_AT + 8].copy_from_slice(&self.addr.raw().to_le_bytes());
        record[LEN_AT..].copy_from_slice(&self.len.to_le_bytes());
        record
    }
}

impl Pool {
    fn root_records(&self) -> Result<Vec<Option<Root>>> {
        let cache = &self.live()?.cache;
        let mut page = vec![0; RECORD * RECORDS];
        let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
        for part in self.segment_parts_unchecked(Addr::from_raw(0), page.len())? {
            let guard =
                cache.ensure_resident(part.index, Permit::unchecked(AccessKind::Read), &mut buffer)?;
            cache.region.copy_out(part.offset, &mut page[part.range]);
            drop(guard);
        }
        Ok(page.chunks_exact(RECORD).map(Root::decode).collect())
    }

    /// Returns the roots as they were at a token, without a rollback.
    ///
    /// # Errors
    /// The errors of [`Pool::read_at`].
    pub fn roots_at(&self, token: Epoch) -> Result<Vec<Root>> {
        let cache = &self.live()?.cache;
        let mut found = Vec::new();
        let mut buffer = AlignedBuf::zeroed(cache.segment_bytes());
        // A segment holds a whole number of records.
        for part in self.segment_parts_unchecked(Addr::from_raw(0), RECORD * RECORDS)? {
            let (store, page, segment) = cache.store_of(part.index);
            store.read_at(token, page, segment, &mut buffer)?;
            found.extend(buffer[..part.range.len()].chunks_exact(RECORD).filter_map(Root::decode));
        }
        Ok(found)
    }

    fn write_record(&self, place: usize, record: &[u8; RECORD]) -> Result<()> {
        let permit = Permit::unchecked(AccessKind::Write);
        let mut buffer = AlignedBuf::zeroed(self.live()?.cache.segment_bytes());
        self.segment_parts_unchecked(Addr::from_raw((place * RECORD) as u64), RECORD)?
            .try_for_each(|part| self.write_part(&part, &record[part.range.clone()], permit, &mut buffer))
    }

    /// Returns all roots, in the order in which they were first set.
    ///
    /// # Errors
    /// The errors of [`Pool::read`].
    pub fn roots(&self) -> Result<Vec<Root>> {
        Ok(self.root_records()?.into_iter().flatten().collect())
    }

    /// Returns the root with this name.
    ///
    /// # Errors
    /// [`PoolError::Root`] for an unknown name; the errors of [`Pool::read`].
    pub fn root(&self, name: &str) -> Result<Root> {
        self.roots()?
            .into_iter()
            .find(|r| r.name == name)
            .ok_or_else(|| root_error(name, "no such root exists"))
    }

    /// Gives a range of memory a name, or points an existing name to it. Durable at the next sync.
    ///
    /// # Errors
    /// [`PoolError::Root`] for an empty name, a name that is too long, or when all 512 roots are taken;
    /// [`PoolError::NotAllocated`] if the range is not allocated; the errors of [`Pool::write`].
    pub fn set_root(&self, name: &str, addr: Addr, len: u64) -> Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(root_error(name, "a name must have 1 to 111 bytes"));
        }
        self.ensure_allocated(addr, len)?;
        let records = self.root_records()?;
        let same = records.iter().position(|r| r.as_ref().is_some_and(|r| r.name == name));
        let place = same.or_else(|| records.iter().position(Option::is_none));
        let Some(place) = place else {
            return Err(root_error(name, "all 512 roots are taken: remove one first"));
        };
        let root = Root { name: name.to_owned(), addr, len };
        self.write_record(place, &root.encode())
    }

    /// Removes a root; its memory stays allocated.
    ///
    /// # Errors
    /// [`PoolError::Root`] for an unknown name; the errors of [`Pool::write`].
    pub fn remove_root(&self, name: &str) -> Result<()> {
        let records = self.root_records()?;
        let place = records.iter().position(|r| r.as_ref().is_some_and(|r| r.name == name));
        let Some(place) = place else {
            return Err(root_error(name, "no such root exists"));
        };
        self.write_record(place, &[0; RECORD])
    }
}

fn root_error(name: &str, problem: &'static str) -> PoolError {
    PoolError::Root { name: name.to_owned(), problem }
}
