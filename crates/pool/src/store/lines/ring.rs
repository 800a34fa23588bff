//! The ring that stores the records of the line log: blocks taken from the log of segments, overwritten in a circle.
//! Their space on the device is reserved before the first record, so that a durable write is one command.
//!
//! A position in the ring counts sectors since the ring was made, so no position occurs twice. A record does not
//! cross the end of a block; a record that does not fit begins in the next block.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;

use super::super::{ChecksumKind, ChecksumSite, Report, Result, Store};
use deepram_core::ftl::BlockState;
use deepram_core::{BlockId, Bytes, Epoch};

use crate::device::{ALIGN, SECTOR};
use crate::error::PoolError;
use crate::format::header::COUNTERS_END;
use crate::format::line::{self, LineHeader, LineSector};
use crate::stats::add;
use deepram_linux::buffer::AlignedBuf;

/// Remembered positions in each block: the granularity at which the beginning of the log can move.
const POSITIONS_PER_BLOCK: u64 = 16;

/// Number and position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPosition {
    pub(crate) number: u64,
    pub(crate) at: u64,
}

/// Description of the ring in the root record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingRoot {
    pub(crate) blocks: Vec<u32>,
    /// The first record that may be needed.
    pub(crate) start: RecordPosition,
    /// The last commit covers the groups up to this one.
    pub(crate) retired: u64,
    /// Records below this number were durable when this description was written.
    pub(crate) end: u64,
}

/// The ring as its writer knows it.
pub(super) struct Ring {
    pub(super) blocks: Vec<u32>,
    /// Sectors in a block.
    per_block: u64,
    /// Alignment of a durable write, in sectors.
    granule: u64,
    /// Position of the next record, if the record fits there.
    pub(super) head: u64,
    /// Number of the next record.
    pub(super) next: u64,
    /// Group of the last record.
    pub(super) group: u64,
    /// Records before this position are not needed.
    start: RecordPosition,
    /// Some of the later records, in order, with their groups.
    positions: VecDeque<(RecordPosition, u64)>,
}

impl Ring {
    fn new(store: &Store, blocks: Vec<u32>, start: RecordPosition) -> Self {
        Self {
            blocks,
            per_block: store.geometry.block_bytes() / SECTOR as u64,
            granule: (store.device.granule() / SECTOR) as u64,
            head: start.at,
            next: start.number,
            group: 0,
            start,
            positions: VecDeque::new(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.blocks.len() as u64 * self.per_block
    }

    /// Returns the position of a record of `sectors` sectors.
    fn place(&self, sectors: u64) -> u64 {
        // The head may be unaligned if the pool was moved from a device with smaller sectors.
        let head = self.head.next_multiple_of(self.granule);
        let left = self.per_block - head % self.per_block;
        if left < sectors { head + left } else { head }
    }

    /// Returns the sectors in use after a record of `sectors` more.
    fn used_with(&self, sectors: u64) -> u64 {
        self.place(sectors) + sectors - self.start.at
    }

    /// Returns whether a record of `bytes` bytes can be written now. Half of the ring stays free, so that the needed
    /// records of the other half can always be rewritten there.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let used = self.used_with((bytes / SECTOR) as u64);
        self.is_aligned() && used <= self.capacity() / 2
    }

    /// Returns whether the device can write where the last record ends.
    pub(super) fn is_aligned(&self) -> bool {
        self.head.is_multiple_of(self.granule)
    }

    /// Returns whether the ring holds a record that no commit covers.
    pub(super) fn is_needed(&self, retired: u64) -> bool {
        self.group > retired
    }

    /// Returns the number of free sectors.
    pub(super) fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.used_with(self.granule))
    }

    /// Returns the newest known position from which the log holds every record after `retired`.
    pub(super) fn start_after(&self, retired: u64) -> RecordPosition {
        if !self.is_needed(retired) {
            return self.end();
        }
        self.positions
            .iter()
            .rev()
            .find(|(_, group)| *group <= retired)
            .map_or(self.start, |(position, _)| *position)
    }

    /// Returns the position of the next record, independent of its length.
    pub(super) fn end(&self) -> RecordPosition {
        RecordPosition { number: self.next, at: self.head.next_multiple_of(self.granule) }
    }

    /// Moves the beginning of the log: earlier records may be overwritten.
    pub(super) fn begin_at(&mut self, start: RecordPosition) {
        self.start = start;
        self.head = self.head.max(start.at);
        self.positions.retain(|(position, _)| position.number >= start.number);
    }

    pub(super) fn root(&self, start: RecordPosition, retired: u64) -> RingRoot {
        RingRoot { blocks: self.blocks.clone(), start, retired, end: self.next }
    }
}

/// Remembers one record in every `step` sectors.
fn note_position(
    positions: &mut VecDeque<(RecordPosition, u64)>,
    step: u64,
    position: RecordPosition,
    group: u64,
) {
    if positions.back().is_none_or(|(last, _)| last.at / step != position.at / step) {
        positions.push_back((position, group));
    }
}

