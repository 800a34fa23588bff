//! Parsing of preset files: from TOML text to figures with their locations. Bases are not resolved here.

use deepram_core::suggest::nearest;
use deepram_core::units::{Decimal, Inexact};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::dimension::Dimension;
use crate::error::{MediaError, SourceLocation};
use crate::kind::PresetKind;
use crate::model::KeySpec;
use crate::resolved::Figure;
use crate::value::Value;

/// Size limit of a preset file, in bytes. People write these files; a longer one is a mistake or an
/// attack.
const MAX_FILE: usize = 1 << 20;
/// Size limit of a name, condition or source, in bytes.
const MAX_TEXT: usize = 1000;
/// The key of the base of a preset or part.
const BASE: &str = "base";
/// The key of a preset's description.
const ABOUT: &str = "about";

/// A preset as written in its file.
#[derive(Debug, Clone)]
pub(crate) struct ParsedPreset {
    pub(crate) kind: PresetKind,
    pub(crate) name: String,
    pub(crate) location: SourceLocation,
    pub(crate) about: Option<String>,
    /// The bases: prefix of the part (empty for the whole preset), name of a preset of the part's kind,
    /// location.
    pub(crate) bases: Vec<(String, String, SourceLocation)>,
    pub(crate) figures: Vec<(String, Figure)>,
}

struct Reader<'a> {
    file: &'a str,
    /// Offset of the start of each line.
    lines: Vec<usize>,
}

/// Parses all presets of a file, in the order of the file.
pub(crate) fn parse_presets(file: &str, text: &str) -> Result<Vec<ParsedPreset>, MediaError> {
    let mut lines = vec![0];
    if text.len() <= MAX_FILE {
        lines.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
    }
    let reader = Reader { file, lines };
    if text.len() > MAX_FILE {
        return Err(MediaError::Toml {
            at: reader.at(0),
            message: format!("the file is longer than the limit of a preset file, {MAX_FILE} bytes"),
        });
    }
    let table = DeTable::parse(text).map_err(|error| MediaError::Toml {
        at: reader.at(error.span().map_or(0, |span| span.start)),
        message: {
            let offset = error.span().map_or(0, |span| span.start).min(text.len());
            let start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
            let line = text[start..].lines().next().unwrap_or("").trim();
            let message: String = error.message().chars().take(200).collect();
            format!("{} in `{}`", message.replace(char::is_control, " "), short(line))
        },
    })?;
    let mut parsed = Vec::new();
    for (kind_key, presets) in table.get_ref() {
        let at = reader.at(kind_key.span().start);
        let Some(kind) = PresetKind::from_word(kind_key.get_ref()) else {
            return Err(MediaError::UnknownKey {
                at,
                suggestion: nearest(kind_key.get_ref(), PresetKind::ALL.iter().map(|k| k.word()))
                    .map(str::to_owned),
                key: short(kind_key.get_ref()),
            });
        };
        let Some(presets) = presets.get_ref().as_table() else {
            return Err(MediaError::Value {
                at,
                key: kind.word().to_owned(),
                message: format!("expected presets, as in [{}.my-name]", kind.word()),
            });
        };
        for (name, body) in presets {
            parsed.push(reader.preset(kind, name, body)?);
        }
    }
    parsed.sort_by_key(|preset| preset.location.line);
    Ok(parsed)
}

