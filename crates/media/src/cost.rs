//! Cost of capacity and cost effectiveness (FlatFlash, section 5.7 and Table 3).

use deepram_core::units::Bytes;

use crate::value::Price;

/// Cost of `capacity` bytes at a price per byte, in US dollars.
pub fn cost(capacity: Bytes, price: Price) -> f64 {
    capacity.0 as f64 * price.0
}

/// Cost of several parts plus `base`, the cost of the machine without them, in US dollars.
pub fn total_cost(parts: &[(Bytes, Price)], base: f64) -> f64 {
    parts.iter().fold(base, |sum, (capacity, price)| sum + cost(*capacity, *price))
}

/// Performance per dollar of one system relative to another: the factor by which it is cheaper over the
/// factor by which it is slower (FlatFlash, Table 3).
pub fn cost_effectiveness(saving: f64, slowdown: f64) -> f64 {
    saving / slowdown
}
