//! The page table: 16-byte entries, version chains, and chunks (NVMM, Page Table Organization for NAND
//! Main Memory).
//!
//! The table is direct-mapped: a page's number is the index of its newest entry. The upper region
//! contains the entries of older versions; each entry links to the next older one. The table is divided
//! into chunks of 256 entries; a driver may leave a chunk on flash until it is needed. An access to such
//! a chunk returns the chunk's number as its error; the driver loads the chunk and repeats the call.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::bit_vector::BitVector;
use crate::units::{PageId, SegmentSize, Slot, Stamp};

const MAPPING_BITS: u32 = 34;
const PREVIOUS_BITS: u32 = 30;
const VECTOR_BITS: u32 = 32;
const STAMP_BITS: u32 = 24;
const STATUS_BITS: u32 = 8;

const PREVIOUS_AT: u32 = MAPPING_BITS;
const VECTOR_AT: u32 = PREVIOUS_AT + PREVIOUS_BITS;
const STAMP_AT: u32 = VECTOR_AT + VECTOR_BITS;
const STATUS_AT: u32 = STAMP_AT + STAMP_BITS;

const _: () = assert!(STATUS_AT + STATUS_BITS == 128, "an entry is 16 bytes (NVMM, Page Table)");

/// Number of slots that an entry can address.
pub const MAX_SLOTS: u64 = 1 << MAPPING_BITS;
/// The largest number of entries of a table.
pub const MAX_ENTRIES: u32 = 1 << PREVIOUS_BITS;
/// The largest stamp.
pub const MAX_STAMP: u32 = (1 << STAMP_BITS) - 1;
/// Number of entries in a chunk.
pub const CHUNK_ENTRIES: usize = 256;
/// Size of a chunk, in bytes.
pub const CHUNK_BYTES: usize = CHUNK_ENTRIES * 16;

/// Status and permissions of a page: the entry's last 8 bits.
///
/// Bit 0: allocated; 1: permanent; 2: readable; 3: writable; 4: persist region; 5 and 6 are zero. Bit 7
/// marks an entry in use and belongs to the table, not to the status. The default status is that of a
/// page that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u8);

const ALLOCATED: u8 = 1;
const PERMANENT: u8 = 1 << 1;
const READABLE: u8 = 1 << 2;
const WRITABLE: u8 = 1 << 3;
const PERSIST: u8 = 1 << 4;
const IN_USE: u8 = 1 << 7;

impl Status {
    /// An allocated page with these permissions; temporary unless `permanent`.
    #[must_use]
    pub const fn new(permanent: bool, readable: bool, writable: bool) -> Self {
        Self(
            ALLOCATED
                | (permanent as u8 * PERMANENT)
                | (readable as u8 * READABLE)
                | (writable as u8 * WRITABLE),
        )
    }

    /// The same status with the persist bit set or cleared (FlatFlash, section 3.5: the P bit). A page
    /// with the bit is part of a persist region: stores to it can be persisted at byte grain.
    #[must_use]
    pub const fn with_persist(self, persist: bool) -> Self {
        Self(self.0 & !PERSIST | (persist as u8 * PERSIST))
    }

    /// True if the page is part of a persist region.
    #[must_use]
    pub const fn persist(self) -> bool {
        self.0 & PERSIST != 0
    }

    /// True if the page exists.
    #[must_use]
    pub const fn allocated(self) -> bool {
        self.0 & ALLOCATED != 0
    }

    /// True if the page outlives the application that created it.
    #[must_use]
    pub const fn permanent(self) -> bool {
        self.0 & PERMANENT != 0
    }

    /// True if loads are allowed.
    #[must_use]
    pub const fn readable(self) -> bool {
        self.0 & READABLE != 0
    }

    /// True if stores are allowed.
    #[must_use]
    pub const fn writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// The status bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The status with these bits; `None` if an undefined bit is set.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !(ALLOCATED | PERMANENT | READABLE | WRITABLE | PERSIST) == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }
}

/// One version of a page: 16 bytes. The paper's names of the fields are Flash Page Mapping (`mapping`),
/// Previous Mapping Index (`previous`), Sub-Page Valid Bits (`bit vector`), Time Written (`stamp`), and
/// Page-Level Status & Permissions (`status`).
///
/// ```text
/// bit   0        34        64         96     120    128
///       ┌─────────┬─────────┬──────────┬──────┬──────┐
///       │ mapping │previous │bit vector│stamp │status│
///       │   34    │   30    │    32    │  24  │  8   │
///       └─────────┴─────────┴──────────┴──────┴──────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Entry(u128);

