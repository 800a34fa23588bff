//! TATP: a mobile network's home location register.
//!
//! Subscribers are drawn by TATP's non-uniform rule `((0..A | 1..P) mod P)`. Each subscriber has
//! one to four access-info and special-facility rows (a drawn row exists with probability 0.625),
//! and each facility has none to three of three call forwardings (0.5). A transaction without a row
//! to change writes nothing. Whether a row exists is drawn independently each time, so the
//! published success rates hold for any length of run.

use super::RecordSource;
use super::database::{Database, Table, choose};
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::Item;

/// Transaction mix: get subscriber, get new destination, get access data, update subscriber, update
/// location, insert call forwarding, delete call forwarding.
pub(super) const MIX: [u64; 7] = [35, 10, 35, 2, 14, 2, 2];
const KINDS: u64 = 4;
const FORWARDINGS: u64 = 3;
const EXISTS: f64 = 0.625;

pub(super) struct Tatp {
    db: Database,
    subscriber: Table,
    access: Table,
    facility: Table,
    forwarding: Table,
    mask: u64,
    rng: Rng,
}

impl Tatp {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<Tatp, SpecFault> {
        let subscribers = spec.int_in("subscribers", 1..=1 << 40)?;
        let row = spec.int_in("row", 1..=1 << 20)?;
        let mut db = Database::new(spec)?;
        // TATP: A is 65,535 up to a million subscribers, 1,048,575 up to ten million.
        let mask = match subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Ok(Tatp {
            subscriber: db.table(subscribers, row)?,
            access: db.table(subscribers * KINDS, row)?,
            facility: db.table(subscribers * KINDS, row)?,
            forwarding: db.table(subscribers * KINDS * FORWARDINGS, row)?,
            db,
            mask,
            rng: Rng::new(seed, "tatp"),
        })
    }

    fn transaction(&mut self) {
        let kind = choose(&MIX, self.rng.below(100));
        let subscribers = self.subscriber.rows();
        let s = (self.rng.between(0, self.mask) | self.rng.between(1, subscribers)) % subscribers;
        let part = s * KINDS + self.rng.below(KINDS);
        let forwarding = part * FORWARDINGS + self.rng.below(FORWARDINGS);
        let (exists, forwarded) = (self.rng.chance(EXISTS), self.rng.chance(0.5));
        let db = &mut self.db;
        match kind {
            0 => db.read(&self.subscriber, s),
            1 => {
                db.read(&self.facility, part);
                if exists {
                    db.read(&self.forwarding, forwarding);
                }
            }
            2 => db.read(&self.access, part),
            3 => {
                db.read(&self.facility, part);
                // Both rows or neither: without the facility, the transaction fails.
                if exists {
                    db.update(&self.subscriber, s);
                    db.update(&self.facility, part);
                } else {
                    db.read(&self.subscriber, s);
                }
            }
            4 => db.update(&self.subscriber, s),
            5 => {
                db.read(&self.subscriber, s);
                db.read(&self.facility, part);
                if exists && !forwarded {
                    db.insert(&self.forwarding, forwarding);
                }
            }
            _ => {
                db.read(&self.subscriber, s);
                if exists && forwarded {
                    db.update(&self.forwarding, forwarding);
                } else {
                    db.read(&self.forwarding, forwarding);
                }
            }
        }
        db.commit();
    }
}

impl RecordSource for Tatp {
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.db.take() {
                return Some(item);
            }
            self.transaction();
        }
    }

    fn database(&self) -> Option<&Database> {
        Some(&self.db)
    }
}
