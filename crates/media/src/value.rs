//! Values in base units, and the Rust types of a preset's fields.

use std::convert::identity;

use deepram_core::units::{Bytes, Picos};

use crate::dimension::Dimension;

/// A figure's value in the base unit of its dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A value of a dimension with whole numbers.
    Whole(u64),
    /// A value of a dimension with real numbers; finite and not negative.
    Real(f64),
    /// A word of the dimension's list.
    Name(&'static str),
    /// True or false.
    Flag(bool),
}

impl Value {
    /// The value as a number in base units; `None` for words and flags.
    pub fn number(self) -> Option<f64> {
        match self {
            Value::Whole(whole) => Some(whole as f64),
            Value::Real(real) => Some(real),
            Value::Name(_) | Value::Flag(_) => None,
        }
    }

    /// The value's text for the digest: two texts are equal if and only if the values are.
    pub(crate) fn canonical(self) -> String {
        match self {
            Value::Whole(whole) => format!("{whole}"),
            Value::Real(real) => format!("r{:016x}", real.to_bits()),
            Value::Name(name) => format!("n{name}"),
            Value::Flag(flag) => format!("f{flag}"),
        }
    }
}

/// The type of a preset's field.
pub trait Field: Sized {
    /// The dimension of the field's figure.
    const DIMENSION: Dimension;
    /// True if the preset must state the figure.
    const REQUIRED: bool;
    /// Converts the figure's value to the field; `None` if a required value is absent or of another
    /// dimension.
    fn from_value(value: Option<Value>) -> Option<Self>;
}

/// Declares a newtype of whole (`u64`) or real (`f64`) base units as the type of a field.
macro_rules! quantity {
    ($(#[$meta:meta])* whole $name:ident: $dimension:ident) => {
        quantity!($(#[$meta])* #[derive(Eq, Ord, Hash)] $name(u64), $dimension, Whole);
    };
    ($(#[$meta:meta])* real $name:ident: $dimension:ident) => {
        quantity!($(#[$meta])* $name(f64), $dimension, Real);
    };
    ($(#[$meta:meta])* $name:ident($inner:ty), $dimension:ident, $variant:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
        pub struct $name(pub $inner);
        field!($name, $dimension, $variant => $name);
    };
}

/// Makes a type, and its `Option`, the type of a field: the dimension, and the conversion of a
/// [`Value`].
macro_rules! field {
    ($type:ty, $dimension:ident, $variant:ident => $convert:expr) => {
        field!($type, $crate::dimension::Dimension::$dimension, |value| match value {
            $crate::value::Value::$variant(inner) => Some($convert(inner)),
            _ => None,
        });
    };
    ($type:ty, $dimension:expr, $from_value:expr) => {
        impl $crate::value::Field for $type {
            const DIMENSION: $crate::dimension::Dimension = $dimension;
            const REQUIRED: bool = true;
            fn from_value(value: Option<$crate::value::Value>) -> Option<Self> {
                let from_value: fn($crate::value::Value) -> Option<$type> = $from_value;
                value.and_then(from_value)
            }
        }
        impl $crate::value::Field for Option<$type> {
            const DIMENSION: $crate::dimension::Dimension = $dimension;
            const REQUIRED: bool = false;
            fn from_value(value: Option<$crate::value::Value>) -> Option<Self> {
                match value {
                    None => Some(None),
                    some => <$type as $crate::value::Field>::from_value(some).map(Some),
                }
            }
        }
    };
}
pub(crate) use field;

field!(Picos, Time, Whole => Picos);
field!(Bytes, Size, Whole => Bytes);
field!(u64, Count, Whole => identity);
field!(bool, Flag, Flag => identity);

quantity!(
    /// Energy in whole picojoules.
    whole Picojoules: Energy
);
quantity!(
    /// Transfers a second on one wire or one bus.
    whole TransferRate: TransferRate
);
quantity!(
    /// The year of a price.
    whole Year: Year
);
quantity!(
    /// Revolutions a minute.
    whole Rpm: Rotation
);
quantity!(
    /// Picojoules a bit.
    real PicojoulesPerBit: EnergyPerBit
);
quantity!(
    /// Bytes a second.
    real Bandwidth: Bandwidth
);
quantity!(
    /// Watts.
    real Watts: Power
);
quantity!(
    /// Watts a byte of capacity.
    real WattsPerByte: PowerDensity
);
quantity!(
    /// Amperes.
    real Amperes: Current
);
quantity!(
    /// Volts.
    real Volts: Voltage
);
quantity!(
    /// A share, 0 to 1.
    real Fraction: Fraction
);
quantity!(
    /// A number without a unit: an exponent or a ratio.
    real Factor: Factor
);
quantity!(
    /// US dollars a byte; [`Price::per_gb`] converts to the usual unit.
    real Price: Price
);

impl Price {
    /// US dollars per 10^9 bytes.
    pub fn per_gb(self) -> f64 {
        self.0 * 1e9
    }
}
