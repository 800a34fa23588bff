//! Streams of single accesses: uniform, Zipf, exponential, sequential, mixed, mmap and dd.

use super::RecordSource;
use super::distributions::{Exponential, GrayZipf, Permutation, Zipf};
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, MemRef, MemoryAccess, Op, Request};

enum AddressDistribution {
    Uniform,
    Zipf(Zipf),
    Gray(GrayZipf),
    Exponential(Exponential),
    Sequential,
    Mixed(f64),
}

/// Draws an address and an operation for each access.
pub(super) struct Addresses {
    pick: AddressDistribution,
    shuffle: Option<Permutation>,
    places: u64,
    step: u64,
    size: u64,
    base: u64,
    read: f64,
    /// Instructions per memory reference; `None` for block requests.
    mem: Option<u32>,
    next: u64,
    left: Option<u64>,
    where_rng: Rng,
    op_rng: Rng,
}

impl Addresses {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Addresses, SpecFault> {
        let name = spec.name();
        let span = spec.int_in("span", 1..=u64::MAX)?;
        let size = spec.int_in("size", 1..=span)?;
        let base = spec.int("base");
        if base.checked_add(span).is_none() {
            return Err(SpecFault::Values("base plus span passes 2^64".to_string()));
        }
        let key = if name == "sequential" { "stride" } else { "align" };
        let given = if spec.has(key) { spec.int(key) } else { 0 };
        let step = if given == 0 { size } else { given };
        let places = (span - size) / step + 1;
        let mem = match name {
            "mmap-random" => Some(spec.int_in("gap", 0..=u64::from(u32::MAX))? as u32),
            _ if spec.choice("emit") == "mem" => Some(1),
            _ => None,
        };
        if mem.is_some() && u32::try_from(size).is_err() {
            return Err(SpecFault::value("size", "below 4GiB for memory references"));
        }
        let pick = match name {
            "zipf" => zipf(spec, places)?,
            "exponential" => {
                let lambda = spec.real("lambda");
                if lambda <= 0.0 {
                    return Err(SpecFault::value("lambda", "above 0"));
                }
                AddressDistribution::Exponential(Exponential::new(lambda))
            }
            "sequential" => AddressDistribution::Sequential,
            "mixed" => AddressDistribution::Mixed(spec.real("random")),
            _ => AddressDistribution::Uniform,
        };
        let shuffled = spec.has("layout") && spec.choice("layout") == "shuffled";
        Ok(Addresses {
            pick,
            shuffle: shuffled.then(|| Permutation::new(places, seed)),
            places,
            step,
            size,
            base,
            read: if spec.has("read") { spec.real("read") } else { 1.0 },
            mem,
            next: 0,
            left: if name == "mmap-random" { Some(spec.int("reads")).filter(|n| *n > 0) } else { None },
            where_rng: Rng::new(seed, "place"),
            op_rng: Rng::new(seed, "operation"),
        })
    }

    #[inline]
    fn place(&mut self) -> u64 {
        let rng = &mut self.where_rng;
        let place = match &self.pick {
            AddressDistribution::Uniform => return rng.below(self.places),
            AddressDistribution::Zipf(z) => z.sample(rng),
            AddressDistribution::Gray(z) => z.sample(rng),
            AddressDistribution::Exponential(e) => {
                ((e.sample(rng) * self.places as f64) as u64).min(self.places - 1)
            }
            AddressDistribution::Sequential => self.next,
            AddressDistribution::Mixed(random) => {
                if rng.chance(*random) {
                    rng.below(self.places)
                } else {
                    self.next
                }
            }
        };
        self.next = if place + 1 < self.places { place + 1 } else { 0 };
        match &self.shuffle {
            Some(shuffle) => shuffle.at(place),
            None => place,
        }
    }
}

fn zipf(spec: &Spec, places: u64) -> Result<AddressDistribution, SpecFault> {
    let theta = spec.real("theta");
    match spec.choice("method") {
        "gray" if theta <= 0.0 || theta >= 1.0 => {
            Err(SpecFault::value("theta", "between 0 and 1 with method=gray (method=exact takes any)"))
        }
        "gray" => Ok(AddressDistribution::Gray(GrayZipf::new(places, theta))),
        _ if theta > 100.0 => Err(SpecFault::value("theta", "0 to 100")),
        _ => Ok(AddressDistribution::Zipf(Zipf::new(places, theta))),
    }
}

impl RecordSource for Addresses {
    #[inline]
    fn next(&mut self) -> Option<Item> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let offset = self.base + self.place() * self.step;
        let read = self.read >= 1.0 || self.op_rng.chance(self.read);
        Some(match self.mem {
            Some(gap) => {
                let access = if read { MemoryAccess::Load } else { MemoryAccess::Store };
                Item::Mem(MemRef { gap, addr: offset, size: self.size as u32, access })
            }
            None => {
                let op = if read { Op::Read } else { Op::Write };
                Item::Block(Request { time_ps: None, device: 0, offset, len: self.size, op })
            }
        })
    }

    fn ends(&self) -> bool {
        self.left.is_some()
    }
}

/// dd: sequential requests, the last one possibly shorter, then the end.
pub(super) struct Dd {
    at: u64,
    end: u64,
    bs: u64,
    op: Op,
    flush_each: bool,
    flush_end: bool,
    flush_due: bool,
}

impl Dd {
    pub(super) fn new(spec: &Spec) -> Result<Dd, SpecFault> {
        let (span, base) = (spec.int("span"), spec.int("base"));
        let end = base
            .checked_add(span)
            .ok_or_else(|| SpecFault::Values("base plus span passes 2^64".to_string()))?;
        let write = spec.name() == "dd-write";
        let sync = if write { spec.choice("sync") } else { "none" };
        Ok(Dd {
            at: base,
            end,
            bs: spec.int_in("bs", 1..=u64::MAX)?,
            op: if write { Op::Write } else { Op::Read },
            flush_each: sync == "each",
            flush_end: sync == "end",
            flush_due: false,
        })
    }
}

/// A flush of everything.
pub(super) const FLUSH: Item =
    Item::Block(Request { time_ps: None, device: 0, offset: 0, len: 0, op: Op::Flush });

impl RecordSource for Dd {
    fn next(&mut self) -> Option<Item> {
        if std::mem::take(&mut self.flush_due) {
            return Some(FLUSH);
        }
        if self.at >= self.end {
            return std::mem::take(&mut self.flush_end).then_some(FLUSH);
        }
        let (offset, len) = (self.at, self.bs.min(self.end - self.at));
        self.at += len;
        self.flush_due = self.flush_each;
        Some(Item::Block(Request { time_ps: None, device: 0, offset, len, op: self.op }))
    }

    fn ends(&self) -> bool {
        true
    }
}
