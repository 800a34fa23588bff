//! Parsing of a sweep's specification: from TOML text to parameters with their lines.

use deepram_core::suggest::nearest;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::constraint::Constraint;
use super::error::SweepError;
use super::key::{Key, short};
use super::range::{Range, SCALES};
use crate::simulation::OPTIONS;

/// Size limit of a specification, bytes. People write these files; a longer one is a mistake or an attack.
const MAX_FILE: usize = 1 << 20;
/// Most levels of tables inside each other.
const MAX_DEPTH: usize = 8;

/// Keys of the specification beside the options of a simulation.
const SECTIONS: [&str; 5] = ["config", "constraints", "set", "axes", "pareto"];
const RANGE_KEYS: [&str; 5] = ["from", "to", "step", "points", "scale"];
const PARETO_KEYS: [&str; 2] = ["minimize", "maximize"];

/// The values of an axis as written.
#[derive(Debug)]
pub(super) enum Values {
    List(Vec<String>),
    Range(Range),
}

/// Something with the line on which it stands.
#[derive(Debug)]
pub(super) struct At<T> {
    pub(super) line: usize,
    pub(super) what: T,
}

/// A specification as written.
#[derive(Debug, Default)]
pub(super) struct Spec {
    pub(super) config: Option<At<String>>,
    /// Parameters that are the same for all points, in the order of the file.
    pub(super) fixed: Vec<At<(Key, String)>>,
    /// The axes, in the order of the file.
    pub(super) axes: Vec<At<(Key, Values)>>,
    pub(super) constraints: Vec<At<(String, Constraint)>>,
    pub(super) minimize: Vec<At<String>>,
    pub(super) maximize: Vec<At<String>>,
}

type Name<'a> = Spanned<DeString<'a>>;
type Node<'a> = Spanned<DeValue<'a>>;

/// Turns positions in the text into errors with lines.
pub(super) struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

/// Parses a specification. `file` names it in errors.
///
/// # Errors
/// [`SweepError::Spec`]: what is wrong, on which line, and what would be right.
pub(super) fn parse(file: &str, text: &str) -> Result<Spec, SweepError> {
    let reader = Reader { file, text };
    if text.len() > MAX_FILE {
        return Err(reader.error(0, format!("the file is longer than {MAX_FILE} bytes, the limit")));
    }
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start).min(text.len());
        reader.error(offset, short(&error.message().replace('\n', " ")))
    })?;
    let mut spec = Spec::default();
    for (name, node) in in_order(table.get_ref()) {
        reader.entry(&mut spec, name, node)?;
    }
    Ok(spec)
}