impl Entry {
    /// An entry in use. Each value must fit its field; larger values are masked.
    #[must_use]
    pub const fn new(start: Slot, previous: u32, vector: BitVector, stamp: Stamp, status: Status) -> Self {
        debug_assert!(start.0 < MAX_SLOTS && previous < MAX_ENTRIES && stamp.0 <= MAX_STAMP);
        Self(
            (start.0 & (MAX_SLOTS - 1)) as u128
                | ((previous & (MAX_ENTRIES - 1)) as u128) << PREVIOUS_AT
                | (vector.0 as u128) << VECTOR_AT
                | ((stamp.0 & MAX_STAMP) as u128) << STAMP_AT
                | ((status.0 | IN_USE) as u128) << STATUS_AT,
        )
    }

    /// True if the entry contains a version.
    #[must_use]
    pub const fn in_use(self) -> bool {
        self.0 >> STATUS_AT & IN_USE as u128 != 0
    }

    /// The starting slot.
    #[must_use]
    pub const fn start(self) -> Slot {
        Slot(self.0 as u64 & (MAX_SLOTS - 1))
    }

    /// Index of the next older version's entry. An index in the lower region means that no older version
    /// exists.
    #[must_use]
    pub const fn previous(self) -> u32 {
        (self.0 >> PREVIOUS_AT) as u32 & (MAX_ENTRIES - 1)
    }

    /// The segments of this version, and their distances from the starting slot.
    #[must_use]
    pub const fn vector(self) -> BitVector {
        BitVector((self.0 >> VECTOR_AT) as u32)
    }

    /// The stamp of the epoch that wrote this version: the paper's TimeWritten.
    #[must_use]
    pub const fn stamp(self) -> Stamp {
        Stamp((self.0 >> STAMP_AT) as u32 & MAX_STAMP)
    }

    /// The page's status as of this version.
    #[must_use]
    pub const fn status(self) -> Status {
        Status((self.0 >> STATUS_AT) as u8 & !IN_USE)
    }

    /// True if this version records the page's deletion: it hides all older versions.
    #[must_use]
    pub const fn is_tombstone(self) -> bool {
        self.in_use() && !self.status().allocated()
    }

    /// The slot of a segment, if this version contains the segment.
    #[must_use]
    pub const fn slot(self, size: SegmentSize, segment: u8) -> Option<Slot> {
        match self.vector().distance(size, segment) {
            Some(distance) => Some(Slot(self.start().0 + distance as u64)),
            None => None,
        }
    }

    /// The entry with another vector.
    #[must_use]
    pub const fn with_vector(self, vector: BitVector) -> Self {
        Self(self.0 & !((u32::MAX as u128) << VECTOR_AT) | (vector.0 as u128) << VECTOR_AT)
    }

    /// The entry with another predecessor.
    #[must_use]
    pub const fn with_previous(self, previous: u32) -> Self {
        let mask = ((MAX_ENTRIES - 1) as u128) << PREVIOUS_AT;
        Self(self.0 & !mask | ((previous & (MAX_ENTRIES - 1)) as u128) << PREVIOUS_AT)
    }

    /// The entry with another stamp.
    #[must_use]
    pub const fn with_stamp(self, stamp: Stamp) -> Self {
        let mask = (MAX_STAMP as u128) << STAMP_AT;
        Self(self.0 & !mask | ((stamp.0 & MAX_STAMP) as u128) << STAMP_AT)
    }

    /// The entry with another status.
    #[must_use]
    pub const fn with_status(self, status: Status) -> Self {
        let mask = (u8::MAX as u128) << STATUS_AT;
        Self(self.0 & !mask | ((status.0 | IN_USE) as u128) << STATUS_AT)
    }

    /// The entry's 16 bytes on flash, least significant first.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// The entry with these 16 bytes; [`Entry::to_bytes`] reversed. Any value is accepted:
    /// [`PageTable::load`] validates.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.in_use() {
            return f.write_str("Entry(free)");
        }
        f.debug_struct("Entry")
            .field("start", &self.start().0)
            .field("previous", &self.previous())
            .field("vector", &self.vector())
            .field("stamp", &self.stamp().0)
            .field("status", &self.status())
            .finish()
    }
}

/// The number of a chunk of the table: chunk n contains entries 256·n to 256·n+255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

