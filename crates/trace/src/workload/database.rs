//! The parts shared by the database workloads: tables of fixed-size rows in pages, and a log.
//!
//! The stream contains the accesses of the transactions before any cache: reading a row reads its
//! page (or the row), changing a row reads and writes it, inserting a row writes it. A transaction
//! that changed anything appends its rows to the log and flushes it, alone or in a group.

use super::address_streams::FLUSH;
use super::spec::{Spec, SpecFault};
use crate::record::{Item, Op, Request};
use std::collections::VecDeque;
use std::ops::Range;

/// A table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    start: u64,
    rows: u64,
    row: u64,
    per_page: u64,
    page: u64,
}

impl Table {
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }
}

/// The database.
pub(super) struct Database {
    page: u64,
    by_row: bool,
    end: u64,
    log_start: u64,
    log: u64,
    log_at: u64,
    header: u64,
    most: u64,
    group: u64,
    transactions: u64,
    unflushed: u64,
    changed: u64,
    queue: VecDeque<Item>,
}

impl Database {
    pub(super) fn new(spec: &Spec) -> Result<Database, SpecFault> {
        let page = spec.int_in("page", 512..=1 << 30)?;
        Ok(Database {
            page,
            by_row: spec.choice("grain") == "row",
            end: 0,
            log_start: 0,
            log: spec.int_in("log", 1 << 20..=1 << 60)?,
            log_at: 0,
            header: spec.int_in("logheader", 0..=1 << 16)?,
            most: spec.int_in("logmost", 0..=1 << 20)?,
            group: spec.int("flush"),
            transactions: 0,
            unflushed: 0,
            changed: 0,
            queue: VecDeque::new(),
        })
    }

    /// Places a table after the previous ones. All tables are added before the first access.
    pub(super) fn table(&mut self, rows: u64, row: u64) -> Result<Table, SpecFault> {
        let too_large = || SpecFault::Values("the tables take more than 2^62 bytes".to_string());
        if row > self.page {
            return Err(SpecFault::value("page", format!("at least the {row} bytes of a row")));
        }
        let per_page = self.page / row;
        let start = self.end;
        let bytes = rows.div_ceil(per_page).checked_mul(self.page).ok_or_else(too_large)?;
        self.end = start.checked_add(bytes).filter(|end| *end < 1 << 62).ok_or_else(too_large)?;
        self.log_start = self.end;
        Ok(Table { start, rows: rows.max(1), row, per_page, page: self.page })
    }

    fn access(&mut self, table: &Table, row: u64, op: Op) {
        let row = row % table.rows;
        let page = table.start + row / table.per_page * table.page;
        let (offset, len) = if self.by_row {
            (page + row % table.per_page * table.row, table.row)
        } else {
            (page, table.page)
        };
        self.queue.push_back(Item::Block(Request { time_ps: None, device: 0, offset, len, op }));
    }

    pub(super) fn read(&mut self, table: &Table, row: u64) {
        self.access(table, row, Op::Read);
    }

    pub(super) fn update(&mut self, table: &Table, row: u64) {
        self.access(table, row, Op::Read);
        self.insert(table, row);
    }

    /// Inserts a row. Numbers past the end of the table wrap around.
    pub(super) fn insert(&mut self, table: &Table, row: u64) {
        self.access(table, row, Op::Write);
        self.changed += table.row;
    }

    /// Ends a transaction.
    pub(super) fn commit(&mut self) {
        self.transactions += 1;
        let changed = std::mem::take(&mut self.changed);
        if changed == 0 {
            return;
        }
        let most = if self.most == 0 { u64::MAX } else { self.most };
        let len = (changed + self.header).min(most);
        if self.log_at + len > self.log {
            self.log_at = 0;
        }
        let offset = self.log_start + self.log_at;
        self.queue.push_back(Item::Block(Request { time_ps: None, device: 0, offset, len, op: Op::Write }));
        self.log_at += len;
        self.unflushed += 1;
        if self.unflushed == self.group {
            self.unflushed = 0;
            self.queue.push_back(FLUSH);
        }
    }

    pub(super) fn log(&self) -> Range<u64> {
        self.log_start..self.log_start + self.log
    }

    pub(super) fn transactions(&self) -> u64 {
        self.transactions
    }

    pub(super) fn take(&mut self) -> Option<Item> {
        self.queue.pop_front()
    }
}

/// Index of the part of `mix` into which `draw`, below the sum of all parts, falls.
pub(super) fn choose(mix: &[u64], draw: u64) -> usize {
    let mut below = 0;
    for (i, part) in mix.iter().enumerate() {
        below += part;
        if draw < below {
            return i;
        }
    }
    0
}
