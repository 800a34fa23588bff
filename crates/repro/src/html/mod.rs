//! Renders the report as a single self-contained HTML page: no script, font or image from elsewhere. The
//! page is also well-formed XML, so that a test can parse it.

mod claims;
mod experiments;
mod sensitivity;

use std::fmt::Write as _;

use crate::chart::{Chart, Table};
use crate::claim::Verdict;
use crate::report::Report;

/// Escapes text for an HTML element or attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML does not allow control characters, and HTML would not show them.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The start of a page, up to and with the start of its body.
fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        escape(title),
        include_str!("style.css")
    )
}

/// CSS class of a verdict.
fn tone(verdict: Verdict) -> &'static str {
    match verdict {
        verdict if verdict.met() => "good",
        verdict if verdict.missed() => "bad",
        _ => "none",
    }
}

fn badge(verdict: Verdict, words: &str) -> String {
    format!(r#"<span class="verdict {}">{} {words}</span>"#, tone(verdict), verdict.sign())
}

/// Renders a page of charts and tables that is no report of a paper: a title, paragraphs about it, and sections, each
/// with its charts and then its tables.
#[must_use]
pub fn charts_page(title: &str, about: &[String], sections: &[ChartSection]) -> String {
    let mut out = head(title);
    let _ = writeln!(out, "<header>\n<h1>{}</h1>", escape(title));
    for paragraph in about {
        let _ = writeln!(out, "<p>{}</p>", escape(paragraph));
    }
    let _ = writeln!(out, "</header>\n{PATTERNS}<main>");
    for (number, section) in sections.iter().enumerate() {
        let _ = writeln!(
            out,
            "<section aria-labelledby=\"section-{number}\">\n<h2 id=\"section-{number}\">{}</h2>",
            escape(&section.title)
        );
        for (at, chart) in section.charts.iter().enumerate() {
            experiments::figure(&mut out, chart, &format!("chart-{number}-{at}"));
        }
        for table in &section.tables {
            let _ = writeln!(out, "<h3>{}</h3>", escape(&table.title));
            experiments::data(&mut out, table);
        }
        out.push_str("</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// A section of [`charts_page`].
#[derive(Debug, Clone, Default)]
pub struct ChartSection {
    /// Title.
    pub title: String,
    /// Charts.
    pub charts: Vec<Chart>,
    /// Tables.
    pub tables: Vec<Table>,
}

/// Renders the whole page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut out = head(&format!("{}: reproduction", report.title));
    let _ = writeln!(
        out,
        "<a class=\"skip\" href=\"#claims\">To the claims</a>\n<header>\n<h1>{}</h1>\n<p>{}</p>",
        escape(&report.title),
        escape(&report.about)
    );
    if report.quick {
        out.push_str(
            "<p class=\"notice\">Quick runs, to check that everything works. The verdicts are not \
             meaningful: run without --quick.</p>\n",
        );
    }
    let _ = writeln!(
        out,
        "<p class=\"soft\">deepram {}, seed {}, {} simulations. results.json contains the same \
         values.</p>\n</header>",
        escape(&report.version),
        report.seed,
        report.runs.len()
    );
    out.push_str(PATTERNS);
    out.push_str("<main>\n");
    summary(&mut out, report);
    contents(&mut out, report);
    claims::table(&mut out, report);
    experiments::sections(&mut out, report);
    if let Some(effects) = &report.sensitivity {
        sensitivity::section(&mut out, effects);
    }
    runs(&mut out, report);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn summary(out: &mut String, report: &Report) {
    let count = |verdict: Verdict| report.rows.iter().filter(|row| row.verdict == verdict).count();
    let shown: Vec<Verdict> = Verdict::ALL.into_iter().filter(|&verdict| count(verdict) > 0).collect();
    let _ = writeln!(out, "<section aria-label=\"Summary\">\n<ul class=\"tiles\">");
    for &verdict in &shown {
        let _ = writeln!(out, "<li><b>{}</b>{}</li>", count(verdict), badge(verdict, verdict.words()));
    }
    out.push_str("</ul>\n<div class=\"bar\" aria-hidden=\"true\">");
    for &verdict in &shown {
        let share = count(verdict) as f64 / report.rows.len().max(1) as f64 * 100.0;
        let _ = write!(out, r#"<span class="{}" style="width:{share:.2}%"></span>"#, tone(verdict));
    }
    let missed: Vec<String> = report
        .rows
        .iter()
        .filter(|row| row.verdict.missed())
        .map(|row| format!("<a href=\"#claim-{0}\">{0}</a>", escape(&row.id)))
        .collect();
    out.push_str("</div>\n");
    if !missed.is_empty() {
        let _ = writeln!(out, "<p>Missed claims: {}.</p>", missed.join(", "));
    }
    out.push_str("</section>\n");
}

fn contents(out: &mut String, report: &Report) {
    out.push_str("<nav aria-label=\"Contents\"><ul>\n<li><a href=\"#claims\">Claims</a></li>\n");
    for section in report.experiments.iter().filter(|section| section.outcome.is_some()) {
        let _ = writeln!(
            out,
            "<li><a href=\"#experiment-{}\">{}</a></li>",
            escape(&section.id),
            escape(&section.title)
        );
    }
    if report.sensitivity.is_some() {
        out.push_str("<li><a href=\"#sensitivity\">Sensitivity</a></li>\n");
    }
    out.push_str("<li><a href=\"#runs\">Runs</a></li>\n</ul></nav>\n");
}

fn runs(out: &mut String, report: &Report) {
    out.push_str("<section aria-labelledby=\"runs\">\n<h2 id=\"runs\">Runs</h2>\n");
    let _ = writeln!(
        out,
        "<p>Each simulation is listed once, with the digest of its resolved configuration. results.json contains \
         all metrics.</p>\n<details><summary>{} runs</summary>\n\
         <div class=\"scroll\" role=\"region\" aria-label=\"Runs\" tabindex=\"0\">\n<table class=\"data\">\n\
         <thead><tr><th scope=\"col\">run</th><th scope=\"col\">digest</th><th scope=\"col\">procedure</th></tr></thead>\n<tbody>",
        report.runs.len()
    );
    for run in &report.runs {
        let short: String = run.digest.chars().take(16).collect();
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"mono\">{short}</td><td>{}</td></tr>",
            escape(&run.name),
            escape(&run.procedure)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n</section>\n");
}

/// Fill patterns, distinguishable without colour.
const PATTERNS: &str = r#"<svg class="patterns" aria-hidden="true"><defs>
<pattern id="p1" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" class="b1"/><path class="hatch" d="M-1 1L1 -1M0 6L6 0M5 7L7 5"/></pattern>
<pattern id="p2" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" class="b2"/><path class="hatch" d="M2.5 0L2.5 5"/></pattern>
<pattern id="p3" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" class="b3"/><path class="hatch" d="M-1 5L1 7M0 0L6 6M5 -1L7 1"/></pattern>
<pattern id="p4" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" class="b4"/><path class="hatch" d="M0 2.5L5 2.5"/></pattern>
<pattern id="p5" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" class="b5"/><path class="hatch" d="M0 3L6 3M3 0L3 6"/></pattern>
<pattern id="p6" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" class="b6"/><path class="hatch" d="M0 0L8 8M0 8L8 0"/></pattern>
<pattern id="p7" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" class="b7"/><path class="hatch" d="M2 2L3 2M2 3L3 3"/></pattern>
</defs></svg>
"#;
