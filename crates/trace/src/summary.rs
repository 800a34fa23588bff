//! Characterises a trace: counts, sizes, times and footprint.

use crate::record::{Item, MemoryAccess, Op};
use deepram_core::units::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Page size of the footprint, in bytes.
pub const FOOTPRINT_PAGE: u64 = 4096;

/// A set of numbers, stored as disjoint ranges that merge when they meet. Memory depends on the
/// number of separate ranges, not on their lengths.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// Maps the first number of a range to the number after its last (wide enough for 2^64).
    map: BTreeMap<u64, u128>,
    total: u128,
}

impl Ranges {
    /// Adds `first..=last`.
    pub fn add(&mut self, first: u64, last: u64) {
        let (mut start, mut end) = (first, u128::from(last) + 1);
        if end <= u128::from(start) {
            return;
        }
        if let Some((&before, &before_end)) = self.map.range(..=start).next_back() {
            if before_end >= end {
                return;
            }
            if before_end >= u128::from(start) {
                self.remove(before, before_end);
                start = before;
            }
        }
        while let Some((&next, &next_end)) = self.map.range(start..).next() {
            if u128::from(next) > end {
                break;
            }
            self.remove(next, next_end);
            end = end.max(next_end);
        }
        self.total += end - u128::from(start);
        self.map.insert(start, end);
    }

    fn remove(&mut self, start: u64, end: u128) {
        self.map.remove(&start);
        self.total -= end - u128::from(start);
    }

    /// Count of numbers in the set.
    pub fn total(&self) -> u128 {
        self.total
    }
}

/// Count and bytes of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpStats {
    /// Number of records.
    pub count: u64,
    /// Sum of their lengths, in bytes.
    pub bytes: u128,
}

impl OpStats {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += u128::from(bytes);
    }
}

/// Summary of the records passed to [`Summary::add`]. Memory grows with the separate ranges of
/// pages and the distinct objects, not with the number of records.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Number of records of all kinds.
    pub records: u64,
    /// Block requests by [`Op`], in the order of [`Op::ALL`].
    pub block: [OpStats; 4],
    /// Object accesses by [`Op`].
    pub object: [OpStats; 4],
    /// Memory references by [`MemoryAccess`], in the order of [`MemoryAccess::ALL`].
    pub mem: [OpStats; 3],
    /// Number of instructions between the first and the last memory reference.
    pub instructions: u64,
    /// Number of requests per device.
    pub devices: BTreeMap<u32, u64>,
    /// Block requests that begin where the previous request to the same device ended.
    pub sequential: u64,
    /// Earliest and latest time in picoseconds.
    pub time_ps: Option<(u64, u64)>,
    /// Number of records with a time.
    pub timed: u64,
    /// Number of records with an earlier time than the previous record.
    pub out_of_order: u64,
    /// Histogram of the non-negative times between consecutive records: entry i counts those from
    /// 2^(i-1) up to but excluding 2^i picoseconds, entry 0 those of 0.
    pub interarrival_log2_ps: [u64; 65],
    /// Sum of these times, in picoseconds.
    pub interarrival_sum_ps: u128,
    /// Smallest and largest length of requests, references and objects, in bytes.
    pub size: Option<(u64, u64)>,
    /// Histogram of lengths in bytes, in the same classes.
    pub size_log2: [u64; 65],
    /// Lowest and highest address of requests and references.
    pub span: Option<(u64, u64)>,
    footprint: BTreeMap<u32, Ranges>,
    objects: BTreeSet<u64>,
    object_bytes: u128,
    last_time: Option<u64>,
    last_end: BTreeMap<u32, u64>,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            records: 0,
            block: [OpStats::default(); 4],
            object: [OpStats::default(); 4],
            mem: [OpStats::default(); 3],
            instructions: 0,
            devices: BTreeMap::new(),
            sequential: 0,
            time_ps: None,
            timed: 0,
            out_of_order: 0,
            interarrival_log2_ps: [0; 65],
            interarrival_sum_ps: 0,
            size: None,
            size_log2: [0; 65],
            span: None,
            footprint: BTreeMap::new(),
            objects: BTreeSet::new(),
            object_bytes: 0,
            last_time: None,
            last_end: BTreeMap::new(),
        }
    }
}

