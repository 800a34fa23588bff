//! Renders the sensitivity study: a chart of the strongest parameters and a table of all.

use std::fmt::Write as _;

use super::escape;
use crate::chart::{Axis, Bars, Chart, Drawing};
use crate::number::{difference, plain};
use crate::sensitivity::SensitivityResult;

/// Number of parameters in the chart and the summary.
const STRONGEST: usize = 5;

pub(super) fn section(out: &mut String, effects: &SensitivityResult) {
    let strongest = &effects.rows[..effects.rows.len().min(STRONGEST)];
    out.push_str("<section aria-labelledby=\"sensitivity\">\n<h2 id=\"sensitivity\">Sensitivity</h2>\n");
    let names: Vec<String> = strongest.iter().map(|row| escape(&row.parameter.description)).collect();
    let _ = writeln!(
        out,
        "<p>Each parameter is set to the low and the high end of its range, all others to their base \
         value. The strongest parameters, by mean change of the values shown: {}.</p>",
        names.join("; ")
    );
    let chart = Chart {
        title: "Strongest parameters".into(),
        about: "For each parameter, the greater relative change of each value at the two ends of its range."
            .into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("relative change", "%"),
            groups: strongest.iter().map(|row| row.parameter.description.clone()).collect(),
            series: effects
                .headlines
                .iter()
                .enumerate()
                .map(|(at, headline)| {
                    Bars::new(&headline.title, strongest.iter().map(|row| row.effects[at] * 100.0).collect())
                })
                .collect(),
            stacked: false,
        },
        references: Vec::new(),
    };
    super::experiments::figure(out, &chart, "sensitivity-chart");
    table(out, effects);
    out.push_str("</section>\n");
}

/// Renders all parameters, strongest first.
fn table(out: &mut String, effects: &SensitivityResult) {
    out.push_str(
        "<div class=\"scroll\" role=\"region\" aria-label=\"All parameters\" tabindex=\"0\">\n\
         <table class=\"data\">\n<thead><tr><th scope=\"col\">parameter</th><th scope=\"col\">value</th>",
    );
    for headline in &effects.headlines {
        let _ = write!(out, "<th scope=\"col\" class=\"number\">{}</th>", escape(&headline.title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &effects.rows {
        let parameter = &row.parameter;
        let cases = [
            (format!("{} (low)", parameter.low), &row.low.metrics),
            (format!("{} (base)", parameter.base), &effects.base),
            (format!("{} (high)", parameter.high), &row.high.metrics),
        ];
        for (at, (value, figures)) in cases.iter().enumerate() {
            out.push_str("<tr>");
            if at == 0 {
                let _ = write!(
                    out,
                    "<th class=\"named\" scope=\"rowgroup\" rowspan=\"3\">{}<br/><span class=\"soft\">{}: {}</span></th>",
                    escape(&parameter.description),
                    escape(&parameter.key),
                    escape(&parameter.why)
                );
            }
            let _ = write!(out, "<td>{}</td>", escape(value));
            for headline in &effects.headlines {
                let of = |figures: &crate::Metrics| figures.0.get(&headline.metric).copied();
                let (now, base) = (of(figures), of(&effects.base));
                let moved = match (now, base) {
                    (Some(now), Some(base)) if at != 1 && base != 0.0 => {
                        format!(" ({})", difference((now - base) / base.abs()))
                    }
                    _ => String::new(),
                };
                let now = now.map_or_else(|| "–".into(), plain);
                let _ = write!(out, "<td class=\"number\">{now}{moved}</td>");
            }
            out.push_str("</tr>\n");
        }
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}
