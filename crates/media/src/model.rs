//! What a kind of preset is: its keys, its typed form, and the values that follow from others.

use crate::dimension::Dimension;
use crate::error::MediaError;
use crate::sheet::Sheet;

/// One key that a kind of preset can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    /// The key, with the part before it where the kind is made of parts: `nand.read`.
    pub key: String,
    /// What the figure measures.
    pub dimension: Dimension,
    /// Whether every preset must state it.
    pub required: bool,
    /// Whether it follows from other figures; if it is stated all the same, it is checked.
    pub derived: bool,
    /// What it says.
    pub meaning: &'static str,
}

/// A fault that a kind finds in its own figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The key, without the part before it.
    pub key: &'static str,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self { key, message: message.into() }
    }
}

/// A typed preset.
pub trait Model: Sized {
    /// The kind's name, as in `[nand.slc]`.
    const KIND: &'static str;

    /// Appends every key, each with `prefix` before it.
    fn keys(prefix: &str, keys: &mut Vec<KeySpec>);

    /// The kinds of the parts: name of the part, kind of the part.
    fn parts() -> &'static [(&'static str, &'static str)];

    /// Reads the typed form out of a resolved sheet.
    ///
    /// # Errors
    /// A missing figure, or a [`Fault`] that the kind finds, with its place.
    fn from_sheet(sheet: &Sheet, prefix: &str) -> Result<Self, MediaError>;

    /// Every value that follows from others, in base units: key, value. Empty keys never occur.
    fn derived(&self) -> Vec<(String, f64)>;
}

/// The share by which a stated value may differ from the computed one: data sheets round to three or
/// four digits.
pub(crate) const STATED_TOLERANCE: f64 = 0.002;

/// Declares a kind: the struct, its keys and its reading. Fields that may be absent are `Option`s.
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

            fn from_sheet(
                sheet: &$crate::sheet::Sheet,
                prefix: &str,
            ) -> Result<Self, $crate::error::MediaError> {
                let model = Self {
                    $($part: <$part_type as $crate::model::Model>::from_sheet(
                        sheet,
                        &format!("{prefix}{}.", stringify!($part)),
                    )?,)*
                    $($field: sheet.field(prefix, stringify!($field), concat!($($doc),+).trim_ascii())?,)*
                };
                model.check().map_err(|fault| sheet.fault(prefix, fault))?;
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

/// Declares an enumeration whose words a figure can have.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            /// The word in preset files and output.
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
