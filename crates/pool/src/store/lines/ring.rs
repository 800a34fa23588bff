//! Where records are kept: blocks taken from the log of segments, written over and over in a circle.
//! Their space is on the device before the first record is, so that a durable write is one command.
//!
//! A place in the ring is counted in sectors since the ring was made, and so never comes again. A record
//! does not reach over the end of a block: what does not fit begins in the next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

use super::super::{Kind, Report, Result, Site, Store};
use deepram_core::ftl::BlockState;
use deepram_core::{BlockId, Bytes, Epoch};

use crate::buffer::AlignedBuf;
use crate::device::{ALIGN, SECTOR};
use crate::error::PoolError;
use crate::format::header::COUNTERS_END;
use crate::format::line::{self, LineHeader, LineSector};
use crate::stats::add;

/// Marks in each block: how exactly the beginning of the log can be moved.
const MARKS: u64 = 16;

/// A record's number and place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) at: u64,
}

/// What the root record says of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingRoot {
    pub(crate) blocks: Vec<u32>,
    /// The first record that may be needed.
    pub(crate) start: Mark,
    /// The last commit has what groups up to this one say.
    pub(crate) retired: u64,
    /// Records below this number were durable when this was written.
    pub(crate) end: u64,
}

/// The ring as its writer knows it.
pub(super) struct Ring {
    pub(super) blocks: Vec<u32>,
    /// Sectors of a block.
    per_block: u64,
    /// Sectors that a durable write takes at least.
    granule: u64,
    /// Where the next record goes, if it fits there.
    pub(super) head: u64,
    /// Its number.
    pub(super) next: u64,
    /// The group of the last record.
    pub(super) group: u64,
    /// Nothing before this place is needed.
    start: Mark,
    /// Some records since, in their order, with their groups.
    marks: VecDeque<(Mark, u64)>,
}

impl Ring {
    fn new(store: &Store, blocks: Vec<u32>, start: Mark) -> Self {
        Self {
            blocks,
            per_block: store.geometry.block_bytes() / SECTOR as u64,
            granule: (store.device.granule() / SECTOR) as u64,
            head: start.at,
            next: start.number,
            group: 0,
            start,
            marks: VecDeque::new(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.blocks.len() as u64 * self.per_block
    }

    /// Where a record of so many sectors goes.
    fn place(&self, sectors: u64) -> u64 {
        // A pool that was on a device of smaller sectors.
        let head = self.head.next_multiple_of(self.granule);
        let left = self.per_block - head % self.per_block;
        if left < sectors { head + left } else { head }
    }

    /// Sectors that would be in use after a record of so many more.
    fn used_with(&self, sectors: u64) -> u64 {
        self.place(sectors) + sectors - self.start.at
    }

    /// Whether a record of so many bytes can be written as things are. One half is kept free, so that what
    /// is needed of the other can always be gathered there.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let used = self.used_with((bytes / SECTOR) as u64);
        self.is_aligned() && used <= self.capacity() / 2
    }

    /// Whether the device can write where the last record ends.
    pub(super) fn is_aligned(&self) -> bool {
        self.head.is_multiple_of(self.granule)
    }

    /// Whether there is something in it that no commit has.
    pub(super) fn is_needed(&self, retired: u64) -> bool {
        self.group > retired
    }

    /// Sectors that are not in use.
    pub(super) fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.used_with(self.granule))
    }

    /// The newest place known from which on the log has every record after `retired`.
    pub(super) fn start_after(&self, retired: u64) -> Mark {
        if !self.is_needed(retired) {
            return self.end();
        }
        self.marks.iter().rev().find(|(_, group)| *group <= retired).map_or(self.start, |(mark, _)| *mark)
    }

    /// Where the next record goes, whatever its length.
    pub(super) fn end(&self) -> Mark {
        Mark { number: self.next, at: self.head.next_multiple_of(self.granule) }
    }

    /// What is before this place may be written over.
    pub(super) fn begin_at(&mut self, start: Mark) {
        self.start = start;
        self.head = self.head.max(start.at);
        self.marks.retain(|(mark, _)| mark.number >= start.number);
    }

    pub(super) fn root(&self, start: Mark, retired: u64) -> RingRoot {
        RingRoot { blocks: self.blocks.clone(), start, retired, end: self.next }
    }
}

/// Remembers one record of every so many sectors.
fn note_mark(marks: &mut VecDeque<(Mark, u64)>, step: u64, mark: Mark, group: u64) {
    if marks.back().is_none_or(|(last, _)| last.at / step != mark.at / step) {
        marks.push_back((mark, group));
    }
}