fn log2_class(value: u64) -> usize {
    (64 - value.leading_zeros()) as usize
}

impl Summary {
    /// Summarises a whole trace.
    ///
    /// # Errors
    /// The first error of the trace.
    pub fn of<E>(records: impl IntoIterator<Item = Result<Item, E>>) -> Result<Summary, E> {
        let mut summary = Summary::default();
        for item in records {
            summary.add(&item?);
        }
        Ok(summary)
    }

    /// Adds a record.
    pub fn add(&mut self, item: &Item) {
        self.records += 1;
        if let Some(time) = item.time_ps() {
            self.time(time);
        }
        match item {
            Item::Block(r) => {
                self.block[r.op as usize].add(r.len);
                *self.devices.entry(r.device).or_default() += 1;
                if r.op != Op::Flush {
                    self.range(r.device, r.offset, r.len);
                    let end = self.last_end.insert(r.device, r.offset.saturating_add(r.len));
                    self.sequential += u64::from(end == Some(r.offset));
                    self.size(r.len);
                }
            }
            Item::Mem(m) => {
                self.mem[m.access as usize].add(m.size.into());
                self.instructions = self.instructions.saturating_add(m.gap.into());
                self.range(0, m.addr, m.size.into());
                self.size(m.size.into());
            }
            Item::Object(o) => {
                self.object[o.op as usize].add(o.size);
                if self.objects.insert(o.id) {
                    self.object_bytes += u128::from(o.size);
                }
                self.size(o.size);
            }
        }
    }

    fn time(&mut self, time: u64) {
        self.timed += 1;
        self.time_ps = Some(self.time_ps.map_or((time, time), |(lo, hi)| (lo.min(time), hi.max(time))));
        if let Some(last) = self.last_time.replace(time) {
            match time.checked_sub(last) {
                Some(gap) => {
                    self.interarrival_log2_ps[log2_class(gap)] += 1;
                    self.interarrival_sum_ps += u128::from(gap);
                }
                None => self.out_of_order += 1,
            }
        }
    }

    fn size(&mut self, bytes: u64) {
        self.size = Some(self.size.map_or((bytes, bytes), |(lo, hi)| (lo.min(bytes), hi.max(bytes))));
        self.size_log2[log2_class(bytes)] += 1;
    }

    fn range(&mut self, device: u32, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = offset.saturating_add(len - 1);
        self.footprint.entry(device).or_default().add(offset / FOOTPRINT_PAGE, last / FOOTPRINT_PAGE);
        self.span = Some(self.span.map_or((offset, last), |(lo, hi)| (lo.min(offset), hi.max(last))));
    }

    /// Number of distinct 4 KiB pages in requests and references; devices are counted separately.
    pub fn footprint_pages(&self) -> u128 {
        self.footprint.values().map(Ranges::total).sum()
    }

    /// Size of the footprint in bytes.
    pub fn footprint_bytes(&self) -> u128 {
        self.footprint_pages() * u128::from(FOOTPRINT_PAGE)
    }

