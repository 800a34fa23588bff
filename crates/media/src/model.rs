//! The definition of a kind of preset: its keys, its typed model, and its derived values.

use crate::dimension::Dimension;
use crate::error::MediaError;
use crate::resolved::ResolvedPreset;
use crate::value::{Price, Year};

/// A key of a kind of preset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    /// The key, with the part's name before it if it belongs to a part: `nand.read`.
    pub key: String,
    /// The dimension of the figure.
    pub dimension: Dimension,
    /// True if every preset must state the figure.
    pub required: bool,
    /// True if the figure follows from others; a stated value is then checked.
    pub derived: bool,
    /// The meaning of the figure.
    pub meaning: &'static str,
}

/// A figure that contradicts the other figures of its preset, or is out of range.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidFigure {
    /// The key, without the part's name.
    pub key: &'static str,
    /// The problem and the valid range.
    pub message: String,
}

impl InvalidFigure {
    pub(crate) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into() }
    }
}

/// Checks that a preset states a price and its year together, or neither.
pub(crate) fn check_price(price: Option<Price>, year: Option<Year>) -> Result<(), InvalidFigure> {
    if price.is_some() == year.is_some() {
        return Ok(());
    }
    Err(InvalidFigure::new("price_year", "a price needs its year, and a year its price"))
}

/// The typed model of a kind of preset.
pub trait Model: Sized {
    /// The kind's name, as in `[nand.slc]`.
    const KIND: &'static str;

    /// Appends every key, each with `prefix` before it.
    fn keys(prefix: &str, keys: &mut Vec<KeySpec>);

    /// The parts of the kind: name of the part, kind of the part.
    fn parts() -> &'static [(&'static str, &'static str)];

    /// Builds and checks the typed model of a resolved preset.
    ///
    /// # Errors
    /// [`MediaError::Missing`] for a missing figure; [`MediaError::Value`] for an [`InvalidFigure`],
    /// with its location.
    fn from_resolved(resolved: &ResolvedPreset, prefix: &str) -> Result<Self, MediaError>;

    /// All derived values as (key, value in base units).
    fn derived(&self) -> Vec<(String, f64)>;
}

/// The share by which a stated value may differ from the computed one: data sheets round to three or
/// four digits.
pub(crate) const STATED_TOLERANCE: f64 = 0.002;

/// Declares a kind of preset: the struct, its keys, and its construction from a resolved preset.
/// Optional figures are `Option` fields.
macro_rules! kind {
    (
        $(#[$meta:meta])*
        $name:ident = $kind:literal;
        parts { $($(#[$part_meta:meta])* $part:ident: $part_type:ty,)* }
        fields { $($(#[doc = $doc:literal])+ $field:ident: $type:ty,)* }
        derived { $($(#[doc = $how:literal])+ $key:ident: $unit:ty = $compute:expr,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$part_meta])* pub $part: $part_type,)*
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl $crate::model::Model for $name {
            const KIND: &'static str = $kind;

            fn keys(prefix: &str, keys: &mut Vec<$crate::model::KeySpec>) {
                use $crate::value::Field;
                let _ = prefix;
                $(keys.push($crate::model::KeySpec {
                    key: format!("{prefix}{}", stringify!($field)),
                    dimension: <$type as Field>::DIMENSION,
                    required: <$type as Field>::REQUIRED,
                    derived: false,
                    meaning: concat!($($doc),+).trim_ascii(),
                });)*
                $(keys.push($crate::model::KeySpec {
                    key: format!("{prefix}{}", stringify!($key)),
                    dimension: <$unit as Field>::DIMENSION,
                    required: false,
                    derived: true,
                    meaning: concat!($($how),+).trim_ascii(),
                });)*
                $(<$part_type as $crate::model::Model>::keys(
                    &format!("{prefix}{}.", stringify!($part)),
                    keys,
                );)*
            }

            fn parts() -> &'static [(&'static str, &'static str)] {
                &[$((stringify!($part), <$part_type as $crate::model::Model>::KIND),)*]
            }

            fn from_resolved(
                resolved: &$crate::resolved::ResolvedPreset,
                prefix: &str,
            ) -> Result<Self, $crate::error::MediaError> {
                let model = Self {
                    $($part: <$part_type as $crate::model::Model>::from_resolved(
                        resolved,
                        &format!("{prefix}{}.", stringify!($part)),
                    )?,)*
                    $($field: resolved.field(prefix, stringify!($field), concat!($($doc),+).trim_ascii())?,)*
                };
                model.check().map_err(|invalid| resolved.invalid_figure(prefix, invalid))?;
                Ok(model)
            }

            fn derived(&self) -> Vec<(String, f64)> {
                #[allow(unused_mut, reason = "a kind without parts adds nothing")]
                let mut values: Vec<(String, f64)> = vec![
                    $((stringify!($key).to_owned(), {
                        let compute: fn(&Self) -> f64 = $compute;
                        compute(self)
                    }),)*
                ];
                $(values.extend(
                    $crate::model::Model::derived(&self.$part)
                        .into_iter()
                        .map(|(key, value)| (format!("{}.{key}", stringify!($part)), value)),
                );)*
                values
            }
        }
    };
}
pub(crate) use kind;

/// Declares an enumeration whose words are the values of a figure.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// The variant's word in preset files and output.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }

        $crate::value::field!(
            $name,
            $crate::dimension::Dimension::Name(&[$($word),*]),
            |value| match value {
                $($crate::value::Value::Name($word) => Some($name::$variant),)*
                _ => None,
            }
        );
    };
}
pub(crate) use words;