/// Reads records, one block at a time.
pub(super) struct Records<'a> {
    store: &'a Store,
    blocks: &'a [u32],
    per_block: u64,
    buffer: AlignedBuf,
    /// Number of the block in the buffer, counted since the ring was made.
    loaded: Option<u64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(store: &'a Store, blocks: &'a [u32]) -> Self {
        let bytes = store.geometry.block_bytes();
        let buffer = AlignedBuf::zeroed(bytes as usize);
        Self { store, blocks, per_block: bytes / SECTOR as u64, buffer, loaded: None }
    }

    /// Returns the bytes from this position to the end of its block.
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

    /// Classifies the sector at this position.
    fn sector(&mut self, at: u64) -> Result<SectorState> {
        let (pool, controller) = (self.store.uuid_prefix(), self.store.identity.controller);
        let capacity = self.blocks.len() as u64 * self.per_block;
        let bytes = &self.bytes(at)?[..SECTOR];
        let decoded = line::decode(bytes).ok().filter(|sector| {
            let header = &sector.header;
            (header.pool, header.controller) == (pool, controller)
                && header.number < COUNTERS_END
                && header.group < COUNTERS_END
        });
        Ok(match decoded {
            Some(sector) if sector.at() == at => SectorState::Written(sector),
            Some(sector) if sector.at() < at && (at - sector.at()).is_multiple_of(capacity) => {
                SectorState::Older
            }
            None if bytes.iter().all(|&byte| byte == 0) => SectorState::Older,
            _ => SectorState::Damaged,
        })
    }

    /// Looks for a record that begins at this position.
    fn find_at(&mut self, at: u64) -> Result<RecordSearch> {
        let header = match self.sector(at)? {
            SectorState::Written(sector) if sector.nth == 0 => sector.header,
            SectorState::Written(_) | SectorState::Older => return Ok(RecordSearch::Nothing),
            SectorState::Damaged => return Ok(RecordSearch::Damaged),
        };
        let sectors = u64::from(header.sectors);
        if at % self.per_block + sectors > self.per_block {
            return Ok(RecordSearch::Damaged);
        }
        let mut whole = true;
        for nth in 1..sectors {
            match self.sector(at + nth)? {
                SectorState::Written(sector) if sector.header == header && u64::from(sector.nth) == nth => {}
                SectorState::Damaged => return Ok(RecordSearch::Damaged),
                // A power cut interrupted the write of this record.
                SectorState::Written(_) | SectorState::Older => whole = false,
            }
        }
        Ok(if whole { RecordSearch::Record(header) } else { RecordSearch::Nothing })
    }

    /// Returns the record at this position, if a complete one begins there.
    pub(super) fn at(&mut self, at: u64) -> Result<Option<(LineHeader, &[u8])>> {
        let RecordSearch::Record(header) = self.find_at(at)? else { return Ok(None) };
        Ok(Some((header, &self.bytes(at)?[..usize::from(header.sectors) * SECTOR])))
    }

    /// Looks for the record with this number: at the position, at the start of the next block, or, if the pool was
    /// moved to a device with larger sectors, at the next such sector.
    fn find(&mut self, place: RecordPosition) -> Result<RecordSearch> {
        let next = (place.at / self.per_block + 1) * self.per_block;
        let granule = (self.store.device.granule() / SECTOR) as u64;
        let mut damaged = false;
        for at in [place.at, place.at.next_multiple_of((ALIGN / SECTOR) as u64), next] {
            match self.find_at(at)? {
                RecordSearch::Record(header) if header.number == place.number => {
                    return Ok(RecordSearch::Record(header));
                }
                RecordSearch::Damaged => {
                    damaged |= [place.at, place.at.next_multiple_of(granule), next].contains(&at);
                }
                RecordSearch::Record(_) | RecordSearch::Nothing => {}
            }
        }
        Ok(if damaged { RecordSearch::Damaged } else { RecordSearch::Nothing })
    }

    /// Visits the records from `start` on, in order. Returns the end of the log, and whether the record there is
    /// damaged.
    pub(super) fn walk(
        &mut self,
        start: RecordPosition,
        visit: &mut dyn FnMut(&LineHeader, &[u8]) -> Result<()>,
    ) -> Result<(RecordPosition, bool)> {
        let capacity = self.blocks.len() as u64 * self.per_block;
        let mut place = start;
        loop {
            let header = match self.find(place)? {
                RecordSearch::Record(header) => header,
                RecordSearch::Nothing => return Ok((place, false)),
                RecordSearch::Damaged => return Ok((place, place.at < start.at + capacity)),
            };
            let end = header.at + u64::from(header.sectors);
            if end - start.at > capacity {
                return Ok((place, false));
            }
            let record = &self.bytes(header.at)?[..usize::from(header.sectors) * SECTOR];
            visit(&header, record)?;
            place = RecordPosition { number: place.number + 1, at: end };
        }
    }

    /// Returns whether a record exists after the end of the log. Records are written one after the other, so the
    /// missing record is then lost.
    fn continues_after(&mut self, start: RecordPosition, end: RecordPosition) -> Result<bool> {
        let capacity = self.blocks.len() as u64 * self.per_block;
        for at in end.at..start.at + capacity {
            match self.sector(at)? {
                SectorState::Written(sector) if sector.header.number > end.number => return Ok(true),
                SectorState::Written(sector) if sector.nth == 0 && sector.header.number == end.number => {
                    if let RecordSearch::Record(_) = self.find_at(at)? {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        Ok(false)
    }
}

/// State of a sector in the ring.
enum SectorState {
    /// A part of the record that belongs here.
    Written(LineSector),
    /// A part of an earlier record at this position, or zeros.
    Older,
    /// Damaged, because a device writes a sector completely or not at all.
    Damaged,
}

/// What a position holds at which a record may begin.
enum RecordSearch {
    Record(LineHeader),
    /// No record, or a record whose write a power cut interrupted.
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
        let position = RecordPosition { number: ring.next, at: ring.place(sectors) };
        let header = LineHeader {
            pool: self.uuid_prefix(),
            controller: self.identity.controller,
            lines: lines as u16,
            sectors: sectors as u16,
            number: position.number,
            group,
            at: position.at,
        };
        line::seal(&mut buffer[..bytes], &header);
        let offset = self.ring_offset(&ring.blocks, position.at);
        let written = self.write_durable(offset, &buffer[..bytes]);
        written.map_err(|source| self.device_error("writing the line log", source))?;
        self.count_written(bytes as u64);
        add(&self.counters.bytes_lines, bytes as u64);
        note_position(&mut ring.positions, ring.per_block / POSITIONS_PER_BLOCK, position, group);
        ring.next += 1;
        ring.group = group;
        ring.head = position.at + sectors;
        Ok(())
    }

    pub(super) fn line_log_full(&self, lines: u64, ring: &Ring) -> PoolError {
        PoolError::LineLogFull {
            device: self.device.name(),
            lines,
            ring: Bytes(ring.capacity() * SECTOR as u64),
        }
    }

    /// Makes an empty ring from these blocks. Its first record will have the given number.
    pub(super) fn new_ring(&self, blocks: Vec<u32>, number: u64) -> Ring {
        Ring::new(self, blocks, RecordPosition { number, at: 0 })
    }

    /// Finds the end of the line log that a root record describes. Writes nothing. With `salvage`, a damaged log ends
    /// before the damage.
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
            return wrong("refers to blocks that it does not own");
        }
        if [root.start.number, root.start.at, root.retired, root.end].iter().any(|&n| n >= COUNTERS_END) {
            return wrong("has a counter beyond 2^62");
        }
        let mut positions = VecDeque::new();
        let mut records = Records::new(self, &root.blocks);
        let step = records.per_block / POSITIONS_PER_BLOCK;
        let mut group = 0;
        let (end, damaged) = records.walk(root.start, &mut |header, _| {
            group = header.group;
            note_position(
                &mut positions,
                step,
                RecordPosition { number: header.number, at: header.at },
                group,
            );
            Ok(())
        })?;
        if damaged || end.number < root.end || records.continues_after(root.start, end)? {
            if !salvage {
                return Err(self.lines_damaged(end.number));
            }
            log.lost_lines = Some((root.start.at, end.at));
        }
        let retired = root.retired.max(self.lines.retired.load(Relaxed));
        let mut ring = Ring::new(self, root.blocks, root.start);
        (ring.head, ring.next, ring.group) = (end.at, end.number, group);
        ring.positions = positions;
        ring.begin_at(ring.start_after(retired));
        {
            // A commit may cover groups that were never written here.
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

    /// Makes the error for a line outside the pool.
    pub(crate) fn unknown_line_error(&self, line: u64) -> PoolError {
        self.inconsistent(format!("the line log contains line {line}, which does not exist"))
    }

    fn lines_damaged(&self, record: u64) -> PoolError {
        let kept = self.tokens().last().map_or(Epoch(0), |token| token.epoch);
        PoolError::LineLogDamaged { device: self.device.name(), record, kept }
    }

    /// Overwrites with zeros the records of a damaged line log that [`Store::recover_lines`] gave up, so that no
    /// later opening takes them for damage.
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

    /// Visits every line that was persisted since the last commit, in the order of the persists.
    pub(crate) fn for_each_line(&self, visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
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

    /// Adds the checksums of the line log's records.
    pub(in crate::store) fn sites_of_lines(
        &self,
        log: &super::super::Log,
        sites: &mut Vec<ChecksumSite>,
    ) -> Result<()> {
        let Some(root) = &log.ring else { return Ok(()) };
        Records::new(self, &root.blocks).walk(root.start, &mut |header, _| {
            let start = self.ring_offset(&root.blocks, header.at) as usize;
            sites.extend((0..usize::from(header.sectors)).map(|nth| {
                let start = start + nth * SECTOR;
                let (ranges, checksum_at) =
                    (std::iter::once(start..start + SECTOR).collect(), vec![start + line::CRC_AT]);
                ChecksumSite { kind: ChecksumKind::Line, ranges, len: SECTOR, checksum_at }
            }));
            Ok(())
        })?;
        Ok(())
    }

    /// Reads the line log and adds its damage to the report.
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
