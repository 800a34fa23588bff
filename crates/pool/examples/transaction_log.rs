//! Transfers between two accounts. Each transfer is a logged transaction, which is durable by itself, without a sync of the
//! pool. The second transfer of each run "crashes" before its commit and leaves no trace at the next opening.
//!
//! `cargo run --release -p deepram-pool --example transaction_log -- bank.pool`

use deepram_pool::log::TransactionLog;
use deepram_pool::{CreateOptions, Mapping, OpenOptions, Pool};

const MIB: u64 = 1 << 20;

/// Encodes a change of an account: its number, and the amount to add.
fn record(account: u8, amount: i64) -> Vec<u8> {
    [&[account], &amount.to_le_bytes()[..]].concat()
}

/// Returns the balances after all committed transactions, in order.
fn balances(log: &TransactionLog) -> Result<[i64; 2], Box<dyn std::error::Error>> {
    let mut balances = [1000, 0];
    for transaction in log.committed()? {
        for record in &transaction.records {
            let (account, amount) = record.split_first().ok_or("an empty record")?;
            let balance = balances.get_mut(usize::from(*account)).ok_or("no such account")?;
            *balance += i64::from_le_bytes(amount.try_into()?);
        }
    }
    Ok(balances)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "bank.pool".into());
    let new = !std::path::Path::new(&path).exists();
    if new {
        // `pmem`: size of the persist regions, in which single lines of 64 bytes can be made durable. The log is one.
        Pool::create(&[&path], &CreateOptions { pmem: MIB, ..CreateOptions::new(4 * MIB) })?;
    }
    let pool = Pool::open(&[&path], &OpenOptions::new(16 * MIB).mapping(Mapping::UserOnly))?;
    let log = if new {
        TransactionLog::create(&pool, "transfers", MIB / 2)?
    } else {
        TransactionLog::open(&pool, "transfers")?
    };
    println!("found: {:?} after {} transfers", balances(&log)?, log.committed()?.len());

    let mut transfer = log.begin();
    transfer.append(&record(0, -7));
    transfer.append(&record(1, 7));
    let sequence = transfer.commit()?; // both records are durable when it returns
    println!("transfer {sequence}: {:?}", balances(&log)?);

    let mut unfinished = log.begin();
    unfinished.append(&record(0, -500));
    drop(unfinished); // before its commit, no part of a transaction is in the log

    // Neither sync nor close: the pool is left as in a crash.
    pool.abandon()?;
    Ok(())
}
