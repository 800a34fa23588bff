//! Draws line charts, with marks or filled areas, and charts of points, over two axes.

use super::axes::{LegendSymbol, apart, bottom_axis, bottom_height, legend};
use super::canvas::{Anchor, Canvas, LINE, SHAPES, TEXT};
use super::scale::Scale;
use super::text;
use crate::chart::{Axis, Reference, Series};
use crate::number::{tick, with_unit};

/// Input of [`draw`].
pub(super) struct Lines<'a> {
    pub(super) x: &'a Axis,
    pub(super) y: &'a Axis,
    pub(super) series: &'a [Series],
    pub(super) references: &'a [Reference],
    pub(super) style: Style,
}

/// What is drawn of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// A line with a mark at each point.
    Lines,
    /// A line above a filled area, with a mark at its end.
    Areas,
    /// A mark at each point.
    Points,
}

/// A label at the right end of its line.
struct Label {
    lines: Vec<String>,
    y: f64,
    /// Series whose mark precedes the label; `None` for a reference.
    series: Option<usize>,
}

pub(super) fn draw(lines: &Lines<'_>, width: f64) -> Canvas {
    let narrow = width < 500.0;
    let names: Vec<&str> = lines.series.iter().map(|series| series.name.as_str()).collect();
    let most_label = width * if narrow { 0.27 } else { 0.25 };
    let label_lines = |name: &str| text::wrap(name, TEXT, most_label, 3);
    let references = lines.references.iter().map(|reference| reference.name.as_str());
    let label_width = names
        .iter()
        .copied()
        .chain(references)
        .flat_map(label_lines)
        .map(|line| text::width(&line, TEXT))
        .fold(0.0, f64::max);
    let labels_height: f64 = names
        .iter()
        .copied()
        .chain(lines.references.iter().map(|reference| reference.name.as_str()))
        .map(|name| label_lines(name).len() as f64 * LINE)
        .sum();
    let plot = (if narrow { 220.0 } else { 290.0f64 }).max(labels_height + 8.0);

    let mut canvas = Canvas::new(width, 0.0);
    let top = legend(&mut canvas, &names, LegendSymbol::Line, 0.0) + 28.0;
    let bottom = top + plot;
    canvas.height = bottom + bottom_height(&lines.x.label(), width);

    let points = || lines.series.iter().flat_map(|series| series.points.iter().copied());
    let values = points().map(|point| point.1).chain(lines.references.iter().map(|r| r.value));
    let y = Scale::new(values, lines.y.log, lines.style == Style::Areas, (bottom, top));
    let y_ticks = y.ticks(38.0);
    let left = y_ticks.iter().map(|&value| text::width(&tick(value), TEXT)).fold(0.0, f64::max) + 8.0;
    let right = width - label_width - 20.0;
    let xs: Vec<f64> = points().map(|point| point.0).collect();
    let x = Scale::tight(xs, lines.x.log, (left + 6.0, right));

    // The title of the vertical axis is written horizontally above it, to be readable.
    let title = text::wrap(&lines.y.label(), TEXT, width, 1).pop().unwrap_or_default();
    canvas.text(0.0, top - 12.0, Anchor::Start, "title", &title);
    for &value in &y_ticks {
        let Some(at) = y.at(value) else { continue };
        canvas.line((left, at), (right, at), "grid");
        canvas.text(left - 6.0, at + 4.0, Anchor::End, "tick", &tick(value));
    }
    bottom_axis(&mut canvas, &x, top, bottom, &lines.x.label());

    let mut labels = Vec::new();
    for reference in lines.references {
        if let Some(at) = y.at(reference.value) {
            canvas.line((left, at), (right, at), "reference");
            labels.push(Label { lines: label_lines(&reference.name), y: at, series: None });
        }
    }
    for (at, series) in lines.series.iter().enumerate() {
        if let Some(end) = one(&mut canvas, lines, series, at, (&x, &y), bottom) {
            labels.push(Label { lines: label_lines(&series.name), y: end, series: Some(at) });
        }
    }
    place(&mut canvas, &labels, right + 6.0, (top, bottom));
    if labels.is_empty() {
        canvas.text((left + right) / 2.0, (top + bottom) / 2.0, Anchor::Middle, "", "no data");
    }
    canvas
}

/// A position on the drawing, or (x, y) of the data.
type Coordinate = (f64, f64);

/// Draws a series and returns the height of its last point.
fn one(
    canvas: &mut Canvas,
    lines: &Lines<'_>,
    series: &Series,
    at: usize,
    (x, y): (&Scale, &Scale),
    bottom: f64,
) -> Option<f64> {
    let placed: Vec<(Coordinate, &Coordinate)> =
        series.points.iter().filter_map(|point| Some(((x.at(point.0)?, y.at(point.1)?), point))).collect();
    let path: Vec<Coordinate> = placed.iter().map(|(place, _)| *place).collect();
    let class = at % SHAPES;
    if lines.style == Style::Areas
        && let (Some(first), Some(last)) = (path.first(), path.last())
    {
        let mut area = path.clone();
        area.extend([(last.0, bottom), (first.0, bottom)]);
        canvas.path(&area, true, &format!("area s{class}"));
    }
    if lines.style != Style::Points {
        canvas.path(&path, false, &format!("stroke s{class}"));
    }
    // A line has a mark at each point; an area, with many points, only at its end.
    let marked = if lines.style == Style::Areas { placed.len().saturating_sub(1) } else { 0 };
    for (place, point) in &placed[marked..] {
        let title = format!(
            "{}: {} at {}",
            series.name,
            with_unit(point.1, &lines.y.unit),
            with_unit(point.0, &lines.x.unit)
        );
        canvas.mark(at, *place, &title);
    }
    path.last().map(|end| end.1)
}

fn place(canvas: &mut Canvas, labels: &[Label], x: f64, (top, bottom): (f64, f64)) {
    let heights: Vec<f64> = labels.iter().map(|label| label.lines.len() as f64 * LINE).collect();
    let wanted: Vec<f64> =
        labels.iter().zip(&heights).map(|(label, height)| label.y - height / 2.0).collect();
    let tops = apart(&wanted, &heights, top, bottom);
    for (label, top) in labels.iter().zip(tops) {
        if let Some(series) = label.series {
            canvas.mark(series, (x + 5.0, top + 8.0), "");
        }
        for (at, line) in label.lines.iter().enumerate() {
            canvas.text(x + 14.0, top + 12.0 + at as f64 * LINE, Anchor::Start, "", line);
        }
    }
}
