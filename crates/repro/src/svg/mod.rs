//! Draws charts as inline SVG.
//!
//! A chart is drawn twice, for a narrow and a wide page, with text in the page's own font size. The
//! style sheet shows the drawing that fits.

mod axes;
mod bars;
mod bullet;
pub mod canvas;
mod lines;
pub mod scale;
pub mod text;

pub use bullet::bullet;
pub use canvas::Canvas;

use crate::chart::{Chart, Drawing};
use lines::Style;

/// Width on phones, in CSS pixels: 360 minus the page's margins.
pub const NARROW: f64 = 324.0;
/// Width on desktop screens, in CSS pixels.
pub const WIDE: f64 = 900.0;

/// Draws a chart in the given width, in CSS pixels.
#[must_use]
pub fn draw(chart: &Chart, width: f64) -> Canvas {
    let references = chart.references.as_slice();
    match &chart.drawing {
        Drawing::Lines { x, y, series, area } => {
            let style = if *area { Style::Areas } else { Style::Lines };
            lines::draw(&lines::Lines { x, y, series, references, style }, width)
        }
        Drawing::Points { x, y, series } => {
            lines::draw(&lines::Lines { x, y, series, references, style: Style::Points }, width)
        }
        Drawing::Bars { axis, groups, series, stacked } => {
            bars::draw(&bars::Bars { axis, groups, series, references, stacked: *stacked }, width)
        }
    }
}
