//! All presets by name: those that come with the crate, and those of user files.

use std::collections::BTreeMap;

use deepram_core::units;

use crate::dimension::Dimension;
use crate::error::{MediaError, Place, nearest};
use crate::kind::Kind;
use crate::load::{Draft, drafts, short, value_of};
use crate::model::{KeySpec, Model};
use crate::sheet::{Figure, Row, Sheet};

/// The files of `presets/`, embedded so that nothing is needed at run time.
const BUILTIN: &[(&str, &str)] = &[
    ("presets/dram.toml", include_str!("../presets/dram.toml")),
    ("presets/pcm.toml", include_str!("../presets/pcm.toml")),
    ("presets/nand.toml", include_str!("../presets/nand.toml")),
    ("presets/array.toml", include_str!("../presets/array.toml")),
    ("presets/disk.toml", include_str!("../presets/disk.toml")),
    ("presets/file.toml", include_str!("../presets/file.toml")),
    ("presets/link.toml", include_str!("../presets/link.toml")),
    ("presets/pmem.toml", include_str!("../presets/pmem.toml")),
    ("presets/processor.toml", include_str!("../presets/processor.toml")),
    ("presets/ssd.toml", include_str!("../presets/ssd.toml")),
    ("presets/software.toml", include_str!("../presets/software.toml")),
    ("presets/nvmm.toml", include_str!("../presets/nvmm.toml")),
    ("presets/hierarchy.toml", include_str!("../presets/hierarchy.toml")),
];

/// A chain of bases is shorter than this.
const MAX_DEPTH: usize = 16;

/// One line of `media list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The kind.
    pub kind: Kind,
    /// The name within the kind.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
}

/// Presets by kind and name.
///
/// Names are given as `kind.name`, or as `name` alone where only one kind has it. A registry that was
/// built without an error holds sound presets only: each has been resolved and checked.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    drafts: BTreeMap<(&'static str, String), Draft>,
}

impl Registry {
    /// The presets that come with the crate.
    ///
    /// # Errors
    /// None as shipped: a test loads every one of them. The result is checked all the same.
    pub fn builtin() -> Result<Self, MediaError> {
        let mut registry = Self::default();
        for (file, text) in BUILTIN {
            registry.insert(file, text)?;
        }
        registry.check()?;
        Ok(registry)
    }