    /// Number of distinct objects.
    pub fn distinct_objects(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Size of all distinct objects in bytes, each at its first size.
    pub fn distinct_object_bytes(&self) -> u128 {
        self.object_bytes
    }

    /// Sum of the lengths of all records, in bytes.
    pub fn bytes(&self) -> u128 {
        self.block.iter().chain(&self.object).chain(&self.mem).map(|s| s.bytes).sum()
    }

    /// Share of writes among reads and writes; `None` if there are none.
    pub fn write_ratio(&self) -> Option<f64> {
        let (reads, writes) = (self.block[Op::Read as usize].count, self.block[Op::Write as usize].count);
        (reads + writes > 0).then(|| writes as f64 / (reads + writes) as f64)
    }

    /// Mean length in bytes of all records with a length; `None` if there are none.
    pub fn mean_size(&self) -> Option<f64> {
        let count: u64 = self.size_log2.iter().sum();
        let flushed = self.block[Op::Flush as usize].bytes;
        (count > 0).then(|| (self.bytes() - flushed) as f64 / count as f64)
    }

    /// Mean time between records in picoseconds; `None` with fewer than two times.
    pub fn mean_interarrival_ps(&self) -> Option<f64> {
        let count: u64 = self.interarrival_log2_ps.iter().sum();
        (count > 0).then(|| self.interarrival_sum_ps as f64 / count as f64)
    }
}

fn bytes(n: u128) -> Bytes {
    Bytes(u64::try_from(n).unwrap_or(u64::MAX))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "records          {}", self.records)?;
        let mut ops = |what: &str, name: &str, s: &OpStats, all: u64| {
            if s.count == 0 {
                return Ok(());
            }
            let share = 100.0 * s.count as f64 / all as f64;
            writeln!(f, "  {:<14} {} ({share:.2}%), {}", format!("{what}{name}"), s.count, bytes(s.bytes))
        };
        let sum = |stats: &[OpStats]| stats.iter().map(|s| s.count).sum();
        for (op, s) in Op::ALL.iter().zip(&self.block) {
            ops("", op.name(), s, sum(&self.block))?;
        }
        for (op, s) in Op::ALL.iter().zip(&self.object) {
            ops("object ", op.name(), s, sum(&self.object))?;
        }
        for (access, s) in MemoryAccess::ALL.iter().zip(&self.mem) {
            ops("", access.name(), s, sum(&self.mem))?;
        }
        if self.instructions > 0 {
            writeln!(f, "instructions     {}", self.instructions)?;
        }
        if self.devices.len() > 1 {
            writeln!(f, "devices          {}", self.devices.len())?;
        }
        if let (Some((lo, hi)), Some(mean)) = (self.size, self.mean_size()) {
            writeln!(f, "size             {} to {}, mean {mean:.1} B", Bytes(lo), Bytes(hi))?;
        }
        if self.footprint_pages() > 0 {
            writeln!(
                f,
                "footprint        {} in {} pages of 4 KiB",
                bytes(self.footprint_bytes()),
                self.footprint_pages()
            )?;
        }
        if let Some((lo, hi)) = self.span {
            writeln!(f, "addresses        {lo:#x} to {hi:#x}")?;
        }
        if self.distinct_objects() > 0 {
            writeln!(f, "objects          {}, {}", self.distinct_objects(), bytes(self.object_bytes))?;
        }
        let requests: u64 = self.devices.values().sum();
        if requests > 0 {
            writeln!(f, "sequential       {:.2}%", 100.0 * self.sequential as f64 / requests as f64)?;
        }
        if let Some((lo, hi)) = self.time_ps {
            writeln!(f, "time             {:.6} s to {:.6} s", lo as f64 / 1e12, hi as f64 / 1e12)?;
        }
        if let Some(mean) = self.mean_interarrival_ps() {
            writeln!(f, "interarrival     mean {:.3} us, {} out of order", mean / 1e6, self.out_of_order)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_meet_become_one_and_count_once() {
        let mut r = Ranges::default();
        for (a, b) in [(10, 19), (30, 39), (15, 32), (40, 40), (0, 0), (12, 13)] {
            r.add(a, b);
        }
        assert_eq!((r.total(), r.map.len()), (32, 2));
        r.add(0, u64::MAX);
        assert_eq!((r.total(), r.map.len()), (1 << 64, 1));
    }

    #[test]
    fn ranges_equal_a_set_of_numbers() {
        let mut state = 1u64;
        let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
        for _ in 0..2000 {
            state = crate::text_fields::mix64(state);
            let (first, len) = (state % 5000, state >> 32 & 15);
            ranges.add(first, first + len);
            set.extend(first..=first + len);
            assert_eq!(ranges.total(), set.len() as u128);
        }
    }
}
