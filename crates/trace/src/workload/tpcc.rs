//! TPC-C: order entry.
//!
//! Tables, row sizes and cardinalities are TPC-C's (clause 1.2). Customers and items are drawn by
//! its NURand (clause 2.1.6). 1% of order lines come from another warehouse and 15% of payments are
//! for another warehouse's customer (2.4.1.5, 2.5.1.2). 60% of customers are selected by last name;
//! each such selection reads three customers on average (2.5.2.2; assumed to be three neighbours).
//! The 1% of new orders that roll back are not modelled. Orders, order lines and history grow from
//! the initial population, and wrap around once twice as many have been inserted.

use super::RecordSource;
use super::database::{Database, Table, choose};
use super::rng::Rng;
use super::spec::{Spec, SpecFault};
use crate::record::Item;

/// New order, payment, order status, delivery, stock level.
pub(super) const MIX: [u64; 5] = [45, 43, 4, 4, 4];
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 3_000;
const ITEMS: u64 = 100_000;
/// Initial orders of a district, of which the last 900 are undelivered.
const ORDERS: u64 = 3_000;
const UNDELIVERED: u64 = 900;
const LINES: u64 = 15;

struct Tables {
    warehouse: Table,
    district: Table,
    customer: Table,
    history: Table,
    new_order: Table,
    order: Table,
    order_line: Table,
    item: Table,
    stock: Table,
}

/// Order numbers of a district: the next to deliver and the next to assign.
#[derive(Clone, Copy)]
struct District {
    deliver: u64,
    next: u64,
}

pub(super) struct TpcC {
    db: Database,
    t: Tables,
    warehouses: u64,
    districts: Vec<District>,
    payments: u64,
    c_customer: u64,
    c_item: u64,
    rng: Rng,
}

impl TpcC {
    pub(super) fn new(spec: &Spec, seed: u64) -> Result<TpcC, SpecFault> {
        let w = spec.int_in("warehouses", 1..=1 << 20)?;
        let mut db = Database::new(spec)?;
        let d = w * DISTRICTS;
        let t = Tables {
            warehouse: db.table(w, 89)?,
            district: db.table(d, 95)?,
            customer: db.table(d * CUSTOMERS, 655)?,
            history: db.table(d * CUSTOMERS * 2, 46)?,
            new_order: db.table(d * ORDERS * 2, 8)?,
            order: db.table(d * ORDERS * 2, 24)?,
            order_line: db.table(d * ORDERS * 2 * LINES, 54)?,
            item: db.table(ITEMS, 82)?,
            stock: db.table(w * ITEMS, 306)?,
        };
        let mut rng = Rng::new(seed, "tpcc");
        Ok(TpcC {
            db,
            t,
            warehouses: w,
            districts: vec![District { deliver: ORDERS - UNDELIVERED, next: ORDERS }; d as usize],
            payments: 0,
            c_customer: rng.between(0, 1023),
            c_item: rng.between(0, 8191),
            rng,
        })
    }

    /// NURand(a, 0, n-1).
    fn nurand(&mut self, a: u64, c: u64, n: u64) -> u64 {
        ((self.rng.between(0, a) | self.rng.below(n)) + c) % n
    }

    fn customer(&mut self, district: u64) -> u64 {
        let c = self.c_customer;
        district * CUSTOMERS + self.nurand(1023, c, CUSTOMERS)
    }

    fn other(&mut self, warehouse: u64) -> u64 {
        if self.warehouses == 1 {
            warehouse
        } else {
            (warehouse + 1 + self.rng.below(self.warehouses - 1)) % self.warehouses
        }
    }

    /// Position of a district's order in the order tables.
    fn slot(district: u64, number: u64) -> u64 {
        district * ORDERS * 2 + number % (ORDERS * 2)
    }

    /// Reads a customer, selected by number or by last name; returns the row.
    fn find_customer(&mut self, district: u64) -> u64 {
        let customer = self.customer(district);
        let by_name = self.rng.chance(0.6);
        let first = if by_name { customer.saturating_sub(1).max(district * CUSTOMERS) } else { customer };
        for row in first..=customer {
            self.db.read(&self.t.customer, row);
        }
        if by_name && !(customer + 1).is_multiple_of(CUSTOMERS) {
            self.db.read(&self.t.customer, customer + 1);
        }
        customer
    }