/// Reads records, a block at a time.
pub(super) struct Records<'a> {
    store: &'a Store,
    blocks: &'a [u32],
    per_block: u64,
    buffer: AlignedBuf,
    /// Which block is in the buffer, counted since the ring was made.
    loaded: Option<u64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(store: &'a Store, blocks: &'a [u32]) -> Self {
        let bytes = store.geometry.block_bytes();
        let buffer = AlignedBuf::zeroed(bytes as usize);
        Self { store, blocks, per_block: bytes / SECTOR as u64, buffer, loaded: None }
    }

    /// What is left of the block at this place.
    fn bytes(&mut self, at: u64) -> Result<&[u8]> {
        let nth = at / self.per_block;
        if self.loaded != Some(nth) {
            self.loaded = None;
            let offset = self.store.ring_offset(self.blocks, nth * self.per_block);
            let read = self.store.device.read(offset, &mut self.buffer);
            read.map_err(|source| self.store.device_error("reading the line log", source))?;
            add(&self.store.counters.bytes_read, self.buffer.len() as u64);
            self.loaded = Some(nth);
        }
        Ok(&self.buffer[(at % self.per_block) as usize * SECTOR..])
    }

    /// What the sector at this place is.
    fn sector(&mut self, at: u64) -> Result<Sector> {
        let (pool, controller) = (self.store.pool_mark(), self.store.identity.controller);
        let capacity = self.blocks.len() as u64 * self.per_block;
        let bytes = &self.bytes(at)?[..SECTOR];
        let decoded = line::decode(bytes).ok().filter(|sector| {
            let header = &sector.header;
            (header.pool, header.controller) == (pool, controller)
                && header.number < COUNTERS_END
                && header.group < COUNTERS_END
        });
        Ok(match decoded {
            Some(sector) if sector.at() == at => Sector::Written(sector),
            Some(sector) if sector.at() < at && (at - sector.at()).is_multiple_of(capacity) => Sector::Older,
            None if bytes.iter().all(|&byte| byte == 0) => Sector::Older,
            _ => Sector::Damaged,
        })
    }

    /// What stands at this place, where a record may begin.
    fn find_at(&mut self, at: u64) -> Result<Found> {
        let header = match self.sector(at)? {
            Sector::Written(sector) if sector.nth == 0 => sector.header,
            Sector::Written(_) | Sector::Older => return Ok(Found::Nothing),
            Sector::Damaged => return Ok(Found::Damaged),
        };
        let sectors = u64::from(header.sectors);
        if at % self.per_block + sectors > self.per_block {
            return Ok(Found::Damaged);
        }
        let mut whole = true;
        for nth in 1..sectors {
            match self.sector(at + nth)? {
                Sector::Written(sector) if sector.header == header && u64::from(sector.nth) == nth => {}
                Sector::Damaged => return Ok(Found::Damaged),
                // A power cut came while it was written.
                Sector::Written(_) | Sector::Older => whole = false,
            }
        }
        Ok(if whole { Found::Record(header) } else { Found::Nothing })
    }

    /// The record at this place, if there is a whole one.
    pub(super) fn at(&mut self, at: u64) -> Result<Option<(LineHeader, &[u8])>> {
        let Found::Record(header) = self.find_at(at)? else { return Ok(None) };
        Ok(Some((header, &self.bytes(at)?[..usize::from(header.sectors) * SECTOR])))
    }

    /// The place of the record of this number: here, at the start of the next block, or, if the pool was moved
    /// to a device of larger sectors, at the next of those.
    fn find(&mut self, place: Mark) -> Result<Found> {
        let next = (place.at / self.per_block + 1) * self.per_block;
        let granule = (self.store.device.granule() / SECTOR) as u64;
        let mut damaged = false;
        for at in [place.at, place.at.next_multiple_of((ALIGN / SECTOR) as u64), next] {
            match self.find_at(at)? {
                Found::Record(header) if header.number == place.number => return Ok(Found::Record(header)),
                Found::Damaged => {
                    damaged |= [place.at, place.at.next_multiple_of(granule), next].contains(&at);
                }
                Found::Record(_) | Found::Nothing => {}
            }
        }
        Ok(if damaged { Found::Damaged } else { Found::Nothing })
    }

    /// Goes through the records from `start` on, in their order. Returns where the log ends, and whether the
    /// record there is damaged.
    pub(super) fn walk(
        &mut self,
        start: Mark,
        visit: &mut dyn FnMut(&LineHeader, &[u8]) -> Result<()>,
    ) -> Result<(Mark, bool)> {
        let capacity = self.blocks.len() as u64 * self.per_block;
        let mut place = start;
        loop {
            let header = match self.find(place)? {
                Found::Record(header) => header,
                Found::Nothing => return Ok((place, false)),
                Found::Damaged => return Ok((place, place.at < start.at + capacity)),
            };
            let end = header.at + u64::from(header.sectors);
            if end - start.at > capacity {
                return Ok((place, false));
            }
            let record = &self.bytes(header.at)?[..usize::from(header.sectors) * SECTOR];
            visit(&header, record)?;
            place = Mark { number: place.number + 1, at: end };
        }
    }

    /// Whether a record stands behind the end of the log: then the one that should be there is lost, for
    /// records are written one after the other.
    fn goes_on(&mut self, start: Mark, end: Mark) -> Result<bool> {
        let capacity = self.blocks.len() as u64 * self.per_block;
        for at in end.at..start.at + capacity {
            match self.sector(at)? {
                Sector::Written(sector) if sector.header.number > end.number => return Ok(true),
                Sector::Written(sector) if sector.nth == 0 && sector.header.number == end.number => {
                    if let Found::Record(_) = self.find_at(at)? {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// What a sector of the ring holds.
enum Sector {
    /// A part of the record that belongs here.
    Written(LineSector),
    /// A record that stood here before, or nothing yet.
    Older,
    /// Neither: a device writes a sector whole or not at all.
    Damaged,
}

/// What stands where a record may begin.
enum Found {
    Record(LineHeader),
    /// No record, or one whose write a power cut interrupted.
    Nothing,
    Damaged,
}

impl Store {
    fn ring_offset(&self, blocks: &[u32], at: u64) -> u64 {
        let per_block = self.geometry.block_bytes() / SECTOR as u64;
        let block = blocks[(at / per_block) as usize % blocks.len()];
        let slot = u64::from(block) * u64::from(self.geometry.slots_per_block);
        self.geometry.offset(slot) + at % per_block * SECTOR as u64
    }

    /// Writes the next record, durably.
    pub(super) fn write_record(
        &self,
        ring: &mut Ring,
        buffer: &mut AlignedBuf,
        lines: usize,
        group: u64,
    ) -> Result<()> {
        let bytes = self.record_len(lines);
        let sectors = (bytes / SECTOR) as u64;
        if ring.used_with(sectors) > ring.capacity() {
            return Err(self.line_log_full(lines as u64, ring));
        }
        let mark = Mark { number: ring.next, at: ring.place(sectors) };
        let header = LineHeader {
            pool: self.pool_mark(),
            controller: self.identity.controller,
            lines: lines as u16,
            sectors: sectors as u16,
            number: mark.number,
            group,
            at: mark.at,
        };
        line::seal(&mut buffer[..bytes], &header);
        let offset = self.ring_offset(&ring.blocks, mark.at);
        let written = self.write_durable(offset, &buffer[..bytes]);
        written.map_err(|source| self.device_error("writing the line log", source))?;
        add(&self.counters.bytes_written, bytes as u64);
        add(&self.counters.bytes_lines, bytes as u64);
        note_mark(&mut ring.marks, ring.per_block / MARKS, mark, group);
        ring.next += 1;
        ring.group = group;
        ring.head = mark.at + sectors;
        Ok(())
    }

    pub(super) fn line_log_full(&self, lines: u64, ring: &Ring) -> PoolError {
        PoolError::LineLogFull {
            device: self.device.name(),
            lines,
            ring: Bytes(ring.capacity() * SECTOR as u64),
        }
    }

    /// Makes a ring of these blocks, empty, whose first record will have this number.
    pub(super) fn new_ring(&self, blocks: Vec<u32>, number: u64) -> Ring {
        Ring::new(self, blocks, Mark { number, at: 0 })
    }

    /// Finds the end of the line log that a root record tells of. Nothing is written. With `salvage`, a damaged
    /// log ends before the damage.
    pub(in crate::store) fn recover_lines(
        &self,
        log: &mut super::super::Log,
        root: RingRoot,
        salvage: bool,
    ) -> Result<()> {
        let wrong = |what: &str| Err(self.inconsistent(format!("the line log {what}")));
        let distinct: BTreeSet<u32> = root.blocks.iter().copied().collect();
        let is_ours = |block: &u32| {
            let info = self.lock_tables().volume.blocks().info(BlockId(*block));
            info.state == BlockState::Sealed && info.live == self.geometry.slots_per_block
        };
        if root.blocks.is_empty() || distinct.len() != root.blocks.len() || !root.blocks.iter().all(is_ours) {
            return wrong("names blocks that are not its own");
        }
        if [root.start.number, root.start.at, root.retired, root.end].iter().any(|&n| n >= COUNTERS_END) {
            return wrong("has a counter beyond 2^62");
        }
        let mut marks = VecDeque::new();
        let mut records = Records::new(self, &root.blocks);
        let step = records.per_block / MARKS;
        let mut group = 0;
        let (end, damaged) = records.walk(root.start, &mut |header, _| {
            group = header.group;
            note_mark(&mut marks, step, Mark { number: header.number, at: header.at }, group);
            Ok(())
        })?;
        if damaged || end.number < root.end || records.goes_on(root.start, end)? {
            if !salvage {
                return Err(self.lines_damaged(end.number));
            }
            log.lost_lines = Some((root.start.at, end.at));
        }
        let retired = root.retired.max(self.lines.retired.load(Relaxed));
        let mut ring = Ring::new(self, root.blocks, root.start);
        (ring.head, ring.next, ring.group) = (end.at, end.number, group);
        ring.marks = marks;
        ring.begin_at(ring.start_after(retired));
        {
            // A commit may have in it groups that were never written here.
            let mut queue = self.lines.queue();
            let durable = group.max(retired);
            self.lines.durable.store(durable, Relaxed);
            queue.group = durable + 1;
        }
        self.lines.retired.store(retired, Relaxed);
        log.ring = Some(ring.root(ring.start, retired));
        *self.lines.ring() = Some(ring);
        Ok(())
    }

    /// A line that is not in the pool.
    pub(crate) fn foreign_line(&self, line: u64) -> PoolError {
        self.inconsistent(format!("the line log names line {line}, which does not exist"))
    }

    fn lines_damaged(&self, record: u64) -> PoolError {
        let kept = self.tokens().last().map_or(Epoch(0), |token| token.epoch);
        PoolError::LineLogDamaged { device: self.device.name(), record, kept }
    }

    /// Overwrites with zeros the records of a damaged line log that [`Store::recover_lines`] gave up, so that
    /// no later opening takes them for damage.
    pub(in crate::store) fn erase_lost_lines(&self, log: &mut super::super::Log) -> Result<()> {
        let (Some((start, end)), Some(root)) = (log.lost_lines, &log.ring) else { return Ok(()) };
        let per_block = self.geometry.block_bytes() / SECTOR as u64;
        let behind = start + root.blocks.len() as u64 * per_block;
        let mut buffer = AlignedBuf::zeroed(self.geometry.block_bytes() as usize);
        for nth in end / per_block..=behind / per_block {
            let first = nth * per_block;
            let offset = self.ring_offset(&root.blocks, first);
            let read = self.device.read(offset, &mut buffer);
            read.map_err(|source| self.device_error("reading the line log", source))?;
            let lost = end.max(first) - first..behind.min(first + per_block).max(first) - first;
            buffer[lost.start as usize * SECTOR..lost.end as usize * SECTOR].fill(0);
            let written = self.device.write(offset, &buffer);
            written.map_err(|source| self.device_error("erasing lost records of the line log", source))?;
        }
        log.lost_lines = None;
        self.flush_device(log)
    }

    /// Gives every line that was persisted since the last commit, in the order of the persists.
    pub(crate) fn each_line(&self, visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let Some(root) = self.lock_log().ring.clone() else { return Ok(()) };
        let retired = self.lines.retired.load(Relaxed);
        Records::new(self, &root.blocks).walk(root.start, &mut |header, record| {
            if header.group <= retired {
                return Ok(());
            }
            line::lines(record, header.lines).try_for_each(|(line, bytes)| visit(line, bytes))
        })?;
        Ok(())
    }

    /// Where the records of the line log stand.
    pub(in crate::store) fn sites_of_lines(
        &self,
        log: &super::super::Log,
        sites: &mut Vec<Site>,
    ) -> Result<()> {
        let Some(root) = &log.ring else { return Ok(()) };
        Records::new(self, &root.blocks).walk(root.start, &mut |header, _| {
            let start = self.ring_offset(&root.blocks, header.at) as usize;
            sites.extend((0..usize::from(header.sectors)).map(|nth| {
                let start = start + nth * SECTOR;
                let (ranges, checksum_at) =
                    (std::iter::once(start..start + SECTOR).collect(), vec![start + line::CRC_AT]);
                Site { kind: Kind::Line, ranges, len: SECTOR, checksum_at }
            }));
            Ok(())
        })?;
        Ok(())
    }

    /// Reads the line log; what is wrong with it is the report's.
    pub(in crate::store) fn check_lines(&self, log: &super::super::Log, report: &mut Report) -> Result<()> {
        let Some(root) = &log.ring else { return Ok(()) };
        let mut records = Records::new(self, &root.blocks);
        let (end, damaged) = records.walk(root.start, &mut |_, _| {
            report.records += 1;
            Ok(())
        })?;
        if damaged || end.number < root.end {
            report.problems.push(self.lines_damaged(end.number).to_string());
        }
        Ok(())
    }
}
