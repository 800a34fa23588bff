//! The registry: all presets by name, built-in ones and those of user files.

use std::collections::BTreeMap;

use deepram_core::suggest::nearest;
use deepram_core::units;

use crate::dimension::Dimension;
use crate::error::{MediaError, SourceLocation};
use crate::kind::PresetKind;
use crate::model::{KeySpec, Model};
use crate::parse::{ParsedPreset, parse_presets, short, value_of};
use crate::resolved::{Figure, FigureRow, ResolvedPreset};

/// The files of `presets/`, embedded in the crate.
const BUILTIN: &[(&str, &str)] = &[
    ("presets/dram.toml", include_str!("../presets/dram.toml")),
    ("presets/pcm.toml", include_str!("../presets/pcm.toml")),
    ("presets/nand.toml", include_str!("../presets/nand.toml")),
    ("presets/array.toml", include_str!("../presets/array.toml")),
    ("presets/errors.toml", include_str!("../presets/errors.toml")),
    ("presets/ecc.toml", include_str!("../presets/ecc.toml")),
    ("presets/disk.toml", include_str!("../presets/disk.toml")),
    ("presets/server.toml", include_str!("../presets/server.toml")),
    ("presets/file.toml", include_str!("../presets/file.toml")),
    ("presets/link.toml", include_str!("../presets/link.toml")),
    ("presets/pmem.toml", include_str!("../presets/pmem.toml")),
    ("presets/processor.toml", include_str!("../presets/processor.toml")),
    ("presets/ssd.toml", include_str!("../presets/ssd.toml")),
    ("presets/buffer.toml", include_str!("../presets/buffer.toml")),
    ("presets/software.toml", include_str!("../presets/software.toml")),
    ("presets/nvmm.toml", include_str!("../presets/nvmm.toml")),
    ("presets/hierarchy.toml", include_str!("../presets/hierarchy.toml")),
    ("presets/platform.toml", include_str!("../presets/platform.toml")),
];

/// Limit of the length of a chain of bases.
const MAX_DEPTH: usize = 16;

/// One line of `media list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetInfo {
    /// The kind.
    pub kind: PresetKind,
    /// The name within the kind.
    pub name: String,
    /// A short description.
    pub about: String,
}

/// Presets by kind and name.
///
/// A name is `kind.name`, or `name` alone if only one kind has it. Invariant: each preset of a registry
/// has been resolved and checked.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    presets: BTreeMap<(&'static str, String), ParsedPreset>,
}

impl Registry {
    /// A registry of the built-in presets.
    ///
    /// # Errors
    /// None as shipped: a test loads all built-in presets.
    pub fn builtin() -> Result<Self, MediaError> {
        let mut registry = Self::default();
        for (file, text) in BUILTIN {
            registry.insert(file, text)?;
        }
        registry.check()?;
        Ok(registry)
    }

