//! Bullet graph of our value against the expected value, small enough for a table row.

use super::canvas::Canvas;
use crate::claim::{Expected, Tolerance};

const WIDTH: f64 = 132.0;
const HEIGHT: f64 = 18.0;
/// The scale spans a quarter to four times the expected value.
const REACH: f64 = 4.0;

/// Draws a bullet graph on a logarithmic scale around the expected value: the tolerance as a band,
/// expected values as lines, our value as a diamond, or as an arrow beyond the scale. `None` for orders
/// and values that are not positive.
#[must_use]
pub fn bullet(expected: Expected, tolerance: Tolerance, ours: f64) -> Option<Canvas> {
    let slack = |value: f64| match tolerance {
        Tolerance::None => 0.0,
        Tolerance::Relative(share) => share * value,
        Tolerance::Absolute(slack) => slack,
    };
    let (low, high) = match expected {
        Expected::Value(value) => (value, value),
        Expected::Range(low, high) => (low, high),
        Expected::AtMost(most) => (0.0, most),
        Expected::AtLeast(least) => (least, f64::INFINITY),
        Expected::Rising => return None,
    };
    let centre = match expected {
        Expected::Range(..) => (low * high).sqrt(),
        Expected::AtMost(_) => high,
        _ => low,
    };
    if !(ours > 0.0 && ours.is_finite() && centre > 0.0 && centre.is_finite()) {
        return None;
    }
    let x = |value: f64| {
        let share = (value / centre).ln() / REACH.ln() / 2.0 + 0.5;
        (share * WIDTH).clamp(0.0, WIDTH)
    };
    let mut canvas = Canvas::new(WIDTH, HEIGHT);
    canvas.line((0.0, HEIGHT / 2.0), (WIDTH, HEIGHT / 2.0), "axis");
    let (from, to) = (x((low - slack(low)).max(1e-300)), x(high + slack(high)));
    canvas.rect((from, 3.0), ((to - from).max(2.0), HEIGHT - 6.0), "band", "");
    for end in [low, high] {
        if end > 0.0 && end.is_finite() {
            canvas.line((x(end), 1.0), (x(end), HEIGHT - 1.0), "expected");
        }
    }
    let at = x(ours).clamp(5.0, WIDTH - 5.0);
    let (middle, tip) = (HEIGHT / 2.0, 5.0);
    if ours > centre * REACH {
        canvas.path(&[(at - tip, 3.0), (at + tip, middle), (at - tip, HEIGHT - 3.0)], true, "ours");
    } else if ours < centre / REACH {
        canvas.path(&[(at + tip, 3.0), (at - tip, middle), (at + tip, HEIGHT - 3.0)], true, "ours");
    } else {
        let corners = [(at, middle - tip), (at + tip, middle), (at, middle + tip), (at - tip, middle)];
        canvas.path(&corners, true, "ours");
    }
    Some(canvas)
}
