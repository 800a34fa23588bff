//! The sensitivity study: a chart of the strongest parameters, a table of all.

use std::fmt::Write as _;

use super::escape;
use crate::chart::{Axis, Bars, Chart, Drawing};
use crate::number::{difference, plain};
use crate::sensitivity::Effects;

/// So many parameters are named as those that move most.
const STRONGEST: usize = 5;

pub(super) fn section(out: &mut String, effects: &Effects) {
    let strongest = &effects.rows[..effects.rows.len().min(STRONGEST)];
    out.push_str("<section aria-labelledby=\"sensitivity\">\n<h2 id=\"sensitivity\">Sensitivity</h2>\n");
    let names: Vec<String> = strongest.iter().map(|row| escape(&row.parameter.what)).collect();
    let _ = writeln!(
        out,
        "<p>One parameter at a time at the low and at the high end of its range, all others as they are. The \
         headlines move most with: {}.</p>",
        names.join("; ")
    );
    let chart = Chart {
        title: "What moves the headlines most".into(),
        about:
            "For the strongest parameters the greater of the two moves of each headline, in per cent of it."
                .into(),
        drawing: Drawing::Bars {
            axis: Axis::linear("move of the headline", "%"),
            groups: strongest.iter().map(|row| row.parameter.what.clone()).collect(),
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
    super::figures::figure(out, &chart, "sensitivity-chart");
    table(out, effects);
    out.push_str("</section>\n");
}

/// All parameters, the strongest first.
fn table(out: &mut String, effects: &Effects) {
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
            (format!("{} (low)", parameter.low), &row.low.figures),
            (format!("{} (base)", parameter.base), &effects.base),
            (format!("{} (high)", parameter.high), &row.high.figures),
        ];
        for (at, (value, figures)) in cases.iter().enumerate() {
            out.push_str("<tr>");
            if at == 0 {
                let _ = write!(
                    out,
                    "<th class=\"named\" scope=\"rowgroup\" rowspan=\"3\">{}<br/><span class=\"soft\">{}: {}</span></th>",
                    escape(&parameter.what),
                    escape(&parameter.key),
                    escape(&parameter.why)
                );
            }
            let _ = write!(out, "<td>{}</td>", escape(value));
            for headline in &effects.headlines {
                let of = |figures: &crate::Figures| figures.0.get(&headline.figure).copied();
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
