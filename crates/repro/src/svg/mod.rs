//! Charts as inline SVG.
//!
//! A chart is drawn for a width in CSS pixels, with text of the page's own size: drawn once for phones and
//! once for desks, it is read well on both. The page shows the one that fits.

mod bars;
pub mod canvas;
mod gauge;
mod lines;
mod parts;
pub mod scale;
pub mod text;

pub use canvas::Canvas;
pub use gauge::gauge;

use crate::chart::{Chart, Drawing};

/// Width of a drawing for phones: 360 less the page's margins.
pub const NARROW: f64 = 324.0;
/// Width of a drawing for desks.
pub const WIDE: f64 = 900.0;

/// Draws a chart for a width.
#[must_use]
pub fn draw(chart: &Chart, width: f64) -> Canvas {
    let references = chart.references.as_slice();
    match &chart.drawing {
        Drawing::Lines { x, y, series, area } => {
            lines::draw(&lines::Lines { x, y, series, references, area: *area }, width)
        }
        Drawing::Bars { axis, groups, series, stacked } => {
            bars::draw(&bars::Bars { axis, groups, series, references, stacked: *stacked }, width)
        }
    }
}
