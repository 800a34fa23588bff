//! SVG drawing surface that records the bounding box of each text, so that overlaps can be found.
//!
//! Colours, strokes and patterns are defined by the style sheet; marks carry only classes. Classes `s0`
//! to `s7` are series.

use std::fmt::Write as _;

use super::text;

/// Font size of all text.
pub const TEXT: f64 = 12.0;
/// Line height.
pub const LINE: f64 = 15.0;

/// Which point of a text its coordinate refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Left end.
    Start,
    /// Middle.
    Middle,
    /// Right end.
    End,
}

/// Bounding box of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextBox {
    /// The text.
    pub text: String,
    /// Left, top, right, bottom.
    pub edges: [f64; 4],
}

impl TextBox {
    /// Whether two boxes share more than an edge.
    #[must_use]
    pub fn overlaps(&self, other: &TextBox) -> bool {
        let ([l, t, r, b], [left, top, right, bottom]) = (self.edges, other.edges);
        l + 0.1 < right && left + 0.1 < r && t + 0.1 < bottom && top + 0.1 < b
    }
}

/// A drawing in progress.
#[derive(Debug, Clone)]
pub struct Canvas {
    /// Width in CSS pixels.
    pub width: f64,
    /// Height in CSS pixels.
    pub height: f64,
    body: String,
    /// Text is drawn on top of everything else.
    labels: String,
    /// Bounding boxes of all texts.
    pub texts: Vec<TextBox>,
}

