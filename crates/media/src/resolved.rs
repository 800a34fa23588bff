//! Resolved presets: bases and overrides are applied, and every figure has its value, unit, condition
//! and source.

use sha2::{Digest, Sha256};

use crate::error::{MediaError, SourceLocation};
use crate::kind::PresetKind;
use crate::model::{InvalidFigure, KeySpec, Model, STATED_TOLERANCE};
use crate::value::{Field, Value};

/// A figure as stated by a preset or an override.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The value in base units.
    pub value: Value,
    /// The value as written.
    pub text: String,
    /// The unit as written.
    pub unit: String,
    /// The condition under which the value holds.
    pub condition: Option<String>,
    /// The origin of the value; `assumed` at the start marks an estimate.
    pub source: String,
    /// The location of the figure.
    pub location: SourceLocation,
}

/// A preset with its bases and overrides applied.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedPreset {
    pub(crate) kind: PresetKind,
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) location: SourceLocation,
    /// The figure of each key, in the order of the kind's keys.
    pub(crate) figures: Vec<(KeySpec, Option<Figure>)>,
}

/// A line of `media show`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FigureRow {
    /// The key, with the part's name before it: `nand.read`.
    pub key: String,
    /// The value, in `unit`.
    pub value: String,
    /// The unit.
    pub unit: String,
    /// The condition under which the value holds.
    pub condition: Option<String>,
    /// The origin of the value; `derived:` at the start marks a derived value and precedes its formula.
    pub source: String,
    /// The meaning of the figure.
    pub meaning: &'static str,
}

impl ResolvedPreset {
    /// The kind of the preset.
    pub fn kind(&self) -> PresetKind {
        self.kind
    }

    /// The preset's name within its kind.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A short description of the preset.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The figure of a key such as `nand.read`, if the preset states it.
    pub fn figure(&self, key: &str) -> Option<&Figure> {
        self.figures.iter().find(|(spec, _)| spec.key == key).and_then(|(_, figure)| figure.as_ref())
    }

    /// The typed model, checked.
    ///
    /// # Errors
    /// [`MediaError::WrongKind`] if the preset is not of the kind of `M`; otherwise as
    /// [`Model::from_resolved`].
    pub fn model<M: Model>(&self) -> Result<M, MediaError> {
        if self.kind.word() != M::KIND {
            return Err(MediaError::WrongKind {
                name: self.full_name(),
                is: self.kind.word(),
                wanted: M::KIND,
            });
        }
        M::from_resolved(self, "")
    }

    /// The full name, `kind.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.kind.word(), self.name)
    }

    /// The rows of `media show`: stated figures and derived values.
    ///
    /// # Errors
    /// As [`Model::from_resolved`].
    pub fn rows(&self) -> Result<Vec<FigureRow>, MediaError> {
        let derived = self.kind.derived(self)?;
        let mut rows = Vec::with_capacity(self.figures.len());
        for (spec, figure) in &self.figures {
            if let Some(figure) = figure {
                rows.push(FigureRow {
                    key: spec.key.clone(),
                    value: figure.text.clone(),
                    unit: figure.unit.clone(),
                    condition: figure.condition.clone(),
                    source: figure.source.clone(),
                    meaning: spec.meaning,
                });
            } else if let Some((_, value)) = derived.iter().find(|(key, _)| *key == spec.key) {
                let (value, unit) = spec.dimension.in_readable_unit(*value);
                rows.push(FigureRow {
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

    /// Checks that every stated derived value agrees with its formula.
    pub(crate) fn check(&self) -> Result<(), MediaError> {
        for (key, computed) in self.kind.derived(self)? {
            let Some((spec, Some(figure))) = self.figures.iter().find(|(spec, _)| spec.key == key) else {
                continue;
            };
            let Some(stated) = figure.value.number() else {
                continue;
            };
            if (stated - computed).abs() > STATED_TOLERANCE * computed.abs() {
                let (value, unit) = spec.dimension.in_readable_unit(computed);
                return Err(MediaError::Derived {
                    at: figure.location.clone(),
                    key: self.full_key(&spec.key),
                    stated: format!("{} {}", figure.text, figure.unit),
                    computed: format!("{value} {unit}"),
                    how: spec.meaning,
                });
            }
        }
        Ok(())
    }

    /// A SHA-256 digest of kind and values, in 64 hexadecimal digits: equal digests mean equal
    /// configurations. Names, sources, conditions, the choice of units, and derived values are not part
    /// of it.
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
        F::from_value(self.figure(&key).map(|figure| figure.value)).ok_or_else(|| MediaError::Missing {
            at: self.location.clone(),
            key: self.full_key(&key),
            meaning,
            expected: F::DIMENSION.expected(),
        })
    }

    pub(crate) fn invalid_figure(&self, prefix: &str, invalid: InvalidFigure) -> MediaError {
        let key = format!("{prefix}{}", invalid.key);
        MediaError::Value {
            at: self.figure(&key).map_or_else(|| self.location.clone(), |figure| figure.location.clone()),
            key: self.full_key(&key),
            message: invalid.message,
        }
    }
}