impl Reader<'_> {
    fn at(&self, offset: usize) -> SourceLocation {
        SourceLocation::new(self.file, self.lines.partition_point(|start| *start <= offset).max(1))
    }

    fn preset(
        &self,
        kind: PresetKind,
        name: &Spanned<toml::de::DeString<'_>>,
        body: &Spanned<DeValue<'_>>,
    ) -> Result<ParsedPreset, MediaError> {
        let location = self.at(name.span().start);
        let name: &str = name.get_ref();
        let full = format!("{}.{}", kind.word(), short(name));
        let well_formed = !name.is_empty()
            && name.len() <= 64
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if !well_formed {
            return Err(MediaError::Value {
                at: location,
                key: full,
                message: "the name of a preset must have 1 to 64 characters out of a-z, 0-9 and -".into(),
            });
        }
        let mut preset = ParsedPreset {
            kind,
            name: name.to_owned(),
            location,
            about: None,
            bases: Vec::new(),
            figures: Vec::new(),
        };
        let keys = kind.keys();
        self.table(&mut preset, &keys, "", &full, body)?;
        Ok(preset)
    }

    /// Parses the figures of a preset, or of one of its parts (`prefix` is then `part.`).
    fn table(
        &self,
        preset: &mut ParsedPreset,
        keys: &[KeySpec],
        prefix: &str,
        full: &str,
        body: &Spanned<DeValue<'_>>,
    ) -> Result<(), MediaError> {
        let Some(table) = body.get_ref().as_table() else {
            return Err(MediaError::Value {
                at: self.at(body.span().start),
                key: full.to_owned(),
                message: "expected a table of figures".into(),
            });
        };
        for (key, value) in table {
            let at = self.at(key.span().start);
            let word: &str = key.get_ref();
            let full = format!("{full}.{}", short(word));
            let full_key = format!("{prefix}{word}");
            if word == BASE {
                let base = self.text(value, &full)?;
                preset.bases.push((prefix.to_owned(), base, at));
            } else if word == ABOUT && prefix.is_empty() {
                preset.about = Some(self.text(value, &full)?);
            } else if prefix.is_empty() && preset.kind.part(word).is_some() {
                self.table(preset, keys, &format!("{word}."), &full, value)?;
            } else if let Some(spec) = keys.iter().find(|spec| spec.key == full_key) {
                let figure = self.figure(spec, &full, at, value)?;
                preset.figures.push((full_key, figure));
            } else {
                let valid = keys.iter().filter_map(|spec| spec.key.strip_prefix(prefix)).chain([BASE, ABOUT]);
                let suggestion = nearest(word, valid).map(str::to_owned);
                return Err(MediaError::UnknownKey { at, suggestion, key: full });
            }
        }
        Ok(())
    }

    fn figure(
        &self,
        spec: &KeySpec,
        full: &str,
        at: SourceLocation,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Figure, MediaError> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(MediaError::Value {
                at,
                key: full.to_owned(),
                message: format!(
                    "expected {{ value = .., unit = \"..\", source = \"..\" }}, with unit {}",
                    spec.dimension.expected()
                ),
            });
        };
        let (mut number, mut unit, mut condition, mut source) = (None, None, None, None);
        for (key, value) in table {
            let word: &str = key.get_ref();
            let full = format!("{full}.{}", short(word));
            match word {
                "value" => number = Some(value),
                "unit" => unit = Some(self.text(value, &full)?),
                "condition" => condition = Some(self.text(value, &full)?),
                "source" => source = Some(self.text(value, &full)?),
                _ => {
                    return Err(MediaError::UnknownKey {
                        at: self.at(key.span().start),
                        suggestion: nearest(word, ["value", "unit", "condition", "source"])
                            .map(str::to_owned),
                        key: full,
                    });
                }
            }
        }
        let missing = |key: &str, meaning| MediaError::Missing {
            at: at.clone(),
            key: format!("{full}.{key}"),
            meaning,
            expected: spec.dimension.expected(),
        };
        let number = number.ok_or_else(|| missing("value", "the figure itself"))?;
        let unit = unit.ok_or_else(|| missing("unit", "the unit of the value"))?;
        let source = source
            .filter(|source| !source.trim().is_empty())
            .ok_or_else(|| missing("source", "the origin of the value, or `assumed: reason`"))?;
        let text = match number.get_ref() {
            // The digits as written: 0.2384 must not be converted to a binary fraction.
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().to_owned(),
            DeValue::Float(float) => float.as_str().to_owned(),
            DeValue::String(string) if matches!(spec.dimension, Dimension::Name(_)) => string.to_string(),
            DeValue::Boolean(flag) if spec.dimension == Dimension::Flag => flag.to_string(),
            other => {
                return Err(MediaError::Value {
                    at: self.at(number.span().start),
                    key: full.to_owned(),
                    message: format!(
                        "expected {}, found {}",
                        expected_form(spec.dimension),
                        other.type_str()
                    ),
                });
            }
        };
        let value = value_of(spec.dimension, &text, &unit, full, &at)?;
        Ok(Figure { value, text, unit, condition, source, location: at })
    }

    fn text(&self, value: &Spanned<DeValue<'_>>, full: &str) -> Result<String, MediaError> {
        value
            .get_ref()
            .as_str()
            .filter(|text| text.len() <= MAX_TEXT && !text.chars().any(char::is_control))
            .map(str::to_owned)
            .ok_or_else(|| MediaError::Value {
                at: self.at(value.span().start),
                key: full.to_owned(),
                message: format!("expected a text on one line of at most {MAX_TEXT} bytes"),
            })
    }
}

