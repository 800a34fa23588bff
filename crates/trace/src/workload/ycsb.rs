//! YCSB core workloads, as requests to a store of fixed-size records.
//!
//! Record `key` is stored in slot `key` (ordered) or a shuffled slot (hashed); slots are grouped
//! into pages. A read reads the record, an update writes a field (or the record), an insert writes
//! a new record, a read-modify-write reads and then writes, and a scan reads each of its records in
//! key order. Zipfian requests are scrambled as in YCSB: a rank drawn among 10^10 is hashed,
//! reduced modulo the final number of keys, and drawn again while its record is not yet inserted.
//! Popular records therefore stay the same as others are added. "Latest" requests draw a rank
//! counted back from the newest record. There is space for twice the inserts expected from `count`
//! (without it, for as many as there are records); the stream ends when it is used up.

use super::RecordSource;
use super::distributions::{GrayZipf, Permutation, fnv_u64};
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, Op, Request};

/// Number of ranks of YCSB's ScrambledZipfianGenerator.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;

/// Draws before an existing record is taken instead. YCSB draws without limit; the limit matters
/// only if far more records will be inserted than exist.
const PATIENCE: usize = 64;

enum KeyDistribution {
    Uniform,
    Zipfian(GrayZipf),
    Latest(GrayZipf),
}

#[derive(Clone, Copy)]
enum WriteOperation {
    Update,
    Insert,
    ReadModifyWrite,
}

pub(super) struct Ycsb {
    first_share: f64,
    scans: bool,
    second: WriteOperation,
    pick: KeyDistribution,
    records: u64,
    capacity: u64,
    shuffle: Option<Permutation>,
    record: u64,
    field: u64,
    per_page: u64,
    page: u64,
    longest_scan: u64,
    scan: Option<(u64, u64)>,
    pending: Option<Item>,
    key_rng: Rng,
    op_rng: Rng,
}

impl Ycsb {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Ycsb, SpecFault> {
        let (first_share, scans, second) = match spec.name() {
            "ycsb-a" => (0.5, false, WriteOperation::Update),
            "ycsb-b" => (0.95, false, WriteOperation::Update),
            "ycsb-c" => (1.0, false, WriteOperation::Update),
            "ycsb-d" => (0.95, false, WriteOperation::Insert),
            "ycsb-e" => (0.95, true, WriteOperation::Insert),
            _ => (0.5, false, WriteOperation::ReadModifyWrite),
        };
        let records = spec.int_in("records", 1..=1 << 48)?;
        let record = spec.int_in("record", 1..=1 << 30)?;
        let page = spec.int_in("page", 1..=1 << 40)?;
        let field = match spec.choice("update") {
            "record" => record,
            _ => spec.int_in("field", 1..=record)?,
        };
        // As in YCSB, space for twice the expected inserts.
        let inserts = match (second, spec.int("count")) {
            (WriteOperation::Insert, 0) => records,
            (WriteOperation::Insert, count) => (count / 10).saturating_add(100),
            _ => 0,
        };
        let capacity = records.saturating_add(inserts);
        // A record larger than a page starts at a page boundary.
        let (page, per_page) =
            if record > page { (record.div_ceil(page) * page, 1) } else { (page, page / record) };
        if (capacity / per_page + 1).checked_mul(page).is_none() {
            return Err(SpecFault::Values("records and inserts take more than 2^64 bytes".to_string()));
        }
        let theta = spec.real("theta");
        if spec.choice("request") != "uniform" && (theta <= 0.0 || theta >= 1.0) {
            return Err(SpecFault::value("theta", "between 0 and 1"));
        }
        let pick = match spec.choice("request") {
            "uniform" => KeyDistribution::Uniform,
            "latest" => KeyDistribution::Latest(GrayZipf::new(records, theta)),
            _ => KeyDistribution::Zipfian(GrayZipf::new(SCRAMBLED_RANKS, theta)),
        };
        Ok(Ycsb {
            first_share,
            scans,
            second,
            pick,
            records,
            capacity,
            shuffle: (spec.choice("order") == "hashed").then(|| Permutation::new(capacity, seed)),
            record,
            field,
            per_page,
            page,
            longest_scan: spec.int_in("scan", 1..=u64::MAX)?,
            scan: None,
            pending: None,
            key_rng: Rng::new(seed, "key"),
            op_rng: Rng::new(seed, "operation"),
        })
    }

    fn key(&mut self) -> u64 {
        match &self.pick {
            KeyDistribution::Uniform => self.key_rng.below(self.records),
            KeyDistribution::Zipfian(zipf) => {
                let mut hash = 0;
                for _ in 0..PATIENCE {
                    hash = fnv_u64(zipf.sample(&mut self.key_rng));
                    if hash % self.capacity < self.records {
                        return hash % self.capacity;
                    }
                }
                hash % self.records
            }
            KeyDistribution::Latest(zipf) => {
                self.records - 1 - zipf.sample(&mut self.key_rng).min(self.records - 1)
            }
        }
    }

    fn request(&self, key: u64, within: u64, len: u64, op: Op) -> Item {
        let slot = self.shuffle.as_ref().map_or(key, |s| s.at(key));
        let offset = slot / self.per_page * self.page + slot % self.per_page * self.record + within;
        Item::Block(Request { time_ps: None, device: 0, offset, len, op })
    }

    fn update(&mut self, key: u64) -> Item {
        let fields = (self.record / self.field).max(1);
        let within = self.op_rng.below(fields) * self.field;
        self.request(key, within, self.field, Op::Write)
    }
}

impl RecordSource for Ycsb {
    fn next(&mut self) -> Option<Item> {
        if let Some(item) = self.pending.take() {
            return Some(item);
        }
        if let Some((key, left)) = self.scan.take() {
            if left > 1 && key + 1 < self.records {
                self.scan = Some((key + 1, left - 1));
            }
            return Some(self.request(key, 0, self.record, Op::Read));
        }
        if self.op_rng.chance(self.first_share) {
            let key = self.key();
            if self.scans {
                let length = self.op_rng.between(1, self.longest_scan);
                if length > 1 && key + 1 < self.records {
                    self.scan = Some((key + 1, length - 1));
                }
            }
            return Some(self.request(key, 0, self.record, Op::Read));
        }
        match self.second {
            WriteOperation::Update => {
                let key = self.key();
                Some(self.update(key))
            }
            WriteOperation::ReadModifyWrite => {
                let key = self.key();
                self.pending = Some(self.update(key));
                Some(self.request(key, 0, self.record, Op::Read))
            }
            WriteOperation::Insert => {
                if self.records >= self.capacity {
                    return None;
                }
                let key = self.records;
                self.records += 1;
                if let KeyDistribution::Latest(zipf) = &mut self.pick {
                    zipf.grow();
                }
                Some(self.request(key, 0, self.record, Op::Write))
            }
        }
    }
}
