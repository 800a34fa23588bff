//! Axes, legend and label placement, shared by all charts.

use super::canvas::{Anchor, Canvas, LINE, TEXT};
use super::scale::Scale;
use super::text;
use crate::number::tick;

/// Symbol of a series in the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegendSymbol {
    /// A line with its mark.
    Line,
    /// A filled box.
    Box,
}

/// Draws the legend from `top`, in as many lines as it needs, and returns its bottom edge.
pub(super) fn legend(canvas: &mut Canvas, names: &[&str], key: LegendSymbol, top: f64) -> f64 {
    let (mut x, mut y) = (0.0, top + LINE);
    for (at, name) in names.iter().enumerate() {
        let label = text::wrap(name, TEXT, canvas.width - 32.0, 1).pop().unwrap_or_default();
        let wide = 26.0 + text::width(&label, TEXT) + 14.0;
        if x > 0.0 && x + wide - 14.0 > canvas.width {
            x = 0.0;
            y += LINE + 3.0;
        }
        let class = at % super::canvas::SHAPES;
        match key {
            LegendSymbol::Line => {
                canvas.line((x, y - 4.0), (x + 22.0, y - 4.0), &format!("stroke s{class}"));
                canvas.mark(at, (x + 11.0, y - 4.0), "");
            }
            LegendSymbol::Box => {
                canvas.rect((x + 3.0, y - 11.0), (16.0, 12.0), &format!("fill s{class}"), "")
            }
        }
        canvas.text(x + 26.0, y, Anchor::Start, "", &label);
        x += wide;
    }
    y + 8.0
}

/// Draws the horizontal axis: ticks, labels that do not overlap, title, and grid lines up to `top`.
pub(super) fn bottom_axis(canvas: &mut Canvas, scale: &Scale, top: f64, bottom: f64, title: &str) {
    let mut free = f64::NEG_INFINITY;
    let ticks = scale.ticks(64.0);
    for value in ticks {
        let Some(x) = scale.at(value) else { continue };
        canvas.line((x, top), (x, bottom), "grid");
        let label = tick(value);
        let half = text::width(&label, TEXT) / 2.0;
        // A label at the end of the axis moves inwards, to stay inside the drawing.
        let middle = x.clamp(half, (canvas.width - half).max(half));
        if middle - half >= free {
            canvas.text(middle, bottom + 18.0, Anchor::Middle, "tick", &label);
            free = middle + half + 6.0;
        }
    }
    canvas.line((scale.range.0, bottom), (scale.range.1, bottom), "axis");
    let (left, right) = scale.range;
    let most = canvas.width;
    for (at, line) in text::wrap(title, TEXT, most, 2).into_iter().enumerate() {
        let half = text::width(&line, TEXT) / 2.0;
        let middle = ((left + right) / 2.0).clamp(half, (most - half).max(half));
        canvas.text(middle, bottom + 38.0 + at as f64 * LINE, Anchor::Middle, "title", &line);
    }
}

/// Height of [`bottom_axis`] below the axis line.
pub(super) fn bottom_height(title: &str, width: f64) -> f64 {
    44.0 + (text::wrap(title, TEXT, width, 2).len().saturating_sub(1)) as f64 * LINE
}

/// Moves labels apart vertically, in the order of their wanted positions, within `top` and `bottom`
/// where the space suffices. Returns the top of each label.
pub(super) fn apart(wanted: &[f64], heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut tops = wanted.to_vec();
    let mut free = top;
    for &at in &order {
        tops[at] = tops[at].max(free);
        free = tops[at] + heights[at];
    }
    let mut limit = bottom;
    for &at in order.iter().rev() {
        tops[at] = tops[at].min(limit - heights[at]);
        limit = tops[at];
    }
    // Labels pushed above the top move down again, past the bottom if necessary.
    let mut free = top;
    for &at in &order {
        tops[at] = tops[at].max(free);
        free = tops[at] + heights[at];
    }
    tops
}
