//! The table of regions: which pages are allocated, and under which names.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use deepram_core::Bytes;
use deepram_core::units::PAGE_BYTES;

use super::format::{NAME_BYTES, OWN_PAGES, RECORD, RECORDS, Record, TABLE_AT};
use crate::error::{PoolError, Result};
use crate::format::FormatError;

/// Allocated memory of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRegion {
    /// The name; empty for memory that was allocated without one.
    pub name: String,
    /// Offset of the first byte in the controller.
    pub offset: u64,
    /// Length in bytes, whole pages of 64 KiB.
    pub len: u64,
}

/// The regions, by first page, each with the number of its record.
pub(super) struct Regions {
    pages: u32,
    by_page: BTreeMap<u32, (usize, Record)>,
}

/// The allocated pages as bits, which a check of a small access reads without a lock.
pub(super) struct AllocatedPages(Box<[AtomicU64]>);

impl AllocatedPages {
    pub(super) fn new(pages: u32) -> Self {
        Self((0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether these bytes lie in allocated pages.
    #[inline]
    pub(super) fn contain(&self, offset: u64, len: u64) -> bool {
        let Some(last) = offset.checked_add(len.max(1) - 1) else { return false };
        let bit = |page: u64| {
            self.0.get((page / 64) as usize).is_some_and(|word| word.load(Acquire) >> (page % 64) & 1 == 1)
        };
        (offset / PAGE_BYTES..=last / PAGE_BYTES).all(bit)
    }

    pub(super) fn set(&self, record: &Record, allocated: bool) {
        for page in record.first..record.first + record.pages {
            let (word, bit) = (&self.0[page as usize / 64], 1 << (page % 64));
            if allocated {
                word.fetch_or(bit, Release)
            } else {
                word.fetch_and(!bit, Release)
            };
        }
    }
}

impl Regions {
    /// Reads the table of a controller of so many pages. `device` names the controller in errors.
    pub(super) fn read(table: &[u8], pages: u32, device: &str) -> Result<Self> {
        let damaged = |source: FormatError| PoolError::DamagedPool {
            device: device.into(),
            what: "the table of regions",
            source,
        };
        let mut by_page: BTreeMap<u32, (usize, Record)> = BTreeMap::new();
        let (records, _) = table.as_chunks::<RECORD>();
        for (number, record) in records.iter().take(RECORDS).enumerate() {
            let Some(record) = Record::decode(record, pages).map_err(damaged)? else { continue };
            let end = record.first + record.pages;
            let before = by_page.range(..end).next_back();
            if let Some((_, (other, of))) = before.filter(|(_, (_, of))| of.first + of.pages > record.first) {
                let what = format!(
                    "its regions {other} and {number} overlap in page {}",
                    record.first.max(of.first)
                );
                return Err(PoolError::Inconsistent { device: device.into(), what });
            }
            by_page.insert(record.first, (number, record));
        }
        Ok(Self { pages, by_page })
    }

    /// The regions in order of their pages.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record> {
        self.by_page.values().map(|(_, record)| record)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Record> {
        self.all().find(|record| record.name == name)
    }

    /// Finds room for a region: a free record, and the first gap that is large enough. Nothing changes.
    pub(super) fn place(&self, name: &str, len: u64, controller: u32) -> Result<(usize, Record)> {
        let wrong = |problem| PoolError::Root { name: name.into(), problem };
        if name.len() > NAME_BYTES {
            return Err(wrong("a region's name has at most 111 bytes"));
        }
        if !name.is_empty() && self.named(name).is_some() {
            return Err(wrong("the memory controller has a region of this name"));
        }
        if len == 0 {
            let problem = "0 bytes cannot be allocated".into();
            return Err(PoolError::Option { option: "length", problem });
        }
        let no_space = || PoolError::NoAddressSpace {
            needed: Bytes(len),
            controller,
            total: Bytes(u64::from(self.pages - OWN_PAGES) * PAGE_BYTES),
        };
        let pages = u32::try_from(len.div_ceil(PAGE_BYTES)).map_err(|_| no_space())?;
        let mut first = OWN_PAGES;
        for record in self.all() {
            if record.first - first >= pages {
                break;
            }
            first = record.first + record.pages;
        }
        if self.pages - first < pages {
            return Err(no_space());
        }
        let used: Vec<usize> = self.by_page.values().map(|(number, _)| *number).collect();
        let number = (0..RECORDS).find(|number| !used.contains(number));
        let number =
            number.ok_or_else(|| wrong("the memory controller has 512 regions already; remove one"))?;
        Ok((number, Record { name: name.into(), first, pages }))
    }

    pub(super) fn insert(&mut self, number: usize, record: Record) {
        self.by_page.insert(record.first, (number, record));
    }

    /// Whether these bytes lie in regions, in time that does not depend on their number.
    pub(super) fn contain(&self, offset: u64, len: u64) -> bool {
        let Some(last) = offset.checked_add(len.max(1) - 1) else { return false };
        let (mut page, last) = (offset / PAGE_BYTES, last / PAGE_BYTES);
        while page <= last {
            let Ok(at) = u32::try_from(page) else { return false };
            let before = self.by_page.range(..=at).next_back();
            match before.map(|(_, (_, record))| u64::from(record.first + record.pages)) {
                Some(end) if end > page => page = end,
                _ => return false,
            }
        }
        true
    }

    /// The region that begins at this page.
    pub(super) fn at(&self, first: u32) -> Option<(usize, &Record)> {
        self.by_page.get(&first).map(|(number, record)| (*number, record))
    }

    pub(super) fn remove(&mut self, first: u32) {
        self.by_page.remove(&first);
    }
}

impl From<&Record> for MemoryRegion {
    fn from(record: &Record) -> Self {
        Self {
            name: record.name.clone(),
            offset: u64::from(record.first) * PAGE_BYTES,
            len: u64::from(record.pages) * PAGE_BYTES,
        }
    }
}

/// Offset of a record in the controller.
pub(super) const fn record_at(number: usize) -> usize {
    TABLE_AT + number * RECORD
}