/// Formats a coordinate with a precision of a tenth of a pixel.
fn n(x: f64) -> String {
    let text = format!("{x:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

impl Canvas {
    /// Creates an empty drawing.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new(), labels: String::new(), texts: Vec::new() }
    }

    /// Draws text on its base line.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, content: &str) {
        let wide = text::width(content, TEXT);
        let (left, name) = match anchor {
            Anchor::Start => (x, "start"),
            Anchor::Middle => (x - wide / 2.0, "middle"),
            Anchor::End => (x - wide, "end"),
        };
        let edges = [left, y - 10.0, left + wide, y + 3.0];
        self.texts.push(TextBox { text: content.into(), edges });
        let content = crate::html::escape(content);
        let _ = writeln!(
            self.labels,
            r#"<text x="{}" y="{}" text-anchor="{name}" class="{class}">{content}</text>"#,
            n(x),
            n(y)
        );
    }

    /// Draws text upwards along a vertical line, centred at `y`.
    pub fn upright(&mut self, x: f64, y: f64, class: &str, content: &str) {
        let wide = text::width(content, TEXT);
        let edges = [x - 10.0, y - wide / 2.0, x + 3.0, y + wide / 2.0];
        self.texts.push(TextBox { text: content.into(), edges });
        let (x, y, content) = (n(x), n(y), crate::html::escape(content));
        let _ = writeln!(
            self.labels,
            r#"<text transform="translate({x} {y}) rotate(-90)" text-anchor="middle" class="{class}">{content}</text>"#,
        );
    }

    /// Draws a straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = writeln!(
            self.body,
            r#"<line x1="{}" y1="{}" x2="{}" y2="{}" class="{class}"/>"#,
            n(from.0),
            n(from.1),
            n(to.0),
            n(to.1)
        );
    }

    /// Draws a rectangle; `title` is its tooltip.
    pub fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str, title: &str) {
        let shape = format!(
            r#"<rect x="{}" y="{}" width="{}" height="{}" class="{class}""#,
            n(x),
            n(y),
            n(width.max(0.0)),
            n(height.max(0.0))
        );
        self.close(&shape, "rect", title);
    }

    /// Draws a path through points, filled if `closed`.
    pub fn path(&mut self, points: &[(f64, f64)], closed: bool, class: &str) {
        if points.is_empty() {
            return;
        }
        let steps: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", n(*x), n(*y))).collect();
        let end = if closed { "Z" } else { "" };
        let _ = writeln!(self.body, r#"<path d="M{}{end}" class="{class}"/>"#, steps.join("L"));
    }

    /// Draws the mark of a series at a point; each series has its own shape.
    pub fn mark(&mut self, series: usize, (x, y): (f64, f64), title: &str) {
        let class = format!("mark s{}", series % SHAPES);
        let polygon = |corners: &[(f64, f64)]| {
            let corners: Vec<String> =
                corners.iter().map(|(dx, dy)| format!("{} {}", n(x + dx), n(y + dy))).collect();
            format!(r#"<path d="M{}Z" class="{class}""#, corners.join("L"))
        };
        let (name, shape) = match series % SHAPES {
            0 => ("circle", format!(r#"<circle cx="{}" cy="{}" r="4" class="{class}""#, n(x), n(y))),
            1 => ("path", polygon(&[(-3.8, -3.8), (3.8, -3.8), (3.8, 3.8), (-3.8, 3.8)])),
            2 => ("path", polygon(&[(0.0, -5.2), (4.8, 3.6), (-4.8, 3.6)])),
            3 => ("path", polygon(&[(0.0, -5.4), (5.4, 0.0), (0.0, 5.4), (-5.4, 0.0)])),
            4 => ("path", polygon(&[(0.0, 5.2), (4.8, -3.6), (-4.8, -3.6)])),
            5 => ("path", polygon(&[(-5.0, -2.0), (5.0, -2.0), (5.0, 2.0), (-5.0, 2.0)])),
            6 => ("path", polygon(&[(-2.0, -5.0), (2.0, -5.0), (2.0, 5.0), (-2.0, 5.0)])),
            _ => ("path", polygon(&[(-4.8, 0.0), (3.6, -4.8), (3.6, 4.8)])),
        };
        self.close(&shape, name, title);
    }

    fn close(&mut self, shape: &str, name: &str, title: &str) {
        if title.is_empty() {
            let _ = writeln!(self.body, "{shape}/>");
        } else {
            let _ = writeln!(self.body, "{shape}><title>{}</title></{name}>", crate::html::escape(title));
        }
    }

    /// The drawing as an SVG element with a name and a description for screen readers. `id` must be
    /// unique in the page.
    #[must_use]
    pub fn element(&self, id: &str, class: &str, title: &str, about: &str) -> String {
        let (w, h) = (n(self.width), n(self.height));
        format!(
            concat!(
                r#"<svg class="{}" width="{}" height="{}" viewBox="0 0 {} {}" role="img" "#,
                r#"aria-labelledby="{}-t {}-d"><title id="{}-t">{}</title><desc id="{}-d">{}</desc>"#,
                "\n{}{}</svg>\n"
            ),
            class,
            w,
            h,
            w,
            h,
            id,
            id,
            id,
            crate::html::escape(title),
            id,
            crate::html::escape(about),
            self.body,
            self.labels
        )
    }

    /// The drawing as a decorative element, hidden from screen readers because the text beside it says
    /// the same.
    #[must_use]
    pub fn decoration(&self, class: &str) -> String {
        let (w, h) = (n(self.width), n(self.height));
        format!(
            r#"<svg class="{class}" width="{w}" height="{h}" viewBox="0 0 {w} {h}" aria-hidden="true">{}{}</svg>"#,
            self.body, self.labels
        )
    }

    /// Texts that overlap another text or the edge; empty for a correct drawing.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (at, one) in self.texts.iter().enumerate() {
            let [l, t, r, b] = one.edges;
            if l < -0.5 || t < -0.5 || r > self.width + 0.5 || b > self.height + 0.5 {
                faults.push(format!("{:?} leaves the drawing: {:?}", one.text, one.edges));
            }
            for other in &self.texts[at + 1..] {
                if one.overlaps(other) {
                    faults.push(format!("{:?} lies on {:?}", one.text, other.text));
                }
            }
        }
        faults
    }
}

/// Number of mark shapes and series colours.
pub const SHAPES: usize = 8;
