//! Cost: what a capacity costs at a price a byte.

use deepram_core::units::Bytes;

use crate::value::Price;

/// US dollars of `capacity` bytes.
pub fn cost(capacity: Bytes, price: Price) -> f64 {
    capacity.0 as f64 * price.0
}

/// US dollars of several parts and of the machine around them.
pub fn total_cost(parts: &[(Bytes, Price)], base: f64) -> f64 {
    parts.iter().fold(base, |sum, (capacity, price)| sum + cost(*capacity, *price))
}

/// Performance a dollar of one system relative to another: how much cheaper it is over how much slower
/// (FlatFlash, Table 3).
pub fn cost_effectiveness(saving: f64, slowdown: f64) -> f64 {
    saving / slowdown
}
