//! What can be wrong with a preset, a user file or an override: what, where, and what would be right.

use std::fmt;

use thiserror::Error;

/// Where a figure was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A path as the caller named it, or `--set` for an override.
    pub file: String,
    /// Line in the file, or the number of the override, counted from 1.
    pub line: usize,
}

impl Place {
    pub(crate) fn new(file: &str, line: usize) -> Self {
        Self { file: file.to_owned(), line }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Everything this crate refuses. Keys are written in full: `nand.slc.read`, `ssd.mqsim-def.link.lanes`.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum MediaError {
    /// The text is not TOML, or longer than a preset file may be.
    #[error("{at}: {message}")]
    Toml {
        /// Where.
        at: Place,
        /// The parser's words.
        message: String,
    },
    /// A key that this kind of preset does not have.
    #[error("{at}: unknown key `{key}`{}", hint(.suggestion))]
    UnknownKey {
        /// Where.
        at: Place,
        /// The key as written, in full.
        key: String,
        /// The nearest valid key, if one is near enough.
        suggestion: Option<String>,
    },
    /// A name that no preset has, or that several kinds have.
    #[error("{}{message}{}", before(.at), hint(.suggestion))]
    UnknownPreset {
        /// Where in a file or an override the name was used.
        at: Option<Place>,
        /// What is wrong with the name.
        message: String,
        /// The nearest existing name, if one is near enough.
        suggestion: Option<String>,
    },
    /// A figure that the kind needs is absent.
    #[error(
        "{at}: `{key}` is missing: {meaning} (write it as {{ value, unit, source }}, the unit being {expected})"
    )]
    Missing {
        /// The preset's own line.
        at: Place,
        /// The absent key.
        key: String,
        /// What it would say.
        meaning: &'static str,
        /// Units that it may have.
        expected: &'static str,
    },
    /// A unit that is unknown or of another dimension.
    #[error("{at}: `{key}` has {}; expected {expected}", unit_as_written(.unit))]
    Unit {
        /// Where.
        at: Place,
        /// The figure.
        key: String,
        /// The unit as written.
        unit: String,
        /// Units that it may have.
        expected: &'static str,
    },
    /// A value that cannot be this figure: the wrong type, out of range, or not whole.
    #[error("{at}: `{key}`: {message}")]
    Value {
        /// Where.
        at: Place,
        /// The figure.
        key: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A stated value differs from what the other figures give.
    #[error("{at}: `{key}` is stated as {stated}, but {how} gives {computed}")]
    Derived {
        /// Where the value is stated.
        at: Place,
        /// The derived figure.
        key: String,
        /// As stated.
        stated: String,
        /// As computed.
        computed: String,
        /// The rule.
        how: &'static str,
    },
    /// A preset that is based on itself, directly or through others.
    #[error("{at}: `{key}` is based on itself, or stands at the end of more than 15 bases in a row")]
    Cycle {
        /// Where the preset begins.
        at: Place,
        /// The preset.
        key: String,
    },
    /// A preset of another kind was asked for.
    #[error("`{name}` is a preset of kind `{is}`, not `{wanted}`")]
    WrongKind {
        /// The preset.
        name: String,
        /// Its kind.
        is: &'static str,
        /// The kind asked for.
        wanted: &'static str,
    },
}

fn before(at: &Option<Place>) -> String {
    at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default()
}

fn unit_as_written(unit: &str) -> String {
    if unit.is_empty() { "no unit".to_owned() } else { format!("the unit `{unit}`") }
}

fn hint(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
}

/// The candidate nearest to `word`, if it is near enough to be a slip of the pen.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    // Distances are quadratic in the length, and no valid key is long.
    let word: String = word.chars().take(64).collect();
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 3)
        .map(|(_, candidate)| candidate.to_owned())
}
