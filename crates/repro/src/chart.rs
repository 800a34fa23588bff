//! Charts and tables as data: what the page draws and what stands in `results.json`.

use serde::Serialize;

/// An axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// What it shows.
    pub title: String,
    /// Its unit; empty for ratios and counts.
    pub unit: String,
    /// Whether it is logarithmic; values that are not positive are then left out.
    pub log: bool,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(title: &str, unit: &str) -> Self {
        Self { title: title.into(), unit: unit.into(), log: false }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(title: &str, unit: &str) -> Self {
        Self { title: title.into(), unit: unit.into(), log: true }
    }

    /// Title with unit.
    #[must_use]
    pub fn label(&self) -> String {
        if self.unit.is_empty() { self.title.clone() } else { format!("{} ({})", self.title, self.unit) }
    }
}

/// Points in the order of x.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// What they are.
    pub name: String,
    /// (x, y).
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A series.
    #[must_use]
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points }
    }
}

/// Bars of one kind, one for each group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bars {
    /// What they are.
    pub name: String,
    /// A value for each group; none where there is none.
    pub values: Vec<Option<f64>>,
}

impl Bars {
    /// Bars of all groups.
    #[must_use]
    pub fn new(name: &str, values: Vec<f64>) -> Self {
        Self { name: name.into(), values: values.into_iter().map(Some).collect() }
    }
}

/// A value that lies across the chart: the paper's, say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reference {
    /// What it is.
    pub name: String,
    /// On the axis of values.
    pub value: f64,
}

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Drawing {
    /// Lines with a mark at each point.
    Lines {
        /// Along the page.
        x: Axis,
        /// Up the page.
        y: Axis,
        /// The lines.
        series: Vec<Series>,
        /// Filled down to the x axis, with a mark at the end only: a capacity over time.
        area: bool,
    },
    /// Bars side by side, or for `stacked` end to end.
    Bars {
        /// Of the values.
        axis: Axis,
        /// The groups' names.
        groups: Vec<String>,
        /// What each group has.
        series: Vec<Bars>,
        /// End to end, with the sum at the end; on a linear axis, and without values below 0, which have no
        /// place in a stack.
        stacked: bool,
    },
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// What there is to see, for those who cannot see it and those who do not know what to look for.
    pub about: String,
    /// What is drawn.
    pub drawing: Drawing,
    /// Values to compare with.
    pub references: Vec<Reference>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Its title.
    pub title: String,
    /// The headings; the first is that of the rows' names.
    pub headings: Vec<String>,
    /// The rows, as long as the headings.
    pub rows: Vec<Vec<String>>,
}

impl Chart {
    /// The chart's data as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let title = format!("Data: {}", self.title);
        let show = |value: Option<f64>| value.map_or_else(|| "–".into(), crate::number::plain);
        match &self.drawing {
            Drawing::Lines { x, y, series, .. } => {
                let mut headings = vec![x.label()];
                headings.extend(series.iter().map(|s| format!("{}, {}", s.name, y.label())));
                let mut at: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).collect();
                at.sort_by(f64::total_cmp);
                at.dedup();
                let rows = at
                    .iter()
                    .map(|&x| {
                        let of = |s: &Series| s.points.iter().find(|p| p.0 == x).map(|p| p.1);
                        let values = series.iter().map(|s| show(of(s)));
                        std::iter::once(crate::number::plain(x)).chain(values).collect()
                    })
                    .collect();
                Table { title, headings, rows }
            }
            Drawing::Bars { axis, groups, series, .. } => {
                let mut headings = vec![String::new()];
                headings.extend(series.iter().map(|s| format!("{}, {}", s.name, axis.label())));
                let rows = groups
                    .iter()
                    .enumerate()
                    .map(|(at, group)| {
                        let values = series.iter().map(|s| show(s.values.get(at).copied().flatten()));
                        std::iter::once(group.clone()).chain(values).collect()
                    })
                    .collect();
                Table { title, headings, rows }
            }
        }
    }
}
