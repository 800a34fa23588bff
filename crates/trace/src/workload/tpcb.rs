//! TPC-B: a deposit or withdrawal. Account, teller and branch are updated, a history row is
//! inserted. The teller is uniform over all, its branch follows; the account belongs to that
//! branch in 85 of 100 cases and to another otherwise (TPC-B 2.0, clause 5.3.5).

use super::Stream;
use super::db::{Db, Table};
use super::rng::Rng;
use super::spec::{Bad, Spec};
use crate::record::Item;

const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 10;
/// History rows kept before the oldest are overwritten: assumed, as many as accounts.
const HISTORY: u64 = ACCOUNTS;

pub(super) struct TpcB {
    db: Db,
    branch: Table,
    teller: Table,
    account: Table,
    history: Table,
    done: u64,
    rng: Rng,
}

impl TpcB {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<TpcB, Bad> {
        let branches = spec.int_in("branches", 1..=1 << 32)?;
        let mut db = Db::new(spec)?;
        Ok(TpcB {
            branch: db.table(branches, 100)?,
            teller: db.table(branches * TELLERS, 100)?,
            account: db.table(branches * ACCOUNTS, 100)?,
            history: db.table(branches * HISTORY, 50)?,
            db,
            done: 0,
            rng: Rng::new(seed, "tpcb"),
        })
    }
}

impl Stream for TpcB {
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.db.take() {
                return Some(item);
            }
            let branches = self.branch.rows();
            let teller = self.rng.below(self.teller.rows());
            let branch = teller / TELLERS;
            let home = branches == 1 || self.rng.chance(0.85);
            let of = if home { branch } else { (branch + 1 + self.rng.below(branches - 1)) % branches };
            let account = of * ACCOUNTS + self.rng.below(ACCOUNTS);
            self.db.update(&self.account, account);
            self.db.update(&self.teller, teller);
            self.db.update(&self.branch, branch);
            self.db.insert(&self.history, self.done);
            self.db.commit();
            self.done += 1;
        }
    }

    fn database(&self) -> Option<&Db> {
        Some(&self.db)
    }
}
