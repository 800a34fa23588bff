//! Draws horizontal bars, side by side or stacked, so that group names stay horizontal however many
//! there are.

use super::axes::{LegendSymbol, bottom_axis, bottom_height, legend};
use super::canvas::{Anchor, Canvas, LINE, SHAPES, TEXT};
use super::scale::Scale;
use super::text;
use crate::chart::{Axis, Bars as Series, Reference};
use crate::number::{plain, with_unit};

/// Input of the drawing.
pub(super) struct Bars<'a> {
    pub(super) axis: &'a Axis,
    pub(super) groups: &'a [String],
    pub(super) series: &'a [Series],
    pub(super) references: &'a [Reference],
    pub(super) stacked: bool,
}

/// Height of a bar.
const BAR: f64 = 16.0;
/// Space between groups.
const GAP: f64 = 12.0;

impl Bars<'_> {
    fn value(&self, series: usize, group: usize) -> Option<f64> {
        let value = self.series.get(series)?.values.get(group).copied().flatten()?;
        (value.is_finite() && !(self.stacked && value < 0.0)).then_some(value)
    }

    /// Sum of a group's bars.
    fn sum(&self, group: usize) -> f64 {
        (0..self.series.len()).filter_map(|series| self.value(series, group)).sum()
    }

    fn largest(&self) -> Vec<f64> {
        let groups = 0..self.groups.len();
        if self.stacked {
            return groups.map(|group| self.sum(group)).collect();
        }
        groups.flat_map(|group| (0..self.series.len()).filter_map(move |s| self.value(s, group))).collect()
    }
}

pub(super) fn draw(bars: &Bars<'_>, width: f64) -> Canvas {
    let mut canvas = Canvas::new(width, 0.0);
    let names: Vec<&str> = bars.series.iter().map(|series| series.name.as_str()).collect();
    let mut top = legend(&mut canvas, &names, LegendSymbol::Box, 0.0) + 6.0;
    // Group names stand beside the bars if there is room, otherwise above them.
    let beside = width >= 500.0;
    let name_width = |most: f64| {
        let wide = |name: &String| {
            text::wrap(name, TEXT, most, 2).iter().map(|l| text::width(l, TEXT)).fold(0.0, f64::max)
        };
        bars.groups.iter().map(wide).fold(0.0, f64::max)
    };
    let left = if beside { name_width(width * 0.25) + 10.0 } else { 2.0 };
    let largest = bars.largest();
    let value_width =
        largest.iter().map(|&value| text::width(&plain(value), TEXT)).fold(text::width("–", TEXT), f64::max)
            + 8.0;
    let references = bars.references.iter().map(|reference| reference.value);
    let right = (width - value_width).max(left + 40.0);
    // Stacked parts have no meaning on a logarithmic axis.
    let log = bars.axis.log && !bars.stacked;
    let scale = Scale::new(largest.iter().copied().chain(references), log, !log, (left, right));

    top += reference_names(&mut canvas, bars, &scale, top);
    let rows = if bars.stacked { 1 } else { bars.series.len().max(1) };
    let tall = rows as f64 * BAR;
    let above =
        |group: &str| if beside { 0.0 } else { text::wrap(group, TEXT, width, 2).len() as f64 * LINE + 2.0 };
    let tall_name = |group: &str| {
        if beside { text::wrap(group, TEXT, width * 0.25, 2).len() as f64 * LINE } else { 0.0 }
    };
    let heights: Vec<f64> =
        bars.groups.iter().map(|group| above(group) + tall.max(tall_name(group)) + GAP).collect();
    let bottom = top + heights.iter().sum::<f64>();
    canvas.height = bottom + bottom_height(&bars.axis.label(), width);
    bottom_axis(&mut canvas, &scale, top, bottom, &bars.axis.label());

    let mut y = top + GAP / 2.0;
    for ((group, name), height) in bars.groups.iter().enumerate().zip(&heights) {
        if beside {
            let lines = text::wrap(name, TEXT, width * 0.25, 2);
            let first = y + (height - GAP - lines.len() as f64 * LINE) / 2.0 + 11.0;
            for (at, line) in lines.iter().enumerate() {
                canvas.text(left - 8.0, first + at as f64 * LINE, Anchor::End, "", line);
            }
        } else {
            for (at, line) in text::wrap(name, TEXT, width, 2).iter().enumerate() {
                canvas.text(0.0, y + 11.0 + at as f64 * LINE, Anchor::Start, "", line);
            }
        }
        if bars.stacked {
            stack(&mut canvas, bars, &scale, group, y + above(name));
        } else {
            group_of(&mut canvas, bars, &scale, group, y + above(name));
        }
        y += height;
    }
    for reference in bars.references {
        if let Some(x) = scale.at(reference.value) {
            canvas.line((x, top), (x, bottom), "reference");
        }
    }
    canvas
}

/// Left edge of the bars.
fn origin(scale: &Scale) -> f64 {
    scale.at(0.0).unwrap_or(scale.range.0)
}

fn group_of(canvas: &mut Canvas, bars: &Bars<'_>, scale: &Scale, group: usize, top: f64) {
    for (at, series) in bars.series.iter().enumerate() {
        let y = top + at as f64 * BAR;
        let value = bars.value(at, group);
        let Some((value, end)) = value.and_then(|value| Some((value, scale.at(value)?))) else {
            canvas.text(origin(scale) + 4.0, y + 12.0, Anchor::Start, "none", "–");
            continue;
        };
        let from = origin(scale);
        let title = format!("{}, {}: {}", bars.groups[group], series.name, with_unit(value, &bars.axis.unit));
        let class = format!("fill s{}", at % SHAPES);
        canvas.rect((from.min(end), y + 1.0), ((end - from).abs(), BAR - 3.0), &class, &title);
        canvas.text(from.max(end) + 4.0, y + 12.0, Anchor::Start, "value", &plain(value));
    }
}

fn stack(canvas: &mut Canvas, bars: &Bars<'_>, scale: &Scale, group: usize, top: f64) {
    let mut from = 0.0;
    let mut end = origin(scale);
    for (at, series) in bars.series.iter().enumerate() {
        let Some(value) = bars.value(at, group).filter(|&value| value > 0.0) else { continue };
        let to = scale.at(from + value).unwrap_or(end);
        let title = format!("{}, {}: {}", bars.groups[group], series.name, with_unit(value, &bars.axis.unit));
        canvas.rect((end, top + 1.0), (to - end, BAR - 3.0), &format!("fill s{}", at % SHAPES), &title);
        from += value;
        end = to;
    }
    canvas.text(end + 4.0, top + 12.0, Anchor::Start, "value", &plain(bars.sum(group)));
}

/// Draws the names of the references above the bars, one per line, and returns their height.
fn reference_names(canvas: &mut Canvas, bars: &Bars<'_>, scale: &Scale, top: f64) -> f64 {
    let mut height = 0.0;
    for reference in bars.references {
        let Some(x) = scale.at(reference.value) else { continue };
        let label = text::wrap(&reference.name, TEXT, canvas.width, 1).pop().unwrap_or_default();
        let half = text::width(&label, TEXT) / 2.0;
        let middle = x.clamp(half, (canvas.width - half).max(half));
        canvas.text(middle, top + height + 11.0, Anchor::Middle, "", &label);
        height += LINE;
    }
    if height > 0.0 { height + 4.0 } else { 0.0 }
}
