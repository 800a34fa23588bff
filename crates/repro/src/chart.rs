//! Charts and tables as data, drawn on the page and written to `results.json`.

use serde::Serialize;

/// An axis of a chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// Quantity shown.
    pub title: String,
    /// Unit; empty for ratios and counts.
    pub unit: String,
    /// Whether the scale is logarithmic; values that are not positive are then left out.
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

    /// Title, followed by the unit in parentheses.
    #[must_use]
    pub fn label(&self) -> String {
        if self.unit.is_empty() { self.title.clone() } else { format!("{} ({})", self.title, self.unit) }
    }
}

/// A line of a chart. Points are ordered by x.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points as (x, y).
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Creates a series.
    #[must_use]
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points }
    }
}

/// One bar for each group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bars {
    /// Name in the legend.
    pub name: String,
    /// One value per group; `None` where a group has no bar.
    pub values: Vec<Option<f64>>,
}

impl Bars {
    /// Creates bars with a value for every group.
    #[must_use]
    pub fn new(name: &str, values: Vec<f64>) -> Self {
        Self { name: name.into(), values: values.into_iter().map(Some).collect() }
    }
}

/// A reference value drawn across the chart, such as the paper's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reference {
    /// Label of the line.
    pub name: String,
    /// Position on the value axis.
    pub value: f64,
}

/// Kind of chart with its data.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Drawing {
    /// Lines with a mark at each point.
    Lines {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// The lines.
        series: Vec<Series>,
        /// Fills the area under each line and marks only its last point, for quantities such as capacity
        /// over time.
        area: bool,
    },
    /// A mark at each point, without lines: points in any order.
    Points {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// The points.
        series: Vec<Series>,
    },
    /// Bars side by side, or stacked.
    Bars {
        /// Value axis.
        axis: Axis,
        /// Names of the groups.
        groups: Vec<String>,
        /// Bars of each group.
        series: Vec<Bars>,
        /// Stacks the bars of a group and prints their sum. Needs a linear axis; negative values are
        /// left out.
        stacked: bool,
    },
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// Description for readers who cannot see the chart, and for those who do not know what to look for.
    pub about: String,
    /// Kind of chart with its data.
    pub drawing: Drawing,
    /// Reference values.
    pub references: Vec<Reference>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Column headings; the first column names the rows.
    pub headings: Vec<String>,
    /// Rows, each as long as the headings.
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
            Drawing::Points { x, y, series } => {
                let rows = |s: &Series| {
                    let row = |p: &(f64, f64)| vec![s.name.clone(), show(Some(p.0)), show(Some(p.1))];
                    s.points.iter().map(row).collect::<Vec<_>>()
                };
                let headings = vec![String::new(), x.label(), y.label()];
                Table { title, headings, rows: series.iter().flat_map(rows).collect() }
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