impl ChunkId {
    const fn of(index: u32) -> Self {
        Self(index / CHUNK_ENTRIES as u32)
    }
}

/// A chunk's bytes contradict the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadError {
    /// Index of the invalid entry.
    pub index: u32,
    /// The contradiction.
    pub problem: &'static str,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table entry {}: {}", self.index, self.problem)
    }
}

impl core::error::Error for LoadError {}

enum Chunk {
    /// All entries are zero, and no memory is allocated.
    Empty,
    /// On flash: must be loaded before use.
    Unloaded,
    Loaded {
        entries: Box<[Entry; CHUNK_ENTRIES]>,
        dirty: bool,
    },
}

/// The page table of one volume; see the module.
pub struct PageTable {
    size: SegmentSize,
    pages: u32,
    slots: u64,
    chunks: Vec<Chunk>,
    lower_chunks: u32,
    /// For each upper chunk its number of entries in use.
    used: Vec<u16>,
    used_total: u32,
    /// Upper chunks with a free entry that are loaded or empty.
    chunks_with_free: BTreeSet<u32>,
    /// Number of free entries in these chunks.
    free_in_memory: u32,
    loaded: usize,
}

impl PageTable {
    /// An empty table of `pages` pages and `upper` entries for older versions (both rounded up to whole
    /// chunks), over `slots` slots of flash. `None` if a number exceeds its field of the entry.
    #[must_use]
    pub fn new(size: SegmentSize, pages: u32, upper: u32, slots: u64) -> Option<Self> {
        let chunk = CHUNK_ENTRIES as u32;
        let lower_chunks = pages.div_ceil(chunk);
        let upper_chunks = upper.div_ceil(chunk);
        let total = lower_chunks.checked_add(upper_chunks)?;
        if pages == 0 || u64::from(total) * u64::from(chunk) > u64::from(MAX_ENTRIES) || slots > MAX_SLOTS {
            return None;
        }
        let mut chunks = Vec::new();
        chunks.resize_with(total as usize, || Chunk::Empty);
        Some(Self {
            size,
            pages,
            slots,
            chunks,
            lower_chunks,
            used: vec![0; upper_chunks as usize],
            used_total: 0,
            chunks_with_free: (lower_chunks..total).collect(),
            free_in_memory: upper_chunks * chunk,
            loaded: 0,
        })
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Number of chunks, loaded or not.
    #[must_use]
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Number of entries of the upper region.
    #[must_use]
    pub fn upper_limit(&self) -> u32 {
        self.used.len() as u32 * CHUNK_ENTRIES as u32
    }

    /// Number of entries in use in the upper region.
    #[must_use]
    pub fn upper_used(&self) -> u32 {
        self.used_total
    }

    /// For each upper chunk its number of entries in use; part of a snapshot.
    #[must_use]
    pub fn upper_counts(&self) -> &[u16] {
        &self.used
    }

    /// Restores the table of a snapshot: the chunks `on_flash` are unloaded, the others empty. `used` is
    /// the number of entries in use in each upper chunk.
    ///
    /// # Errors
    /// [`LoadError`] if `on_flash` or `used` contradicts the table.
    pub fn unload(&mut self, on_flash: &[ChunkId], used: &[u16]) -> Result<(), LoadError> {
        let wrong = |problem| Err(LoadError { index: 0, problem });
        if used.len() != self.used.len() || used.iter().any(|&n| usize::from(n) > CHUNK_ENTRIES) {
            return wrong("the snapshot's counts of entries in use do not match the table's upper chunks");
        }
        for &ChunkId(chunk) in on_flash {
            let Some(state) = self.chunks.get_mut(chunk as usize) else {
                return wrong("the snapshot names a chunk beyond the table's last one");
            };
            if !matches!(state, Chunk::Empty) {
                return wrong("the snapshot names a chunk twice");
            }
            *state = Chunk::Unloaded;
            if self.chunks_with_free.remove(&chunk) {
                self.free_in_memory -= CHUNK_ENTRIES as u32;
            }
        }
        for (n, &count) in used.iter().enumerate() {
            let chunk = self.lower_chunks as usize + n;
            if count > 0 && !matches!(self.chunks[chunk], Chunk::Unloaded) {
                return wrong("the snapshot counts entries in use in a chunk that is not on flash");
            }
        }
        self.used.copy_from_slice(used);
        self.used_total = used.iter().map(|&n| u32::from(n)).sum();
        Ok(())
    }

    /// True if the chunk can be used without loading.
    #[must_use]
    pub fn is_loaded(&self, chunk: ChunkId) -> bool {
        !matches!(self.chunks.get(chunk.0 as usize), Some(Chunk::Unloaded))
    }

    /// The chunks that must be loaded before use.
    pub fn unloaded(&self) -> impl Iterator<Item = ChunkId> {
        self.chunks
            .iter()
            .enumerate()
            .filter(|(_, chunk)| matches!(chunk, Chunk::Unloaded))
            .map(|(n, _)| ChunkId(n as u32))
    }

    /// Loads a chunk from its bytes on flash, and validates every entry. Does nothing if the chunk is
    /// already loaded.
    ///
    /// # Errors
    /// [`LoadError`] for the first entry that contradicts the table.
    pub fn load(&mut self, chunk: ChunkId, bytes: &[u8; CHUNK_BYTES]) -> Result<(), LoadError> {
        let first = chunk.0.saturating_mul(CHUNK_ENTRIES as u32);
        let Some(Chunk::Unloaded) = self.chunks.get(chunk.0 as usize) else {
            return Ok(());
        };
        let mut entries = Box::new([Entry::default(); CHUNK_ENTRIES]);
        let mut used = 0;
        for ((index, entry), bytes) in (first..).zip(entries.iter_mut()).zip(bytes.chunks_exact(16)) {
            *entry = Entry::from_bytes(bytes.try_into().expect("chunks of 16"));
            used += u16::from(entry.in_use());
            self.validate(index, *entry).map_err(|problem| LoadError { index, problem })?;
        }
        if chunk.0 >= self.lower_chunks {
            let expected = self.used[(chunk.0 - self.lower_chunks) as usize];
            if used != expected {
                let problem = "its chunk's number of entries in use differs from the table's count";
                return Err(LoadError { index: first, problem });
            }
            if usize::from(used) < CHUNK_ENTRIES {
                self.chunks_with_free.insert(chunk.0);
                self.free_in_memory += CHUNK_ENTRIES as u32 - u32::from(used);
            }
        }
        self.chunks[chunk.0 as usize] = Chunk::Loaded { entries, dirty: false };
        self.loaded += 1;
        Ok(())
    }

    fn validate(&self, index: u32, entry: Entry) -> Result<(), &'static str> {
        if !entry.in_use() {
            return if entry == Entry::default() { Ok(()) } else { Err("it is not in use but is not zero") };
        }
        if index >= self.pages && index < self.upper_start() {
            return Err("it is in use, but lies between the last page and the upper region");
        }
        if Status::from_bits(entry.status().bits()).is_none() {
            return Err("undefined status bits (5 and 6) are set");
        }
        if entry.previous() as usize >= self.chunks.len() * CHUNK_ENTRIES {
            return Err("its link to the next older version points beyond the table");
        }
        if !entry.vector().is_valid(self.size) {
            return Err("its bit vector gives a segment two slots");
        }
        if entry.is_tombstone() && !entry.vector().is_empty() {
            return Err("it holds segments of a page that is not allocated");
        }
        let last = entry.vector().iter(self.size).last().map_or(0, |(_, distance)| u64::from(distance));
        if entry.start().0 + last >= self.slots {
            return Err("its slots are beyond the end of the device");
        }
        Ok(())
    }

