//! The references of threads, from traces and generated workloads.

use std::collections::HashMap;

use deepram_core::units::Bytes;
use deepram_trace::workload::Spec;
use deepram_trace::{Item, MemRef, MemoryAccess, ObjectPlacement, Op, Request, TraceError, Workload};

use super::llc::LINE_BYTES;
use super::{ThreadReferences, ThreadStep};
use crate::error::SimError;
use deepram_trace::workload::Rng;

/// Turns records into the steps of a thread: references of a memory trace unchanged; a request's bytes
/// line by line, loads for a read and stores for a write, each counting `gap` instructions; a flush as a
/// sync. A trim is no step.
pub fn memory_references<I, E>(
    items: I,
    gap: u32,
    objects: ObjectPlacement,
) -> impl Iterator<Item = Result<ThreadStep, SimError>>
where
    I: Iterator<Item = Result<Item, E>>,
    E: Into<TraceError>,
{
    let mut items = items;
    let mut lines = RequestLines { next: 0, end: 0, access: MemoryAccess::Load, gap };
    std::iter::from_fn(move || {
        loop {
            if let Some(reference) = lines.next() {
                return Some(Ok(reference.into()));
            }
            match items.next()? {
                Ok(Item::Mem(reference)) => return Some(Ok(reference.into())),
                Ok(Item::Block(Request { op: Op::Flush, .. })) => return Some(Ok(ThreadStep::Sync)),
                Ok(item) => lines.set(&item.to_request(&objects)),
                Err(error) => return Some(Err(SimError::Trace(error.into()))),
            }
        }
    })
}

/// The lines of a request.
struct RequestLines {
    next: u64,
    end: u64,
    access: MemoryAccess,
    gap: u32,
}

impl RequestLines {
    fn set(&mut self, request: &Request) {
        self.access = match request.op {
            Op::Read => MemoryAccess::Load,
            Op::Write => MemoryAccess::Store,
            Op::Trim | Op::Flush => return,
        };
        self.next = request.offset;
        self.end = request.offset.saturating_add(request.len);
    }

    #[inline]
    fn next(&mut self) -> Option<MemRef> {
        if self.next >= self.end {
            return None;
        }
        let size = (self.end - self.next).min(LINE_BYTES - self.next % LINE_BYTES);
        let reference = MemRef { gap: self.gap, addr: self.next, size: size as u32, access: self.access };
        self.next += size;
        Some(reference)
    }
}

/// Maps pages of addresses to consecutive pages from `base` on, in the order of first reference, as an
/// operating system does: a program's addresses are spread over 2^47 bytes, a device is smaller.
#[derive(Debug, Clone)]
pub struct FirstTouch {
    page: u64,
    base: u64,
    places: HashMap<u64, u64>,
}

impl FirstTouch {
    /// A mapping of pages of `page` bytes, a power of two of at least a line, from byte `base` on.
    ///
    /// # Errors
    /// The page size is not a power of two, or smaller than a line.
    pub fn new(page: u64, base: u64) -> Result<Self, SimError> {
        if !page.is_power_of_two() || page < LINE_BYTES {
            return Err(SimError::config("page", format!("{page} B: must be a power of two from 64 B on")));
        }
        Ok(Self { page, base, places: HashMap::new() })
    }

    /// Bytes mapped so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.places.len() as u64 * self.page
    }

    /// Translates a reference. One that crosses into another page is cut at the end of its own.
    pub fn place(&mut self, reference: MemRef) -> MemRef {
        let count = self.places.len() as u64;
        let within = reference.addr % self.page;
        let place = *self.places.entry(reference.addr / self.page).or_insert(count);
        let size = u64::from(reference.size).min(self.page - within) as u32;
        MemRef { addr: self.base + place * self.page + within, size, ..reference }
    }
}

/// Part `number` of `count` equal parts of `all`; the first parts are one greater where it does not divide.
#[must_use]
pub fn equal_share(all: u64, number: u64, count: u64) -> u64 {
    all / count + u64::from(number < all % count)
}

/// Puts a barrier into each thread, behind its equal share of `references` warm-up references or at its
/// end, whichever comes first. Puts none if there are no warm-up references.
#[must_use]
pub fn warm_up_first<'t>(threads: Vec<ThreadReferences<'t>>, references: u64) -> Vec<ThreadReferences<'t>> {
    if references == 0 {
        return threads;
    }
    let count = threads.len() as u64;
    let with_barrier = |(number, mut steps): (usize, ThreadReferences<'t>)| {
        let mut left = Some(equal_share(references, number as u64, count));
        let steps = std::iter::from_fn(move || {
            if left == Some(0) {
                left = None;
                return Some(Ok(ThreadStep::Barrier));
            }
            match steps.next() {
                Some(Ok(ThreadStep::Access(reference))) => {
                    left = left.map(|left| left - 1);
                    Some(Ok(reference.into()))
                }
                // The warm-up is longer than the thread.
                None => left.take().map(|_| Ok(ThreadStep::Barrier)),
                other => other,
            }
        });
        Box::new(steps) as ThreadReferences<'t>
    };
    threads.into_iter().enumerate().map(with_barrier).collect()
}

