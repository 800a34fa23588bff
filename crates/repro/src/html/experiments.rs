//! Renders experiments: charts, each with its data, and tables.

use std::fmt::Write as _;

use super::escape;
use crate::chart::{Chart, Table};
use crate::report::Report;
use crate::svg::{NARROW, WIDE, draw};

pub(super) fn sections(out: &mut String, report: &Report) {
    for section in &report.experiments {
        let Some(outcome) = &section.outcome else { continue };
        let id = escape(&section.id);
        let _ = writeln!(
            out,
            "<section aria-labelledby=\"experiment-{id}\">\n<h2 id=\"experiment-{id}\">{}</h2>\n<p>{}</p>",
            escape(&section.title),
            escape(&section.about)
        );
        for (at, chart) in outcome.charts.iter().enumerate() {
            figure(out, chart, &format!("{id}-{at}"));
        }
        for table in &outcome.tables {
            let _ = writeln!(out, "<h3>{}</h3>", escape(&table.title));
            data(out, table);
        }
        out.push_str("</section>\n");
    }
}

/// Renders a chart in both widths, followed by its data.
pub(super) fn figure(out: &mut String, chart: &Chart, id: &str) {
    let _ = writeln!(
        out,
        "<figure tabindex=\"0\" aria-labelledby=\"{id}-title\">\n<figcaption><h3 id=\"{id}-title\">{}</h3><p>{}</p></figcaption>",
        escape(&chart.title),
        escape(&chart.about)
    );
    for (width, class) in [(WIDE, "wide"), (NARROW, "narrow")] {
        let canvas = draw(chart, width);
        out.push_str(&canvas.element(&format!("{id}-{class}"), class, &chart.title, &chart.about));
    }
    let table = chart.table();
    out.push_str("<details><summary>Data as a table</summary>\n");
    data(out, &table);
    out.push_str("</details>\n</figure>\n");
}

/// Renders a table, which scrolls if it is wider than the page.
pub(super) fn data(out: &mut String, table: &Table) {
    let _ = writeln!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{}\" tabindex=\"0\">\n<table class=\"data\">\n<thead><tr>",
        escape(&table.title)
    );
    for (at, heading) in table.headings.iter().enumerate() {
        let class = if at > 0 && numeric(table, at) { " class=\"number\"" } else { "" };
        let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape(heading));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let _ = match at {
                0 => write!(out, "<th scope=\"row\">{}</th>", escape(cell)),
                at if numeric(table, at) => write!(out, "<td class=\"number\">{}</td>", escape(cell)),
                _ => write!(out, "<td class=\"mono\">{}</td>", escape(cell)),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Whether a column contains only numbers with short units.
fn numeric(table: &Table, column: usize) -> bool {
    let number = |cell: &String| {
        cell == "–" || cell.trim_start_matches(['−', '+', '±', '×']).starts_with(|c: char| c.is_ascii_digit())
    };
    table.rows.iter().filter_map(|row| row.get(column)).all(|cell| number(cell) && cell.len() < 16)
}