    fn lines(district: u64, number: u64, count: u64) -> std::ops::Range<u64> {
        let first = Self::slot(district, number) * LINES;
        first..first + count
    }

    /// Number of lines of an order, 5 to 15, determined by its position.
    fn line_count(slot: u64) -> u64 {
        5 + crate::text_fields::mix64(slot) % 11
    }

    fn new_order(&mut self, warehouse: u64, district: u64) {
        let customer = self.customer(district);
        self.db.read(&self.t.warehouse, warehouse);
        self.db.update(&self.t.district, district);
        self.db.read(&self.t.customer, customer);
        let state = &mut self.districts[district as usize];
        let number = state.next;
        state.next += 1;
        let slot = Self::slot(district, number);
        self.db.insert(&self.t.order, slot);
        self.db.insert(&self.t.new_order, slot);
        let c_item = self.c_item;
        for line in Self::lines(district, number, Self::line_count(slot)) {
            let item = self.nurand(8191, c_item, ITEMS);
            let supply = if self.rng.chance(0.01) { self.other(warehouse) } else { warehouse };
            self.db.read(&self.t.item, item);
            self.db.update(&self.t.stock, supply * ITEMS + item);
            self.db.insert(&self.t.order_line, line);
        }
    }

    fn payment(&mut self, warehouse: u64, district: u64) {
        self.db.update(&self.t.warehouse, warehouse);
        self.db.update(&self.t.district, district);
        let of = if self.rng.chance(0.15) {
            self.other(warehouse) * DISTRICTS + self.rng.below(DISTRICTS)
        } else {
            district
        };
        let customer = self.find_customer(of);
        self.db.update(&self.t.customer, customer);
        let row = self.t.history.rows() / 2 + self.payments;
        self.db.insert(&self.t.history, row);
        self.payments += 1;
    }

    fn order_status(&mut self, district: u64) {
        self.find_customer(district);
        let newest = self.districts[district as usize].next;
        let number = newest - 1 - self.rng.below(newest.min(ORDERS));
        let slot = Self::slot(district, number);
        self.db.read(&self.t.order, slot);
        for line in Self::lines(district, number, Self::line_count(slot)) {
            self.db.read(&self.t.order_line, line);
        }
    }

    fn delivery(&mut self, warehouse: u64) {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let state = &mut self.districts[district as usize];
            if state.deliver == state.next {
                continue;
            }
            let number = state.deliver;
            state.deliver += 1;
            let slot = Self::slot(district, number);
            self.db.update(&self.t.new_order, slot);
            self.db.update(&self.t.order, slot);
            for line in Self::lines(district, number, Self::line_count(slot)) {
                self.db.update(&self.t.order_line, line);
            }
            let customer = district * CUSTOMERS + self.rng.below(CUSTOMERS);
            self.db.update(&self.t.customer, customer);
        }
    }

    fn stock_level(&mut self, warehouse: u64, district: u64) {
        self.db.read(&self.t.district, district);
        let next = self.districts[district as usize].next;
        let c_item = self.c_item;
        for number in next.saturating_sub(20)..next {
            let slot = Self::slot(district, number);
            for line in Self::lines(district, number, Self::line_count(slot)) {
                self.db.read(&self.t.order_line, line);
                let item = self.nurand(8191, c_item, ITEMS);
                self.db.read(&self.t.stock, warehouse * ITEMS + item);
            }
        }
    }
}

impl RecordSource for TpcC {
    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.db.take() {
                return Some(item);
            }
            let kind = choose(&MIX, self.rng.below(100));
            let warehouse = self.rng.below(self.warehouses);
            let district = warehouse * DISTRICTS + self.rng.below(DISTRICTS);
            match kind {
                0 => self.new_order(warehouse, district),
                1 => self.payment(warehouse, district),
                2 => self.order_status(district),
                3 => self.delivery(warehouse),
                _ => self.stock_level(warehouse, district),
            }
            self.db.commit();
        }
    }

    fn database(&self) -> Option<&Database> {
        Some(&self.db)
    }
}
