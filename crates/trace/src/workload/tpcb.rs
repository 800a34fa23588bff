//! TPC-B: a deposit or withdrawal, which updates an account, a teller and a branch and inserts a
//! history row. The teller is uniformly distributed, the branch is the teller's. The account
//! belongs to this branch in 85 of 100 cases, otherwise to another (TPC-B 2.0, clause 5.3.5).

use super::RecordSource;
use super::database::{Database, Table};
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::Item;

const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 10;
/// Number of history rows before the oldest are overwritten; assumed: as many as accounts.
const HISTORY: u64 = ACCOUNTS;

pub(super) struct TpcB {
    db: Database,
    branch: Table,
    teller: Table,
    account: Table,
    history: Table,
    done: u64,
    rng: Rng,
}

impl TpcB {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<TpcB, SpecFault> {
        let branches = spec.int_in("branches", 1..=1 << 32)?;
        let mut db = Database::new(spec)?;
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

impl RecordSource for TpcB {
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

    fn database(&self) -> Option<&Database> {
        Some(&self.db)
    }
}
