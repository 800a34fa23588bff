//! Renders charts and tables as a page of their own.

use std::fmt::Write as _;

use super::experiments::{data, figure};
use super::{PATTERNS, escape, head};
use crate::chart::{Chart, Table};

/// A page of charts and tables.
#[derive(Debug, Clone)]
pub struct PlainPage {
    /// Title.
    pub title: String,
    /// Paragraphs below the title.
    pub notes: Vec<String>,
    /// Charts, each followed by its data.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
}

/// Renders a page of charts and tables, self-contained and well-formed like [`super::page`].
#[must_use]
pub fn plain_page(page: &PlainPage) -> String {
    let mut out = head(&page.title);
    let _ = writeln!(out, "<header>\n<h1>{}</h1>", escape(&page.title));
    for note in &page.notes {
        let _ = writeln!(out, "<p>{}</p>", escape(note));
    }
    let _ = writeln!(out, "</header>\n{PATTERNS}<main>\n<section>");
    for (at, chart) in page.charts.iter().enumerate() {
        figure(&mut out, chart, &format!("chart-{at}"));
    }
    out.push_str("</section>\n");
    for table in &page.tables {
        let _ = writeln!(out, "<section>\n<h2>{}</h2>", escape(&table.title));
        data(&mut out, table);
        out.push_str("</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}