    /// Adds the presets of a user's file, whose text is `text`; `file` names it in messages. A preset of
    /// the same kind and name is replaced. Bases may be any preset known by then, in any file.
    ///
    /// # Errors
    /// Whatever is wrong with the file, or with a preset that is based on one of the file's. The
    /// registry is then unchanged.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), MediaError> {
        let mut next = self.clone();
        next.insert(file, text)?;
        next.check()?;
        *self = next;
        Ok(())
    }

    fn insert(&mut self, file: &str, text: &str) -> Result<(), MediaError> {
        for draft in drafts(file, text)? {
            self.drafts.insert((draft.kind.word(), draft.name.clone()), draft);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MediaError> {
        self.drafts.values().try_for_each(|draft| self.assemble(draft, &[])?.check())
    }

    /// Every preset, ordered by kind and name.
    pub fn list(&self) -> Vec<Entry> {
        self.drafts
            .values()
            .map(|draft| Entry {
                kind: draft.kind,
                name: draft.name.clone(),
                about: self.about(draft, MAX_DEPTH),
            })
            .collect()
    }

    fn about(&self, draft: &Draft, depth: usize) -> String {
        let base = draft.bases.iter().find(|(prefix, ..)| prefix.is_empty());
        match (&draft.about, base) {
            (Some(about), _) => about.clone(),
            (None, Some((_, base, _))) if depth > 0 => self
                .drafts
                .get(&(draft.kind.word(), base.clone()))
                .map(|base| self.about(base, depth - 1))
                .unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// The rows of `media show`: stated figures and those that follow from them.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`].
    pub fn show(&self, name: &str) -> Result<Vec<Row>, MediaError> {
        self.sheet(name)?.rows()
    }

    /// A preset with its bases followed.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`].
    pub fn sheet(&self, name: &str) -> Result<Sheet, MediaError> {
        self.sheet_with(name, &[])
    }

    /// A preset with its bases followed and then `overrides` applied, each `key=value`, in order:
    /// `nand.read=30us`, `channels=16`, `victim=greedy`, `nand.base=slc`. A value that has a dimension
    /// needs its unit.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`], or whatever is wrong with an override, which is named as
    /// `--set:1` for the first. Stated values that follow from overridden ones are dropped, unless they
    /// are overridden too, in which case they must be right.
    pub fn sheet_with(&self, name: &str, overrides: &[&str]) -> Result<Sheet, MediaError> {
        let draft = self.find(name)?;
        let sheet = self.assemble(draft, overrides)?;
        sheet.check()?;
        Ok(sheet)
    }

    /// The typed form of a preset.
    ///
    /// # Errors
    /// [`MediaError::UnknownPreset`], [`MediaError::WrongKind`].
    pub fn get<M: Model>(&self, name: &str) -> Result<M, MediaError> {
        self.get_with(name, &[])
    }

    /// The typed form of a preset after `overrides`; see [`Registry::sheet_with`].
    ///
    /// # Errors
    /// As [`Registry::sheet_with`], and [`MediaError::WrongKind`].
    pub fn get_with<M: Model>(&self, name: &str, overrides: &[&str]) -> Result<M, MediaError> {
        let wanted = (M::KIND, name.to_owned());
        let full = format!("{}.{name}", M::KIND);
        let name = if self.drafts.contains_key(&wanted) { &full } else { name };
        self.sheet_with(name, overrides)?.model()
    }

    fn find(&self, name: &str) -> Result<&Draft, MediaError> {
        if let Some((kind, rest)) = name.split_once('.')
            && let Some(kind) = Kind::from_word(kind)
            && let Some(draft) = self.drafts.get(&(kind.word(), rest.to_owned()))
        {
            return Ok(draft);
        }
        let mut same = self.drafts.values().filter(|draft| draft.name == name);
        let unknown = |message, suggestion| MediaError::UnknownPreset { at: None, message, suggestion };
        match (same.next(), same.next()) {
            (Some(draft), None) => Ok(draft),
            (Some(one), Some(other)) => Err(unknown(
                format!("several kinds have a preset `{name}`"),
                Some(format!("{}.{name}` or `{}.{name}", one.kind.word(), other.kind.word())),
            )),
            (None, _) => {
                let full: Vec<String> = self
                    .drafts
                    .values()
                    .map(|draft| format!("{}.{}", draft.kind.word(), draft.name))
                    .collect();
                let names = self.drafts.values().map(|draft| draft.name.as_str());
                let near = if name.contains('.') {
                    nearest(name, full.iter().map(String::as_str))
                } else {
                    nearest(name, names)
                };
                Err(unknown(format!("there is no preset `{}`", short(name)), near))
            }
        }
    }

    fn assemble(&self, draft: &Draft, overrides: &[&str]) -> Result<Sheet, MediaError> {
        let specs = draft.kind.keys();
        let mut figures = BTreeMap::new();
        self.lay(draft, "", &mut figures, 0)?;
        let mut changed = Vec::new();
        for (index, text) in overrides.iter().enumerate() {
            let at = Place::new("--set", index + 1);
            self.set(draft.kind, &specs, text, &at, &mut figures, &mut changed)?;
        }
        if !changed.is_empty() {
            // A stated value describes the preset as shipped; it says nothing about the changed one.
            figures.retain(|key, figure: &mut Figure| {
                figure.place.file == "--set" || !specs.iter().any(|spec| spec.derived && spec.key == *key)
            });
        }
        Ok(Sheet {
            kind: draft.kind,
            name: draft.name.clone(),
            about: self.about(draft, MAX_DEPTH),
            place: draft.place.clone(),
            figures: specs
                .into_iter()
                .map(|spec| {
                    let figure = figures.remove(&spec.key);
                    (spec, figure)
                })
                .collect(),
        })
    }

    /// Lays a preset's figures under `prefix`: first those of its base, then its own.
    fn lay(
        &self,
        draft: &Draft,
        prefix: &str,
        figures: &mut BTreeMap<String, Figure>,
        depth: usize,
    ) -> Result<(), MediaError> {
        if depth >= MAX_DEPTH {
            return Err(MediaError::Cycle {
                at: draft.place.clone(),
                key: format!("{}.{}", draft.kind.word(), draft.name),
            });
        }
        // The whole preset's base first: its parts' bases and figures refine what it brings.
        let mut bases: Vec<_> = draft.bases.iter().collect();
        bases.sort_by_key(|(part, ..)| part.len());
        let own = &draft.figures;
        if !bases.is_empty() {
            for (part, base, at) in bases {
                let kind = part_kind(draft.kind, part);
                let base = self.base(kind, base, at)?;
                self.lay(base, &format!("{prefix}{part}"), figures, depth + 1)?;
            }
            // What follows from the base's figures is not what follows from ours.
            let keys = draft.kind.keys();
            let own_inputs =
                own.iter().any(|(key, _)| keys.iter().any(|spec| !spec.derived && spec.key == *key));
            if own_inputs || draft.bases.len() > 1 {
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

    fn base(&self, kind: Kind, name: &str, at: &Place) -> Result<&Draft, MediaError> {
        self.drafts.get(&(kind.word(), name.to_owned())).ok_or_else(|| {
            let names =
                self.drafts.values().filter(|draft| draft.kind == kind).map(|draft| draft.name.as_str());
            MediaError::UnknownPreset {
                at: Some(at.clone()),
                message: format!("there is no {} preset `{}`", kind.word(), short(name)),
                suggestion: nearest(name, names),
            }
        })
    }

    fn set(
        &self,
        kind: Kind,
        specs: &[KeySpec],
        text: &str,
        at: &Place,
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
            self.lay(base, part, figures, 1)?;
            changed.push(key.to_owned());
            return Ok(());
        }
        let Some(spec) = specs.iter().find(|spec| spec.key == key) else {
            return Err(MediaError::UnknownKey {
                at: at.clone(),
                key: short(key),
                suggestion: nearest(key, specs.iter().map(|spec| spec.key.as_str())),
            });
        };
        let (number, unit) = split_unit(spec.dimension, value);
        if number.is_empty() {
            return Err(MediaError::Value {
                at: at.clone(),
                key: key.to_owned(),
                message: format!(
                    "`{}` does not begin with a number that is not negative; the unit is {}",
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
            place: at.clone(),
        };
        figures.insert(key.to_owned(), figure);
        changed.push(key.to_owned());
        Ok(())
    }
}

fn part_kind(kind: Kind, part: &str) -> Kind {
    part.strip_suffix('.').and_then(|word| kind.part(word)).unwrap_or(kind)
}

/// `30us` is `30` and `us`; a word or flag has no unit.
fn split_unit(dimension: Dimension, value: &str) -> (&str, &str) {
    if matches!(dimension, Dimension::Name(_) | Dimension::Flag) {
        return (value, "");
    }
    units::split(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_splits_from_its_unit_and_a_word_has_none() {
        assert_eq!(split_unit(Dimension::Time, "2.5 ms"), ("2.5", "ms"));
        assert_eq!(split_unit(Dimension::Flag, "true"), ("true", ""));
        assert_eq!(split_unit(Dimension::Name(&["2d"]), "2d"), ("2d", ""));
    }
}