/// Converts a written number or word and its unit to a value in base units.
pub(crate) fn value_of(
    dimension: Dimension,
    text: &str,
    unit: &str,
    full: &str,
    at: &SourceLocation,
) -> Result<Value, MediaError> {
    let wrong = |message: String| MediaError::Value { at: at.clone(), key: full.to_owned(), message };
    let scale = dimension.unit(unit).ok_or_else(|| MediaError::Unit {
        at: at.clone(),
        key: full.to_owned(),
        unit: short(unit),
        expected: dimension.expected(),
    })?;
    if let Dimension::Name(words) = dimension {
        return words.iter().find(|word| **word == text).map(|word| Value::Name(word)).ok_or_else(|| {
            let near = nearest(text, words.iter().copied().filter(|word| word.len() > 3));
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            wrong(format!("`{}` is not valid; expected one of {}{near}", short(text), words.join(", ")))
        });
    }
    if dimension == Dimension::Flag {
        return text
            .parse()
            .map(Value::Flag)
            .map_err(|_| wrong(format!("`{}` is not valid; expected true or false", short(text))));
    }
    let decimal = Decimal::parse(text).map_err(&wrong)?;
    let Some(limit) = dimension.whole_limit() else {
        let real = decimal.real(scale.factor, scale.power);
        return if dimension == Dimension::Fraction && real > 1.0 {
            Err(wrong(format!("{text} {unit} exceeds 1; expected a share from 0 to 1")))
        } else if real < 1e18 {
            Ok(Value::Real(real))
        } else {
            Err(wrong(format!("{} is out of range", short(text))))
        };
    };
    let least =
        u64::from(matches!(dimension, Dimension::Count | Dimension::TransferRate | Dimension::Rotation));
    match decimal.whole(scale.factor, scale.power) {
        Ok(whole) if whole < u128::from(least) => Err(wrong(format!("must be at least {least}"))),
        Ok(whole) if whole <= u128::from(limit) => Ok(Value::Whole(whole as u64)),
        Err(Inexact::Fraction) => Err(wrong(format!(
            "{} {unit} is not a whole number of {}",
            short(text),
            dimension.in_readable_unit(0.0).1
        ))),
        _ => {
            let (most, base) = dimension.in_readable_unit(limit as f64);
            Err(wrong(format!(
                "{} {unit} is out of range; the largest valid value is {most} {base}",
                short(text)
            )))
        }
    }
}

fn expected_form(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Flag => "true or false",
        Dimension::Name(_) => "a word in quotes",
        _ => "a decimal number",
    }
}

/// The first 60 characters of a text, for an error message.
pub(crate) fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect();
    if short.len() < text.len() && text.chars().count() > 60 {
        short.push('…');
    }
    short
}
