//! Values in base units, and the Rust types that a preset's fields have.

use deepram_core::units::{Bytes, Picos};

use crate::dimension::Dimension;

/// A figure's value in the base unit of its dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// For dimensions held as whole numbers.
    Whole(u64),
    /// For dimensions held as real numbers; finite, never negative.
    Real(f64),
    /// A word out of the dimension's list.
    Name(&'static str),
    /// True or false.
    Flag(bool),
}

impl Value {
    /// The value as a number in base units; none for words and flags.
    pub fn number(self) -> Option<f64> {
        match self {
            Value::Whole(whole) => Some(whole as f64),
            Value::Real(real) => Some(real),
            Value::Name(_) | Value::Flag(_) => None,
        }
    }

    /// A text that is equal if and only if the value is: what the digest is taken over.
    pub(crate) fn canonical(self) -> String {
        match self {
            Value::Whole(whole) => format!("{whole}"),
            Value::Real(real) => format!("r{:016x}", real.to_bits()),
            Value::Name(name) => format!("n{name}"),
            Value::Flag(flag) => format!("f{flag}"),
        }
    }
}

/// A type that a field of a preset can have.
pub trait Field: Sized {
    /// What it measures.
    const DIMENSION: Dimension;
    /// Whether the preset must state it.
    const REQUIRED: bool;
    /// The field from the figure's value. None if it is required and absent, or of another dimension.
    fn take(value: Option<Value>) -> Option<Self>;
}

macro_rules! quantity {
    ($(#[$meta:meta])* $name:ident($inner:ty), $dimension:ident, $variant:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
        pub struct $name(pub $inner);
        field!($name, Dimension::$dimension, |value| match value {
            Value::$variant(inner) => Some($name(inner)),
            _ => None,
        });
    };
}

macro_rules! field {
    ($type:ty, $dimension:expr, $take:expr) => {
        impl $crate::value::Field for $type {
            const DIMENSION: $crate::dimension::Dimension = $dimension;
            const REQUIRED: bool = true;
            fn take(value: Option<$crate::value::Value>) -> Option<Self> {
                let take: fn($crate::value::Value) -> Option<$type> = $take;
                value.and_then(take)
            }
        }
        impl $crate::value::Field for Option<$type> {
            const DIMENSION: $crate::dimension::Dimension = $dimension;
            const REQUIRED: bool = false;
            fn take(value: Option<$crate::value::Value>) -> Option<Self> {
                match value {
                    None => Some(None),
                    some => <$type as $crate::value::Field>::take(some).map(Some),
                }
            }
        }
    };
}
pub(crate) use field;

field!(Picos, Dimension::Time, |value| match value {
    Value::Whole(ps) => Some(Picos(ps)),
    _ => None,
});

/// Energy in whole picojoules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picojoules(pub u64);
field!(Picojoules, Dimension::Energy, |value| match value {
    Value::Whole(pj) => Some(Picojoules(pj)),
    _ => None,
});

field!(Bytes, Dimension::Size, |value| match value {
    Value::Whole(bytes) => Some(Bytes(bytes)),
    _ => None,
});

field!(u64, Dimension::Count, |value| match value {
    Value::Whole(count) => Some(count),
    _ => None,
});

field!(bool, Dimension::Flag, |value| match value {
    Value::Flag(flag) => Some(flag),
    _ => None,
});

/// Transfers a second on one wire or one bus, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransferRate(pub u64);
field!(TransferRate, Dimension::TransferRate, |value| match value {
    Value::Whole(rate) => Some(TransferRate(rate)),
    _ => None,
});

/// The year of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Year(pub u64);
field!(Year, Dimension::Year, |value| match value {
    Value::Whole(year) => Some(Year(year)),
    _ => None,
});

/// Revolutions a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rpm(pub u64);
field!(Rpm, Dimension::Rotation, |value| match value {
    Value::Whole(rpm) => Some(Rpm(rpm)),
    _ => None,
});

quantity!(
    /// Picojoules a bit.
    PicojoulesPerBit(f64), EnergyPerBit, Real
);
quantity!(
    /// Bytes a second.
    Bandwidth(f64), Bandwidth, Real
);
quantity!(
    /// Watts.
    Watts(f64), Power, Real
);
quantity!(
    /// Watts a byte of capacity.
    WattsPerByte(f64), PowerDensity, Real
);
quantity!(
    /// Amperes.
    Amperes(f64), Current, Real
);
quantity!(
    /// Volts.
    Volts(f64), Voltage, Real
);
quantity!(
    /// A share, 0 to 1.
    Fraction(f64), Fraction, Real
);
quantity!(
    /// US dollars a byte; [`Price::per_gb`] gives the usual form.
    Price(f64), Price, Real
);

impl Price {
    /// US dollars per 10^9 bytes.
    pub fn per_gb(self) -> f64 {
        self.0 * 1e9
    }
}