    /// Adds the presets of a user's file with contents `text`; `file` names it in error messages. A
    /// preset of the same kind and name is replaced. A base may be any preset of the registry or the
    /// file.
    ///
    /// # Errors
    /// [`MediaError`] if the file, or a preset based on one of the file's, is invalid. The registry is
    /// then unchanged.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), MediaError> {
        let mut next = self.clone();
        next.insert(file, text)?;
        next.check()?;
        *self = next;
        Ok(())
    }

    fn insert(&mut self, file: &str, text: &str) -> Result<(), MediaError> {
        for preset in parse_presets(file, text)? {
            self.presets.insert((preset.kind.word(), preset.name.clone()), preset);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MediaError> {
        self.presets.values().try_for_each(|preset| self.assemble(preset, &[])?.check())
    }

    /// All presets, ordered by kind and name.
    pub fn list(&self) -> Vec<PresetInfo> {
        self.presets
            .values()
            .map(|preset| PresetInfo {
                kind: preset.kind,
                name: preset.name.clone(),
                about: self.about(preset, MAX_DEPTH),
            })
            .collect()
    }

    fn about(&self, preset: &ParsedPreset, depth: usize) -> String {
        let base = preset.bases.iter().find(|(prefix, ..)| prefix.is_empty());
        match (&preset.about, base) {
            (Some(about), _) => about.clone(),
            (None, Some((_, base, _))) if depth > 0 => self
                .presets
                .get(&(preset.kind.word(), base.clone()))
                .map(|base| self.about(base, depth - 1))
                .unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// The rows of `media show`: stated figures and derived values.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`].
    pub fn show(&self, name: &str) -> Result<Vec<FigureRow>, MediaError> {
        self.resolve(name)?.rows()
    }

    /// Resolves a preset: its own figures over those of its bases.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`].
    pub fn resolve(&self, name: &str) -> Result<ResolvedPreset, MediaError> {
        self.resolve_with(name, &[])
    }

    /// Resolves a preset and applies `overrides` in order. An override is `key=value`: `nand.read=30us`,
    /// `channels=16`, `victim=greedy`, `nand.base=slc`. A value with a dimension needs its unit.
    ///
    /// Overrides drop the preset's stated values of derived figures. An override of a derived figure is
    /// checked.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`]; another [`MediaError`] for an invalid override, with the location
    /// `--set:1` for the first override.
    pub fn resolve_with(&self, name: &str, overrides: &[&str]) -> Result<ResolvedPreset, MediaError> {
        self.resolve_parsed(self.find(name)?, overrides)
    }

    /// Resolves the preset `name` of a kind. If the kind has none of this name, resolves `name` as
    /// [`Registry::resolve_with`] does.
    ///
    /// # Errors
    /// As [`Registry::resolve_with`].
    pub fn resolve_of(
        &self,
        kind: PresetKind,
        name: &str,
        overrides: &[&str],
    ) -> Result<ResolvedPreset, MediaError> {
        self.resolve_parsed(self.find_of(kind.word(), name)?, overrides)
    }

    fn resolve_parsed(
        &self,
        preset: &ParsedPreset,
        overrides: &[&str],
    ) -> Result<ResolvedPreset, MediaError> {
        let resolved = self.assemble(preset, overrides)?;
        resolved.check()?;
        Ok(resolved)
    }

    /// The typed model of a preset.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`], [`MediaError::WrongKind`].
    pub fn get<M: Model>(&self, name: &str) -> Result<M, MediaError> {
        self.get_with(name, &[])
    }

    /// The typed model of a preset after `overrides`; see [`Registry::resolve_with`].
    ///
    /// # Errors
    /// As [`Registry::resolve_with`], and [`MediaError::WrongKind`].
    pub fn get_with<M: Model>(&self, name: &str, overrides: &[&str]) -> Result<M, MediaError> {
        self.resolve_parsed(self.find_of(M::KIND, name)?, overrides)?.model()
    }

    fn find_of(&self, kind: &'static str, name: &str) -> Result<&ParsedPreset, MediaError> {
        if let Some(preset) = self.presets.get(&(kind, name.to_owned())) {
            return Ok(preset);
        }
        // The error for the full name suggests a preset of this kind.
        self.find(name).or_else(|error| {
            if name.contains('.') { Err(error) } else { self.find(&format!("{kind}.{name}")) }
        })
    }

    fn find(&self, name: &str) -> Result<&ParsedPreset, MediaError> {
        if let Some((kind, rest)) = name.split_once('.')
            && let Some(kind) = PresetKind::from_word(kind)
            && let Some(preset) = self.presets.get(&(kind.word(), rest.to_owned()))
        {
            return Ok(preset);
        }
        let mut same = self.presets.values().filter(|preset| preset.name == name);
        let unknown = |message, suggestion| MediaError::UnknownPreset { at: None, message, suggestion };
        match (same.next(), same.next()) {
            (Some(preset), None) => Ok(preset),
            (Some(one), Some(other)) => Err(unknown(
                format!("several kinds have a preset `{name}`"),
                Some(format!("{}.{name}` or `{}.{name}", one.kind.word(), other.kind.word())),
            )),
            (None, _) => {
                let full: Vec<String> = self
                    .presets
                    .values()
                    .map(|preset| format!("{}.{}", preset.kind.word(), preset.name))
                    .collect();
                let names = self.presets.values().map(|preset| preset.name.as_str());
                let near = if name.contains('.') {
                    nearest(name, full.iter().map(String::as_str))
                } else {
                    nearest(name, names)
                };
                Err(unknown(format!("there is no preset `{}`", short(name)), near.map(str::to_owned)))
            }
        }
    }

    fn assemble(&self, preset: &ParsedPreset, overrides: &[&str]) -> Result<ResolvedPreset, MediaError> {
        let specs = preset.kind.keys();
        let mut figures = BTreeMap::new();
        self.apply_figures(preset, "", &mut figures, 0)?;
        let mut changed = Vec::new();
        for (index, text) in overrides.iter().enumerate() {
            let at = SourceLocation::new("--set", index + 1);
            self.set(preset.kind, &specs, text, &at, &mut figures, &mut changed)?;
        }
        if !changed.is_empty() {
            // A stated derived value applies to the unchanged preset only.
            figures.retain(|key, figure: &mut Figure| {
                figure.location.file == "--set" || !specs.iter().any(|spec| spec.derived && spec.key == *key)
            });
        }
        Ok(ResolvedPreset {
            kind: preset.kind,
            name: preset.name.clone(),
            about: self.about(preset, MAX_DEPTH),
            location: preset.location.clone(),
            figures: specs
                .into_iter()
                .map(|spec| {
                    let figure = figures.remove(&spec.key);
                    (spec, figure)
                })
                .collect(),
        })
    }

    /// Adds a preset's figures under `prefix`: first those of its bases, then its own.
    fn apply_figures(
        &self,
        preset: &ParsedPreset,
        prefix: &str,
        figures: &mut BTreeMap<String, Figure>,
        depth: usize,
    ) -> Result<(), MediaError> {
        if depth >= MAX_DEPTH {
            return Err(MediaError::Cycle {
                at: preset.location.clone(),
                key: format!("{}.{}", preset.kind.word(), preset.name),
            });
        }
        // The base of the whole preset comes first; the bases of parts and the preset's own figures
        // override it.
        let mut bases: Vec<_> = preset.bases.iter().collect();
        bases.sort_by_key(|(part, ..)| part.len());
        let own = &preset.figures;
        if !bases.is_empty() {
            for (part, base, at) in bases {
                let kind = part_kind(preset.kind, part);
                let base = self.base(kind, base, at)?;
                self.apply_figures(base, &format!("{prefix}{part}"), figures, depth + 1)?;
            }
            // A derived value stated by a base does not apply to this preset's figures.
            let keys = preset.kind.keys();
            let own_inputs =
                own.iter().any(|(key, _)| keys.iter().any(|spec| !spec.derived && spec.key == *key));
            if own_inputs || preset.bases.len() > 1 {
                for spec in keys.iter().filter(|spec| spec.derived) {
                    figures.remove(&format!("{prefix}{}", spec.key));
                }
            }
        }
        for (key, figure) in own {
            figures.insert(format!("{prefix}{key}"), figure.clone());
        }
        Ok(())
    }

    fn base(&self, kind: PresetKind, name: &str, at: &SourceLocation) -> Result<&ParsedPreset, MediaError> {
        self.presets.get(&(kind.word(), name.to_owned())).ok_or_else(|| {
            let names =
                self.presets.values().filter(|preset| preset.kind == kind).map(|preset| preset.name.as_str());
            MediaError::UnknownPreset {
                at: Some(at.clone()),
                message: format!("there is no {} preset `{}`", kind.word(), short(name)),
                suggestion: nearest(name, names).map(str::to_owned),
            }
        })
    }

    fn set(
        &self,
        kind: PresetKind,
        specs: &[KeySpec],
        text: &str,
        at: &SourceLocation,
        figures: &mut BTreeMap<String, Figure>,
        changed: &mut Vec<String>,
    ) -> Result<(), MediaError> {
        let (key, value) = text.split_once('=').ok_or_else(|| MediaError::Value {
            at: at.clone(),
            key: short(text),
            message: "expected key=value, as in nand.read=30us".into(),
        })?;
        let (key, value) = (key.trim(), value.trim());
        if let Some(part) = key.strip_suffix("base")
            && let Some(word) = part.strip_suffix('.')
            && kind.part(word).is_some()
        {
            let base = self.base(part_kind(kind, part), value, at)?;
            figures.retain(|key, _| !key.starts_with(part));
            self.apply_figures(base, part, figures, 1)?;
            changed.push(key.to_owned());
            return Ok(());
        }
        let Some(spec) = specs.iter().find(|spec| spec.key == key) else {
            return Err(MediaError::UnknownKey {
                at: at.clone(),
                key: short(key),
                suggestion: nearest(key, specs.iter().map(|spec| spec.key.as_str())).map(str::to_owned),
            });
        };
        let (number, unit) = split_value(spec.dimension, value);
        if number.is_empty() {
            return Err(MediaError::Value {
                at: at.clone(),
                key: key.to_owned(),
                message: format!(
                    "`{}` does not start with a non-negative number; expected a number and a unit, {}",
                    short(value),
                    spec.dimension.expected()
                ),
            });
        }
        let unit = match (unit, spec.dimension.bare_unit()) {
            ("", Some(bare)) => bare,
            (unit, _) => unit,
        };
        let figure = Figure {
            value: value_of(spec.dimension, number, unit, key, at)?,
            text: number.to_owned(),
            unit: unit.to_owned(),
            condition: None,
            source: "set by the user".to_owned(),
            location: at.clone(),
        };
        figures.insert(key.to_owned(), figure);
        changed.push(key.to_owned());
        Ok(())
    }
}

fn part_kind(kind: PresetKind, part: &str) -> PresetKind {
    part.strip_suffix('.').and_then(|word| kind.part(word)).unwrap_or(kind)
}

/// Splits a value into number and unit: `30us` is `30` and `us`. A word or flag has no unit.
fn split_value(dimension: Dimension, value: &str) -> (&str, &str) {
    if matches!(dimension, Dimension::Name(_) | Dimension::Flag) {
        return (value, "");
    }
    units::split_unit(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_splits_from_its_unit_and_a_word_has_none() {
        assert_eq!(split_value(Dimension::Time, "2.5 ms"), ("2.5", "ms"));
        assert_eq!(split_value(Dimension::Flag, "true"), ("true", ""));
        assert_eq!(split_value(Dimension::Name(&["2d"]), "2d"), ("2d", ""));
    }
}
