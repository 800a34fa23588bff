//! Serialization of quantities as bare numbers, under keys that carry the unit.

use deepram_core::units::{Bytes, Picos};
use serde::Serializer;

/// Serializes a time as its picoseconds.
pub(crate) fn picos<S: Serializer>(time: &Picos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.0)
}

/// Serializes a size as its bytes.
pub(crate) fn bytes<S: Serializer>(size: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(size.0)
}
