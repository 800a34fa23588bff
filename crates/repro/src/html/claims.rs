//! The table of claims.

use std::fmt::Write as _;

use super::{badge, escape};
use crate::claim::{Class, Verdict};
use crate::number::{difference, precise, with_unit};
use crate::report::{ClaimResult, Report};
use crate::svg::bullet;

pub(super) fn table(out: &mut String, report: &Report) {
    let synthetic = report.rows.iter().any(|row| row.synthetic);
    let synthetic =
        if synthetic { " S: our value comes from synthetic stand-ins for the paper's traces." } else { "" };
    let _ = write!(
        out,
        "<section aria-labelledby=\"claims\">\n<h2 id=\"claims\">Claims</h2>\n\
         <p class=\"soft\">Classes: E exact; M magnitude, within ±20 % (of a range, ±20 % at its ends); T trend or \
         order; calibrate: parameters were fitted to this value. H: the paper's value depends on hardware or guest \
         software that is not available here.{} The scale spans a quarter to four times the expected value; the band is \
         the tolerance, the diamond our value.</p>\n\
         <table class=\"claims cards\">\n<thead><tr><th scope=\"col\">claim</th><th scope=\"col\">class</th>\
         <th scope=\"col\" class=\"number\">paper</th><th scope=\"col\" class=\"number\">ours</th>\
         <th scope=\"col\" class=\"number\">difference</th><th scope=\"col\">scale</th>\
         <th scope=\"col\">verdict</th></tr></thead>\n<tbody>\n",
        synthetic
    );
    let mut group = None;
    for row in &report.rows {
        if group != Some(&row.experiment) {
            group = Some(&row.experiment);
            let title = report.experiments.iter().find(|section| section.id == row.experiment);
            let title = title.map_or(row.experiment.as_str(), |section| section.title.as_str());
            let _ = writeln!(
                out,
                "<tr class=\"group\"><th colspan=\"7\" scope=\"rowgroup\">{}</th></tr>",
                escape(title)
            );
        }
        one(out, row);
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn one(out: &mut String, row: &ClaimResult) {
    let scale = row.ours.and_then(|ours| bullet(row.expected, row.tolerance, ours));
    let scale = scale.map_or_else(String::new, |canvas| canvas.decoration("bullet"));
    let mut below = format!("{}; {}", row.id, row.source);
    if row.draft_only {
        below.push_str(" (earlier draft, not in the published text)");
    }
    let _ = write!(
        out,
        "<tr id=\"claim-{}\"><td>{}<span class=\"why\">{}</span>",
        escape(&row.id),
        escape(&row.statement),
        escape(&below)
    );
    if !row.note.is_empty() {
        let _ = write!(out, "<span class=\"why\">{}</span>", escape(&row.note));
    }
    if let Some(text) = row.reason_text() {
        let _ = write!(out, "<span class=\"why\"><b>Reason</b>: {}</span>", escape(&text));
    }
    if !row.why.is_empty() {
        let _ = write!(out, "<span class=\"why\">{}</span>", escape(&row.why));
    }
    let letters: String =
        row.letters().iter().map(|letter| format!(" <span class=\"tag\">{letter}</span>")).collect();
    let far = row.difference_words();
    // Keep a short value on one line.
    let keep = if row.paper.chars().count() <= 14 { " nowrap" } else { "" };
    let _ = writeln!(
        out,
        "</td><td class=\"tags\" data-label=\"class\"><span class=\"tag\">{}</span>{letters}</td>\
         <td class=\"number{keep}\" data-label=\"paper\">{}<br/><span class=\"soft\">{}</span></td>\
         <td class=\"number\" data-label=\"ours\">{}</td><td class=\"number\" data-label=\"difference\">{far}</td>\
         <td data-label=\"scale\">{scale}</td><td data-label=\"verdict\">{}</td></tr>",
        row.class.name(),
        escape(&row.paper),
        escape(&row.tolerance_words),
        escape(&row.ours_words()),
        badge(row.verdict, &row.verdict_words())
    );
}

impl ClaimResult {
    /// Our value as text, or all values of an order in the claim's order; a dash if there are none.
    #[must_use]
    pub fn ours_words(&self) -> String {
        match self.ours {
            Some(ours) if self.class == Class::Exact => {
                format!("{} {}", precise(ours), self.unit).trim_end().into()
            }
            Some(ours) => with_unit(ours, &self.unit),
            None if self.ordered.is_empty() => "–".into(),
            None => {
                let all: Vec<String> = self.ordered.iter().map(|&value| with_unit(value, "")).collect();
                format!("{} {}", all.join(", "), self.unit).trim_end().into()
            }
        }
    }

    /// The relative difference as text; a dash for a trend that holds, where it carries no information.
    #[must_use]
    pub fn difference_words(&self) -> String {
        let shown = self.difference.filter(|_| self.verdict != Verdict::TrendHolds);
        shown.map_or_else(|| "–".into(), difference)
    }
}