/// The keys of a workload that give the amount of its work.
const AMOUNTS: [&str; 3] = ["count", "updates", "reads"];

/// Splits the workload of `spec` among `threads` threads.
///
/// - Each thread has an equal share of `count`, of GUPS's updates and of mmap-random's reads. Work that a
///   workload otherwise does to its own end (a graph's rounds) is done by each thread in full.
/// - GUPS: each thread starts where the share of the previous one ends, as HPCC's processes do.
/// - dd and sequential: each thread has an equal part of the span.
/// - Others: all threads use the same span, with a seed for each thread; the first has `seed`.
///
/// # Errors
/// The specification is invalid; the workload has no end; the span is too small for the threads.
pub fn workload_threads(
    spec: &str,
    seed: u64,
    threads: u32,
    gap: u32,
) -> Result<Vec<ThreadReferences<'static>>, SimError> {
    let wrong = |error: &dyn std::fmt::Display| SimError::config("workload", error.to_string());
    let spec: Spec = spec.parse().map_err(|error| wrong(&error))?;
    let mut parts = Vec::new();
    for number in 0..u64::from(threads) {
        let share = ThreadShare { spec: &spec, number, threads: u64::from(threads) };
        let Some(text) = share.text()? else {
            parts.push(Box::new(std::iter::empty()) as ThreadReferences<'static>);
            continue;
        };
        let seed = match number {
            0 => seed,
            _ => Rng::new(seed, &format!("thread {number}")).below(u64::MAX),
        };
        let workload = Workload::new(&text, seed).map_err(|error| wrong(&error))?;
        if !workload.ends() {
            return Err(wrong(&format_args!("{} has no end: give it a count", spec.name())));
        }
        let items = workload.map(Ok::<Item, TraceError>);
        parts.push(Box::new(memory_references(items, gap, ObjectPlacement { slot_bytes: 0, slots: 0 })));
    }
    Ok(parts)
}

struct ThreadShare<'a> {
    spec: &'a Spec,
    number: u64,
    threads: u64,
}