/// The entries of a table in the order of the file.
fn in_order<'t, 'a>(table: &'t DeTable<'a>) -> Vec<(&'t Name<'a>, &'t Node<'a>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    fn error(&self, offset: usize, what: impl Into<String>) -> SweepError {
        SweepError::Spec { file: self.file.to_owned(), line: self.line(offset), what: what.into() }
    }

    fn at<T>(&self, name: &Name<'_>, what: T) -> At<T> {
        At { line: self.line(name.span().start), what }
    }

    fn entry(&self, spec: &mut Spec, name: &Name<'_>, node: &Node<'_>) -> Result<(), SweepError> {
        let key: &str = name.get_ref();
        match key {
            "config" => spec.config = Some(self.at(name, self.scalar(key, node)?)),
            "constraints" => {
                for text in self.list(key, node)? {
                    let constraint =
                        Constraint::parse(&text).map_err(|why| self.error(node.span().start, why))?;
                    spec.constraints.push(self.at(name, (text, constraint)));
                }
            }
            "set" => self.fixed(spec, "set.", self.table(key, node)?, 0)?,
            "axes" => self.axes(spec, "", self.table(key, node)?, 0)?,
            "pareto" => {
                for (inner, values) in in_order(self.table(key, node)?) {
                    let metrics = match inner.get_ref().as_ref() {
                        "minimize" => &mut spec.minimize,
                        "maximize" => &mut spec.maximize,
                        other => return Err(self.unknown(inner, "[pareto]", other, &PARETO_KEYS)),
                    };
                    let names = self.list(inner.get_ref(), values)?;
                    metrics.extend(names.into_iter().map(|metric| self.at(inner, metric)));
                }
            }
            _ => {
                let Some(option) = Key::option(key) else {
                    let known: Vec<&str> = OPTIONS.iter().chain(&SECTIONS).copied().collect();
                    return Err(self.unknown(name, "a sweep", key, &known));
                };
                let value = match node.get_ref() {
                    DeValue::Array(_) if key == "persist" => self.list(key, node)?.join(","),
                    DeValue::Array(_) => {
                        let why = format!("`{key}` has a list of values; put it below [axes]");
                        return Err(self.error(name.span().start, why));
                    }
                    _ => self.scalar(key, node)?,
                };
                spec.fixed.push(self.at(name, (option, value)));
            }
        }
        Ok(())
    }

    fn unknown(&self, name: &Name<'_>, place: &str, key: &str, known: &[&str]) -> SweepError {
        let near = nearest(key, known.iter().copied())
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        self.error(
            name.span().start,
            format!("{place} has no key `{}`{near} (known: {})", short(key), known.join(", ")),
        )
    }

    /// The keys of a table of fixed values. Tables inside are parts of a key: `[set.nand]` with `read` is `set.nand.read`.
    fn fixed(
        &self,
        spec: &mut Spec,
        prefix: &str,
        table: &DeTable<'_>,
        depth: usize,
    ) -> Result<(), SweepError> {
        for (name, node) in in_order(table) {
            let full = format!("{prefix}{}", name.get_ref());
            if let DeValue::Table(inner) = node.get_ref() {
                self.deeper(name, depth)?;
                self.fixed(spec, &format!("{full}."), inner, depth + 1)?;
                continue;
            }
            let key = Key::parse(&full).map_err(|why| self.error(name.span().start, why))?;
            spec.fixed.push(self.at(name, (key, self.scalar(&full, node)?)));
        }
        Ok(())
    }

    /// The keys of a table of axes. A table with a key of a range is a range; another table is a part of a key.
    fn axes(
        &self,
        spec: &mut Spec,
        prefix: &str,
        table: &DeTable<'_>,
        depth: usize,
    ) -> Result<(), SweepError> {
        for (name, node) in in_order(table) {
            let full = format!("{prefix}{}", name.get_ref());
            let values = match node.get_ref() {
                DeValue::Array(_) => Values::List(self.list(&full, node)?),
                DeValue::Table(inner)
                    if inner.keys().any(|key| RANGE_KEYS.contains(&key.get_ref().as_ref())) =>
                {
                    Values::Range(self.range(inner)?)
                }
                DeValue::Table(inner) => {
                    self.deeper(name, depth)?;
                    self.axes(spec, &format!("{full}."), inner, depth + 1)?;
                    continue;
                }
                _ => {
                    let why = format!(
                        "axis `{}` has one value; give a list [..], a range {{ from = .., to = .. }}, or put it above [axes]",
                        short(&full)
                    );
                    return Err(self.error(name.span().start, why));
                }
            };
            let key = Key::parse(&full).map_err(|why| self.error(name.span().start, why))?;
            spec.axes.push(self.at(name, (key, values)));
        }
        Ok(())
    }

    fn deeper(&self, name: &Name<'_>, depth: usize) -> Result<(), SweepError> {
        if depth < MAX_DEPTH {
            return Ok(());
        }
        Err(self.error(name.span().start, format!("more than {MAX_DEPTH} tables inside each other")))
    }

    fn range(&self, table: &DeTable<'_>) -> Result<Range, SweepError> {
        let mut range = Range::default();
        for (name, node) in in_order(table) {
            let key: &str = name.get_ref();
            let value = self.scalar(key, node)?;
            match key {
                "from" => range.from = Some(value),
                "to" => range.to = Some(value),
                "step" => range.step = Some(value),
                "points" => {
                    let points = value.parse().map_err(|_| {
                        self.error(
                            node.span().start,
                            format!("points = {} is not a whole number", short(&value)),
                        )
                    })?;
                    range.points = Some(points);
                }
                "scale" => {
                    if !SCALES.contains(&value.as_str()) {
                        return Err(self.unknown(name, "`scale`", &value, &SCALES));
                    }
                    range.scale = Some(value);
                }
                _ => return Err(self.unknown(name, "a range", key, &RANGE_KEYS)),
            }
        }
        Ok(range)
    }

    fn table<'t, 'a>(&self, key: &str, node: &'t Node<'a>) -> Result<&'t DeTable<'a>, SweepError> {
        node.get_ref()
            .as_table()
            .ok_or_else(|| self.error(node.span().start, format!("`{key}` is a table: write [{key}]")))
    }

    fn list(&self, key: &str, node: &Node<'_>) -> Result<Vec<String>, SweepError> {
        let DeValue::Array(items) = node.get_ref() else {
            let why = format!("`{}` is a list: write [\"...\", \"...\"]", short(key));
            return Err(self.error(node.span().start, why));
        };
        items.iter().map(|item| self.scalar(key, item)).collect()
    }

    /// The text of a string, number or truth value.
    fn scalar(&self, key: &str, node: &Node<'_>) -> Result<String, SweepError> {
        let text = match node.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            _ => {
                let why = format!("`{}`: expected a text, a decimal number, true or false", short(key));
                return Err(self.error(node.span().start, why));
            }
        };
        if text.chars().any(char::is_control) {
            let why = format!("`{}`: the text has control characters", short(key));
            return Err(self.error(node.span().start, why));
        }
        Ok(text)
    }
}