    const fn upper_start(&self) -> u32 {
        self.lower_chunks * CHUNK_ENTRIES as u32
    }

    /// True if the link field `previous` names an entry of the upper region.
    #[must_use]
    pub const fn is_link(&self, previous: u32) -> bool {
        previous >= self.upper_start()
    }

    /// The index of a page's newest entry.
    #[must_use]
    pub const fn head(page: PageId) -> u32 {
        page.0
    }

    /// The entry at an index; a free entry if the index is beyond the table.
    ///
    /// # Errors
    /// The chunk that must be loaded first.
    pub fn get(&self, index: u32) -> Result<Entry, ChunkId> {
        let chunk = ChunkId::of(index);
        match self.chunks.get(chunk.0 as usize) {
            None | Some(Chunk::Empty) => Ok(Entry::default()),
            Some(Chunk::Unloaded) => Err(chunk),
            Some(Chunk::Loaded { entries, .. }) => Ok(entries[index as usize % CHUNK_ENTRIES]),
        }
    }

    /// Sets an entry of a loaded or empty chunk. Does nothing if the chunk is unloaded.
    pub(crate) fn set(&mut self, index: u32, entry: Entry) {
        let state = &mut self.chunks[ChunkId::of(index).0 as usize];
        if matches!(state, Chunk::Empty) {
            let entries = Box::new([Entry::default(); CHUNK_ENTRIES]);
            *state = Chunk::Loaded { entries, dirty: true };
            self.loaded += 1;
        }
        match state {
            Chunk::Loaded { entries, dirty } => {
                entries[index as usize % CHUNK_ENTRIES] = entry;
                *dirty = true;
            }
            Chunk::Empty | Chunk::Unloaded => debug_assert!(false, "set on a chunk that is not loaded"),
        }
    }

