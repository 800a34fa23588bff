//! A resolved preset: every figure with its value, unit, condition and source.

use sha2::{Digest, Sha256};

use crate::error::{MediaError, Place};
use crate::kind::Kind;
use crate::model::{Fault, KeySpec, Model, STATED_TOLERANCE};
use crate::value::{Field, Value};

/// One figure as a preset or an override states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The value in base units.
    pub value: Value,
    /// The value as written.
    pub text: String,
    /// The unit as written.
    pub unit: String,
    /// Under which condition it holds.
    pub condition: Option<String>,
    /// Where it comes from; `assumed` opens an estimate.
    pub source: String,
    /// Where it was written.
    pub place: Place,
}

/// A preset whose bases and overrides have been followed: full keys and their figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) place: Place,
    /// In the order of the kind's keys.
    pub(crate) figures: Vec<(KeySpec, Option<Figure>)>,
}

/// A line of `media show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key, with the part before it: `nand.read`.
    pub key: String,
    /// The value in `unit`.
    pub value: String,
    /// The unit.
    pub unit: String,
    /// Under which condition it holds.
    pub condition: Option<String>,
    /// Where it comes from; `derived:` opens a value that follows from others.
    pub source: String,
    /// What the figure is.
    pub meaning: &'static str,
}

impl Sheet {
    /// The kind of the preset.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The preset's name within its kind.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the preset is, in a few words.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The figure of a full key, if the preset states it.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|(spec, _)| spec.key == key).and_then(|(_, figure)| figure.as_ref())
    }

    /// The typed form, checked.
    ///
    /// # Errors
    /// [`MediaError::WrongKind`] if the preset is of another kind than `M`; otherwise what
    /// [`Model::from_sheet`] finds.
    pub fn model<M: Model>(&self) -> Result<M, MediaError> {
        if self.kind.word() != M::KIND {
            return Err(MediaError::WrongKind {
                name: self.full_name(),
                is: self.kind.word(),
                wanted: M::KIND,
            });
        }
        M::from_sheet(self, "")
    }

    /// `kind.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.kind.word(), self.name)
    }

    /// Reads the typed form and compares every stated value that follows from others; returns the rows
    /// of `media show`.
    ///
    /// # Errors
    /// As [`Model::from_sheet`], and [`MediaError::Derived`] for a stated value that is off.
    pub fn rows(&self) -> Result<Vec<Row>, MediaError> {
        let derived = self.kind.derived(self)?;
        let mut rows = Vec::with_capacity(self.figures.len());
        for (spec, figure) in &self.figures {
            if let Some(figure) = figure {
                rows.push(Row {
                    key: spec.key.clone(),
                    value: figure.text.clone(),
                    unit: figure.unit.clone(),
                    condition: figure.condition.clone(),
                    source: figure.source.clone(),
                    meaning: spec.meaning,
                });
            } else if let Some((_, value)) = derived.iter().find(|(key, _)| *key == spec.key) {
                let (value, unit) = spec.dimension.humane(*value);
                rows.push(Row {
                    key: spec.key.clone(),
                    value,
                    unit: unit.to_owned(),
                    condition: None,
                    source: format!("derived: {}", spec.meaning),
                    meaning: spec.meaning,
                });
            }
        }
        Ok(rows)
    }

    /// Compares every stated value that follows from others with what it must be.
    pub(crate) fn check(&self) -> Result<(), MediaError> {
        for (key, computed) in self.kind.derived(self)? {
            let Some((spec, Some(figure))) = self.figures.iter().find(|(spec, _)| spec.key == key) else {
                continue;
            };
            let Some(stated) = figure.value.number() else {
                continue;
            };
            if (stated - computed).abs() > STATED_TOLERANCE * computed.abs() {
                let (value, unit) = spec.dimension.humane(computed);
                return Err(MediaError::Derived {
                    at: figure.place.clone(),
                    key: self.full_key(&spec.key),
                    stated: format!("{} {}", figure.text, figure.unit),
                    computed: format!("{value} {unit}"),
                    how: spec.meaning,
                });
            }
        }
        Ok(())
    }

    /// A digest of kind and values: 64 hexadecimal digits. Names, sources, conditions and the choice of
    /// unit do not enter: equal digests mean equal configurations. Values that follow from others do
    /// not enter either, since stating them changes nothing.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.kind.word().as_bytes());
        for (spec, figure) in &self.figures {
            if let (false, Some(figure)) = (spec.derived, figure) {
                hash.update(format!("\n{}={}", spec.key, figure.value.canonical()).as_bytes());
            }
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }

    pub(crate) fn full_key(&self, key: &str) -> String {
        format!("{}.{}.{key}", self.kind.word(), self.name)
    }

    pub(crate) fn field<F: Field>(
        &self,
        prefix: &str,
        key: &str,
        meaning: &'static str,
    ) -> Result<F, MediaError> {
        let key = format!("{prefix}{key}");
        F::take(self.figure(&key).map(|figure| figure.value)).ok_or_else(|| MediaError::Missing {
            at: self.place.clone(),
            key: self.full_key(&key),
            meaning,
            expected: F::DIMENSION.expected(),
        })
    }

    pub(crate) fn fault(&self, prefix: &str, fault: Fault) -> MediaError {
        let key = format!("{prefix}{}", fault.key);
        MediaError::Value {
            at: self.figure(&key).map_or_else(|| self.place.clone(), |figure| figure.place.clone()),
            key: self.full_key(&key),
            message: fault.message,
        }
    }
}