impl ThreadShare<'_> {
    /// A number of the spec; 0 if it has no such key.
    fn number(&self, key: &str) -> u64 {
        let text = self.spec.values().find(|(name, _)| *name == key).map_or("0", |(_, text)| text);
        let count = deepram_core::units::parse_count(text);
        count.or_else(|_| text.parse::<Bytes>().map(|bytes| bytes.0)).unwrap_or(0)
    }

    /// This thread's part of `all`, and the sum of the parts of the threads before it.
    fn part(&self, all: u64) -> (u64, u64) {
        let (each, more) = (all / self.threads, all % self.threads);
        (each + u64::from(self.number < more), each * self.number + self.number.min(more))
    }

    /// The specification of the thread's own workload; `None` if the thread has no work.
    fn text(&self) -> Result<Option<String>, SimError> {
        if self.threads == 1 {
            return Ok(Some(self.spec.to_string()));
        }
        let mut set: Vec<(&str, u64)> = Vec::new();
        for key in AMOUNTS {
            let all = match (key, self.number(key)) {
                ("updates", 0) => self.number("table") / 8 * 4,
                (_, all) => all,
            };
            if all > 0 {
                let (mine, before) = self.part(all);
                if mine == 0 {
                    return Ok(None);
                }
                set.push((key, mine));
                if key == "updates" {
                    set.push(("start", self.number("start") + before));
                }
            }
        }
        if matches!(self.spec.name(), "dd-read" | "dd-write" | "sequential") {
            let unit = ["stride", "size", "bs"].map(|key| self.number(key)).into_iter().find(|n| *n > 0);
            let unit = unit.unwrap_or(1);
            let (span, all) = (self.number("span"), self.number("span") / unit);
            let (mine, before) = self.part(all);
            if mine == 0 {
                return Err(SimError::config(
                    "workload",
                    format!(
                        "a span of {span} B is too small for {unit} B for each of {} threads",
                        self.threads
                    ),
                ));
            }
            let last = self.number + 1 == self.threads;
            let bytes = if last { span - before * unit } else { mine * unit };
            set.push(("base", self.number("base") + before * unit));
            set.push(("span", bytes));
        }
        Ok(Some(self.with(&set)))
    }

    /// The specification's text with these keys set.
    fn with(&self, set: &[(&str, u64)]) -> String {
        let text = self.spec.to_string();
        let (name, keys) = text.split_once(':').unwrap_or((&text, ""));
        let kept = keys.split(',').filter(|part| {
            let key = part.split('=').next().unwrap_or_default();
            !part.is_empty() && set.iter().all(|(other, _)| *other != key)
        });
        // Bytes are written with their unit, counts without.
        let added = set.iter().map(|(key, value)| {
            let unit = if matches!(*key, "base" | "span") { "B" } else { "" };
            format!("{key}={value}{unit}")
        });
        format!("{name}:{}", kept.map(str::to_owned).chain(added).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(spec: &str, threads: u32) -> Vec<Vec<MemRef>> {
        let parts = workload_threads(spec, 7, threads, 5).unwrap();
        parts.into_iter().map(|part| part.map(Result::unwrap).map(reference).collect()).collect()
    }

    fn reference(step: ThreadStep) -> MemRef {
        let ThreadStep::Access(reference) = step else { panic!("{step:?} is not a reference") };
        reference
    }

    #[test]
    fn each_thread_has_a_barrier_behind_its_share_of_the_warm_up() {
        for (warm_up, shares) in [(0, [None; 3]), (7, [Some(3), Some(2), Some(2)]), (200, [Some(33); 3])] {
            let parts = workload_threads("uniform:span=1MiB,count=99,size=64B", 1, 3, 1).unwrap();
            for (part, share) in warm_up_first(parts, warm_up).into_iter().zip(shares) {
                let steps: Vec<ThreadStep> = part.map(Result::unwrap).collect();
                assert_eq!(steps.iter().position(|step| *step == ThreadStep::Barrier), share, "{warm_up}");
                assert_eq!(steps.len(), 33 + usize::from(share.is_some()));
            }
        }
    }

    #[test]
    fn a_request_is_a_reference_for_each_line_it_touches_and_a_flush_is_a_sync() {
        let request = |offset, len, op| {
            Ok::<_, TraceError>(Item::Block(Request { time_ps: None, device: 0, offset, len, op }))
        };
        let items = [request(60, 70, Op::Read), request(0, 64, Op::Flush), request(128, 64, Op::Write)];
        let none = ObjectPlacement { slot_bytes: 0, slots: 0 };
        let found: Vec<ThreadStep> =
            memory_references(items.into_iter(), 5, none).map(Result::unwrap).collect();
        let (load, store) = (MemoryAccess::Load, MemoryAccess::Store);
        let line = |addr, size, access| ThreadStep::Access(MemRef { gap: 5, addr, size, access });
        let first = [line(60, 4, load), line(64, 64, load), line(128, 2, load)];
        assert_eq!(found[..3], first);
        assert_eq!(found[3..], [ThreadStep::Sync, line(128, 64, store)]);
    }

    #[test]
    fn gups_in_parts_is_the_whole_sequence() {
        let whole: Vec<MemRef> = all("gups:table=64KiB,updates=1001,base=4KiB", 1).concat();
        for threads in [2, 3, 16] {
            let parts = all("gups:table=64KiB,updates=1001,base=4KiB", threads);
            assert_eq!(parts.concat(), whole, "{threads} threads");
        }
        // Without `updates`: four updates per word, two references each.
        assert_eq!(all("gups:table=4KiB", 5).concat().len(), 512 * 4 * 2);
    }

    #[test]
    fn streams_in_parts_cover_the_span_once() {
        for spec in ["dd-read:span=100KiB,bs=3KiB", "sequential:span=64KiB,size=64B,count=1024,base=1MiB"] {
            let whole = all(spec, 1).concat();
            for threads in [2, 5, 16] {
                assert_eq!(all(spec, threads).concat(), whole, "{spec} {threads}");
            }
        }
        assert!(workload_threads("dd-read:span=4KiB,bs=4KiB", 1, 2, 1).is_err());
    }

    #[test]
    fn random_threads_differ_share_the_count_and_the_first_has_the_seed() {
        let parts = all("uniform:span=1GiB,count=1001,size=64B", 4);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [251, 250, 250, 250]);
        assert!((1..4).all(|n| parts[n][..5] != parts[0][..5]));
        assert_eq!(parts[0][..], all("uniform:span=1GiB,count=1001,size=64B", 1).concat()[..251]);
        assert_eq!(
            all("mmap-random:span=1GiB,reads=3", 16).iter().filter(|part| part.is_empty()).count(),
            13
        );
        let error = workload_threads("uniform", 1, 2, 1).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.contains("give it a count")));
    }

    #[test]
    fn pages_get_places_in_the_order_of_first_touch() {
        let mut pages = FirstTouch::new(4096, 1 << 20).unwrap();
        let at = |addr| MemRef { gap: 1, addr, size: 8, access: MemoryAccess::Load };
        let place = |pages: &mut FirstTouch, addr| pages.place(at(addr)).addr - (1 << 20);
        assert_eq!(place(&mut pages, 0x7fff_0000_1008), 8);
        assert_eq!(place(&mut pages, 0x40_0ff0), 4096 + 0xff0);
        assert_eq!(place(&mut pages, 0x7fff_0000_1010), 16);
        assert_eq!((pages.bytes(), pages.place(at(0xffc)).size), (8192, 4));
        assert!(FirstTouch::new(100, 0).is_err());
    }
}
