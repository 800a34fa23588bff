//! Errors in presets, user files and overrides. Each names the location, the problem and the valid form.

use std::fmt;

use thiserror::Error;

/// The location of a preset or figure in its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The path as the caller named it, or `--set` for an override.
    pub file: String,
    /// The line in the file, or the override's position among the overrides, counted from 1.
    pub line: usize,
}

impl SourceLocation {
    pub(crate) fn new(file: &str, line: usize) -> Self {
        Self { file: file.to_owned(), line }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The errors of this crate. Keys are full: `nand.slc.read`, `ssd.mqsim-def.link.lanes`.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The text is not TOML, or exceeds the size limit of a preset file.
    #[error("{at}: {message}")]
    Toml {
        /// The location.
        at: SourceLocation,
        /// The parser's message.
        message: String,
    },
    /// The kind of preset does not have this key.
    #[error("{at}: unknown key `{key}`{}", hint(.suggestion))]
    UnknownKey {
        /// The location.
        at: SourceLocation,
        /// The full key as written.
        key: String,
        /// The nearest valid key, if one is near enough.
        suggestion: Option<String>,
    },
    /// No preset has this name, or several kinds have one of this name.
    #[error("{}{message}{}", before(.at), hint(.suggestion))]
    UnknownPreset {
        /// The location of the name, if it is in a file or an override.
        at: Option<SourceLocation>,
        /// The problem.
        message: String,
        /// The nearest existing name, if one is near enough.
        suggestion: Option<String>,
    },
    /// A required figure is missing.
    #[error("{at}: `{key}` is missing: {meaning} (write {{ value, unit, source }}; valid units: {expected})")]
    Missing {
        /// The first line of the preset.
        at: SourceLocation,
        /// The missing key.
        key: String,
        /// The meaning of the figure.
        meaning: &'static str,
        /// The valid units.
        expected: &'static str,
    },
    /// The unit is unknown or of another dimension.
    #[error("{at}: `{key}` has {}; expected {expected}", unit_as_written(.unit))]
    Unit {
        /// The location.
        at: SourceLocation,
        /// The full key of the figure.
        key: String,
        /// The unit as written.
        unit: String,
        /// The valid units.
        expected: &'static str,
    },
    /// The value is invalid for this figure: of the wrong type, out of range, or not whole.
    #[error("{at}: `{key}`: {message}")]
    Value {
        /// The location.
        at: SourceLocation,
        /// The full key of the figure.
        key: String,
        /// The problem and the valid form.
        message: String,
    },
    /// A stated value differs from the value that follows from the other figures.
    #[error("{at}: `{key}` is stated as {stated}, but {how} gives {computed}")]
    Derived {
        /// The location of the stated value.
        at: SourceLocation,
        /// The derived figure.
        key: String,
        /// The stated value and unit.
        stated: String,
        /// The computed value and unit.
        computed: String,
        /// The formula.
        how: &'static str,
    },
    /// The preset is based on itself, directly or through other presets, or its chain of bases is too
    /// long.
    #[error("{at}: `{key}` is based on itself, or has a chain of more than 15 bases")]
    Cycle {
        /// The first line of the preset.
        at: SourceLocation,
        /// The preset.
        key: String,
    },
    /// The preset is of another kind than requested.
    #[error("`{name}` is a preset of kind `{is}`, not `{wanted}`")]
    WrongKind {
        /// The preset.
        name: String,
        /// Its kind.
        is: &'static str,
        /// The requested kind.
        wanted: &'static str,
    },
}

fn before(at: &Option<SourceLocation>) -> String {
    at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default()
}

fn unit_as_written(unit: &str) -> String {
    if unit.is_empty() { "no unit".to_owned() } else { format!("the unit `{unit}`") }
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}