    /// Number of free upper entries in chunks that need no loading.
    #[must_use]
    pub fn free_upper_entries(&self) -> u32 {
        self.free_in_memory
    }

    /// An unloaded upper chunk with free entries.
    #[must_use]
    pub fn unloaded_with_free_entries(&self) -> Option<ChunkId> {
        (self.lower_chunks..)
            .zip(&self.used)
            .find(|&(chunk, &used)| usize::from(used) < CHUNK_ENTRIES && !self.is_loaded(ChunkId(chunk)))
            .map(|(chunk, _)| ChunkId(chunk))
    }

    /// Stores `entry` in a free upper entry and returns its index; `None` if every chunk in memory is
    /// full.
    pub(crate) fn allocate_upper(&mut self, entry: Entry) -> Option<u32> {
        debug_assert!(entry.in_use());
        let &chunk = self.chunks_with_free.first()?;
        let first = chunk * CHUNK_ENTRIES as u32;
        let within = match &self.chunks[chunk as usize] {
            Chunk::Loaded { entries, .. } => entries.iter().position(|e| !e.in_use())?,
            Chunk::Empty => 0,
            Chunk::Unloaded => return None,
        };
        let index = first + within as u32;
        self.set(index, entry);
        let used = &mut self.used[(chunk - self.lower_chunks) as usize];
        *used += 1;
        if usize::from(*used) == CHUNK_ENTRIES {
            self.chunks_with_free.remove(&chunk);
        }
        self.used_total += 1;
        self.free_in_memory -= 1;
        Some(index)
    }

    /// Frees an upper entry.
    pub(crate) fn free_upper(&mut self, index: u32) {
        self.set(index, Entry::default());
        let chunk = ChunkId::of(index).0;
        self.used[(chunk - self.lower_chunks) as usize] -= 1;
        self.chunks_with_free.insert(chunk);
        self.used_total -= 1;
        self.free_in_memory += 1;
    }

    /// The dirty chunks: changed since they were last marked clean.
    #[must_use]
    pub fn dirty(&self) -> Vec<ChunkId> {
        self.chunks
            .iter()
            .enumerate()
            .filter(|(_, chunk)| matches!(chunk, Chunk::Loaded { dirty: true, .. }))
            .map(|(n, _)| ChunkId(n as u32))
            .collect()
    }

    /// Sets or clears a loaded chunk's dirty flag.
    pub fn set_dirty(&mut self, chunk: ChunkId, is_dirty: bool) {
        if let Some(Chunk::Loaded { dirty, .. }) = self.chunks.get_mut(chunk.0 as usize) {
            *dirty = is_dirty;
        }
    }

    /// The bytes of a loaded chunk; `None` if the chunk is not loaded.
    #[must_use]
    pub fn bytes(&self, chunk: ChunkId) -> Option<[u8; CHUNK_BYTES]> {
        let Some(Chunk::Loaded { entries, .. }) = self.chunks.get(chunk.0 as usize) else { return None };
        let mut bytes = [0; CHUNK_BYTES];
        for (entry, bytes) in entries.iter().zip(bytes.chunks_exact_mut(16)) {
            bytes.copy_from_slice(&entry.to_bytes());
        }
        Some(bytes)
    }

