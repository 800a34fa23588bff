//! The results of a sweep as a table: one row a point, one column an axis or figure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quantity::{Quantity, Unit};
use super::{Axis, Sweep};

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text or truth value.
    Text(String),
}

impl Cell {
    /// The value as a number; `None` for a text.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::Int(number) => Some(*number as f64),
            Cell::Float(number) => Some(*number),
            Cell::Text(_) => None,
        }
    }
}

/// A column of a table. All of its cells are of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The name; figures carry their unit, as in `latency.p99_ns`.
    pub name: String,
    /// One cell a row; `None` where a row has no such figure.
    pub cells: Vec<Option<Cell>>,
}

/// The results of a sweep. The columns: `point`, `axis.NAME` for each axis, `status`, `error`, and the figures of the
/// results in the order of their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The columns, equally long.
    pub columns: Vec<Column>,
}

impl Table {
    /// The column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// Makes the cell of an axis from its number.
type CellOf = fn(f64) -> Cell;

/// Collects the rows of a table.
#[derive(Debug)]
pub(super) struct TableBuilder<'a> {
    sweep: &'a Sweep,
    rows: usize,
    leading: Vec<Column>,
    /// For each axis, the function from a number to its cell.
    kinds: Vec<Option<CellOf>>,
    figures: BTreeMap<String, Vec<Option<Cell>>>,
}

impl<'a> TableBuilder<'a> {
    pub(super) fn new(sweep: &'a Sweep) -> Self {
        let column = |name: String| Column { name, cells: Vec::new() };
        let mut leading = vec![column("point".into())];
        let axes: Vec<_> = sweep.axes.iter().map(axis_column).collect();
        leading.extend(axes.iter().map(|(name, _)| column(name.clone())));
        leading.extend(["status", "error"].map(|name| column(name.into())));
        let kinds = axes.into_iter().map(|(_, of)| of).collect();
        Self { sweep, rows: 0, leading, kinds, figures: BTreeMap::new() }
    }

    /// Adds the next point.
    pub(super) fn add(&mut self, values: &[&str], outcome: &Value) {
        let mut cells = vec![Some(Cell::Int(i64::try_from(self.rows).unwrap_or(i64::MAX)))];
        for ((axis, of), value) in self.sweep.axes.iter().zip(&self.kinds).zip(values) {
            cells.push(Some(axis_cell(axis, *of, value)));
        }
        for name in ["status", "error"] {
            cells.push(outcome.get(name).and_then(Value::as_str).map(|text| Cell::Text(text.to_owned())));
        }
        for (column, cell) in self.leading.iter_mut().zip(cells) {
            column.cells.push(cell);
        }
        if let Some(result) = outcome.get("result") {
            let mut figures = Vec::new();
            flatten("", result, &mut figures);
            for (name, cell) in figures {
                let cells = self.figures.entry(name).or_default();
                cells.resize(self.rows, None);
                cells.push(Some(cell));
            }
        }
        self.rows += 1;
    }

    pub(super) fn finish(self) -> Table {
        let Self { rows, mut leading, figures, .. } = self;
        leading.extend(figures.into_iter().map(|(name, mut cells)| {
            cells.resize(rows, None);
            Column { name, cells: of_one_kind(cells) }
        }));
        Table { columns: leading }
    }
}

/// Turns whole numbers into numbers where the column has both, and everything into texts where it has texts too.
fn of_one_kind(mut cells: Vec<Option<Cell>>) -> Vec<Option<Cell>> {
    let any = |is: fn(&Cell) -> bool| cells.iter().flatten().any(is);
    let (text, float) = (any(|c| matches!(c, Cell::Text(_))), any(|c| matches!(c, Cell::Float(_))));
    for cell in cells.iter_mut().flatten() {
        match cell {
            Cell::Int(number) if text => *cell = Cell::Text(number.to_string()),
            Cell::Float(number) if text => *cell = Cell::Text(number.to_string()),
            Cell::Int(number) if float => *cell = Cell::Float(*number as f64),
            _ => {}
        }
    }
    cells
}

/// The name of an axis's column, and the function from a number to its cell; without one, cells are texts.
fn axis_column(axis: &Axis) -> (String, Option<CellOf>) {
    let name = format!("axis.{}", axis.key);
    let quantities: Option<Vec<Quantity>> =
        axis.values.iter().map(|value| Quantity::parse(value, axis.form)).collect();
    let quantities = quantities.filter(|all| all.windows(2).all(|pair| pair[0].unit == pair[1].unit));
    let whole = |quantities: &[Quantity]| quantities.iter().all(|q| q.number.fract() == 0.0);
    match quantities.as_deref() {
        Some([Quantity { unit: Unit::Size, .. }, ..]) => {
            (format!("{name}_bytes"), Some(|bytes| Cell::Int(bytes as i64)))
        }
        Some([Quantity { unit: Unit::Time, .. }, ..]) => {
            (format!("{name}_ns"), Some(|ps| Cell::Float(ps / 1e3)))
        }
        Some(all @ [Quantity { unit: Unit::Plain, .. }, ..]) if whole(all) => {
            (name, Some(|number| Cell::Int(number as i64)))
        }
        Some([Quantity { unit: Unit::Plain, .. }, ..]) => (name, Some(Cell::Float)),
        _ => (name, None),
    }
}

/// The cell of a value of an axis.
fn axis_cell(axis: &Axis, of: Option<CellOf>, value: &str) -> Cell {
    match (of, Quantity::parse(value, axis.form)) {
        (Some(of), Some(quantity)) => of(quantity.number),
        _ => Cell::Text(value.to_owned()),
    }
}

/// The figures of a result by name. The elements of a list are named by their `level` or `component`; other lists, the
/// configuration and nulls are left out.
fn flatten(name: &str, value: &Value, figures: &mut Vec<(String, Cell)>) {
    let inner = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if !(name.is_empty() && key == "config") {
                    flatten(&inner(key), value, figures);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let label =
                    ["level", "component"].into_iter().find_map(|key| Some((key, item.get(key)?.as_str()?)));
                if let (Some((key, label)), Value::Object(map)) = (label, item) {
                    let label = label.replace(' ', "-");
                    for (field, value) in map.iter().filter(|(field, _)| *field != key) {
                        flatten(&inner(&format!("{label}.{field}")), value, figures);
                    }
                }
            }
        }
        Value::Null => {}
        Value::Bool(flag) => figures.push((name.to_owned(), Cell::Text(flag.to_string()))),
        Value::String(text) => figures.push((name.to_owned(), Cell::Text(text.clone()))),
        Value::Number(number) => {
            let cell = match (number.as_i64(), number.as_f64()) {
                (Some(number), _) => Cell::Int(number),
                (None, Some(number)) => Cell::Float(number),
                (None, None) => return,
            };
            figures.push((name.to_owned(), cell));
        }
    }
}
