//! The Pareto front of a sweep over named figures.

use deepram_core::suggest::nearest;

use super::columns::{Cell, Table};

/// The figures that are minimized and maximized.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Objectives {
    pub(super) minimize: Vec<String>,
    pub(super) maximize: Vec<String>,
}

impl Objectives {
    /// The names of all figures, those to minimize first.
    pub(super) fn names(&self) -> Vec<&str> {
        self.minimize.iter().chain(&self.maximize).map(String::as_str).collect()
    }

    /// The rows on the front, in order; empty without objectives. Rows that lack one of the figures are left out.
    ///
    /// # Errors
    /// The text says which figure no row has, and which name was perhaps meant.
    pub(super) fn front(&self, table: &Table) -> Result<Vec<usize>, String> {
        if self.names().is_empty() {
            return Ok(Vec::new());
        }
        let mut columns = Vec::new();
        let signs = self.minimize.iter().map(|_| 1.0).chain(self.maximize.iter().map(|_| -1.0));
        for (name, sign) in self.names().into_iter().zip(signs) {
            let column = table.column(name).ok_or_else(|| {
                let known = || table.columns.iter().map(|column| column.name.as_str());
                let near =
                    nearest(name, known()).map_or_else(String::new, |near| format!("; did you mean {near}?"));
                format!("no result has the figure {name:?}{near}")
            })?;
            if column.cells.iter().flatten().any(|cell| cell.number().is_none()) {
                return Err(format!(
                    "{name} is a text, which has no smallest or largest value; name a figure"
                ));
            }
            columns.push((column, sign));
        }
        let rows = columns.first().map_or(0, |(column, _)| column.cells.len());
        let figures = |row: usize| -> Option<Vec<f64>> {
            columns
                .iter()
                .map(|(column, sign)| column.cells[row].as_ref().and_then(Cell::number).map(|n| n * sign))
                .collect()
        };
        let known: Vec<(usize, Vec<f64>)> = (0..rows).filter_map(|row| Some((row, figures(row)?))).collect();
        let vectors: Vec<&[f64]> = known.iter().map(|(_, figures)| figures.as_slice()).collect();
        Ok(crate::pareto::front(&vectors).into_iter().map(|at| known[at].0).collect())
    }
}