    /// Memory of the table, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.loaded * CHUNK_BYTES + self.chunks.capacity() * size_of::<Chunk>() + self.used.capacity() * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_16_bytes_with_every_field_in_its_place() {
        let entry = Entry::new(Slot(MAX_SLOTS - 1), 0, BitVector(0), Stamp(0), Status::default());
        assert_eq!(entry.to_bytes(), [255, 255, 255, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]);
        let entry = Entry::new(Slot(0), MAX_ENTRIES - 1, BitVector(0), Stamp(0), Status::default());
        assert_eq!(entry.to_bytes(), [0, 0, 0, 0, 0xFC, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0x80]);
        let entry = Entry::new(Slot(0), 0, BitVector(u32::MAX), Stamp(0), Status::default());
        assert_eq!(entry.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0x80]);
        let entry = Entry::new(Slot(0), 0, BitVector(0), Stamp(MAX_STAMP), Status::new(true, true, true));
        assert_eq!(entry.to_bytes(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 0x8F]);
        assert_eq!(size_of::<Entry>(), 16);
    }

    #[test]
    fn fields_are_independent_of_each_other() {
        let entry = Entry::new(
            Slot(0x2_1234_5678),
            0x3EDC_BA98,
            BitVector(0xA5A5_5A5A),
            Stamp(0x00AB_CDEF),
            Status::new(false, true, false),
        );
        let changed = entry
            .with_previous(7)
            .with_stamp(Stamp(9))
            .with_vector(BitVector(3))
            .with_status(Status::new(true, false, true));
        assert_eq!(changed.start(), Slot(0x2_1234_5678));
        assert_eq!((changed.previous(), changed.stamp(), changed.vector()), (7, Stamp(9), BitVector(3)));
        assert_eq!(changed.status(), Status::new(true, false, true));
        assert_eq!(Entry::from_bytes(entry.to_bytes()), entry);
        assert_eq!(entry.previous(), 0x3EDC_BA98);
    }

    #[test]
    fn the_full_table_has_three_older_versions_a_page() {
        // 2^28 pages, 3 × 2^28 older versions: 2^30 entries, 16 GiB. One more chunk is too many.
        let (pages, upper) = (1 << 28, 3 << 28);
        assert!(u64::from(pages) + u64::from(upper) == u64::from(MAX_ENTRIES));
        assert!(PageTable::new(SegmentSize::K8, pages, upper + 1, 1 << 34).is_none());
        assert!(PageTable::new(SegmentSize::K8, 256, 768, (1 << 34) + 1).is_none());
        assert!(PageTable::new(SegmentSize::K8, 0, 768, 1 << 34).is_none());
    }

    #[test]
    fn upper_entries_are_taken_lowest_first_and_given_back() {
        let mut table = PageTable::new(SegmentSize::K8, 10, 300, 1 << 20).unwrap();
        let entry = Entry::new(Slot(1), 0, BitVector(1), Stamp(1), Status::new(false, true, true));
        assert_eq!(table.upper_limit(), 512);
        let taken: Vec<u32> = (0..512).map(|_| table.allocate_upper(entry).unwrap()).collect();
        assert_eq!(taken, (256..768).collect::<Vec<_>>());
        assert_eq!((table.allocate_upper(entry), table.free_upper_entries()), (None, 0));
        table.free_upper(700);
        table.free_upper(300);
        assert_eq!(table.allocate_upper(entry), Some(300));
        assert_eq!(table.allocate_upper(entry), Some(700));
    }

    #[test]
    fn a_chunk_comes_back_from_its_bytes_and_hostile_ones_are_refused() {
        let make = || PageTable::new(SegmentSize::K8, 256, 256, 1000).unwrap();
        let mut table = make();
        let entry = Entry::new(Slot(900), 0, BitVector(0xFF), Stamp(1), Status::new(false, true, true));
        table.set(3, entry);
        let good = table.bytes(ChunkId(0)).unwrap();
        let load = |bytes: &[u8; CHUNK_BYTES]| {
            let mut table = make();
            table.unload(&[ChunkId(0)], &[0]).unwrap();
            assert_eq!(table.get(3), Err(ChunkId(0)));
            table.load(ChunkId(0), bytes).map(|()| table.get(3).unwrap())
        };
        assert_eq!(load(&good), Ok(entry));
        let bad = |entry: Entry| {
            let mut bytes = good;
            bytes[48..64].copy_from_slice(&entry.to_bytes());
            load(&bytes).unwrap_err()
        };
        assert!(bad(entry.with_vector(BitVector(0x101))).problem.contains("two slots"));
        assert!(bad(entry.with_previous(9999)).problem.contains("next older version"));
        let beyond = Entry::new(Slot(999), 0, BitVector(0b11), Stamp(1), Status::new(false, true, true));
        assert!(bad(beyond).problem.contains("beyond the end of the device"));
        let mut bytes = good;
        bytes[63] = 0xFF;
        assert!(load(&bytes).unwrap_err().problem.contains("undefined status bits"));
        bytes[63] = 0x01;
        assert!(load(&bytes).unwrap_err().problem.contains("not in use"));
    }
}
