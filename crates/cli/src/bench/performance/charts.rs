//! The charts of the performance page as SVG files, readable on light and on dark backgrounds.

use deepram_repro::chart::{Axis, Bars, Chart, Drawing, Reference};
use deepram_repro::svg::{WIDE, draw};

/// A chart and the stem of its file name.
pub(super) struct NamedChart {
    pub(super) name: &'static str,
    pub(super) chart: Chart,
}

impl NamedChart {
    pub(super) fn file_name(&self) -> String {
        format!("{}.svg", self.name)
    }
}

/// Bars in groups; the chart is omitted without groups.
pub(super) fn bars(
    name: &'static str,
    title: &str,
    axis: Axis,
    groups: Vec<String>,
    series: Vec<Bars>,
    reference: Option<(&str, f64)>,
) -> Option<NamedChart> {
    let references = reference.map(|(name, value)| Reference { name: name.into(), value });
    let chart = Chart {
        title: title.into(),
        about: String::new(),
        references: references.into_iter().collect(),
        drawing: Drawing::Bars { axis, groups: groups.clone(), series, stacked: false },
    };
    (!groups.is_empty()).then_some(NamedChart { name, chart })
}

/// Colours and text of a chart that stands alone. The colours follow the colour scheme of the reader.
const STYLE: &str = "\
<style>
svg { --page: #fff; --ink: #1b1f24; --soft: #57606a; --grid: #e4e8ec; --c0: #0063a6; --c1: #c24b00; --c2: #00795a; --c3: #8d3a86;
  --c4: #2e94c9; --c5: #8a6a00; --c6: #57606a; --c7: #b3124f; background: var(--page); font: 12px sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --page: #0f1318; --ink: #e6edf3; --soft: #9da7b1; --grid: #272e37; --c0: #5aaeee; --c1: #ff9655; --c2: #3fd0a4;
    --c3: #dd94d7; --c4: #9bd4f5; --c5: #e2bd4c; --c6: #a9b3bd; --c7: #ff7ba9; }
}
text { fill: var(--ink); } .tick, .title, .none { fill: var(--soft); } .title { font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); }
.reference { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 2 4; }
.s0 { fill: var(--c0); } .s1 { fill: var(--c1); } .s2 { fill: var(--c2); } .s3 { fill: var(--c3); }
.s4 { fill: var(--c4); } .s5 { fill: var(--c5); } .s6 { fill: var(--c6); } .s7 { fill: var(--c7); }
</style>
";

/// The chart as an SVG file without external parts.
pub(super) fn svg(chart: &NamedChart) -> String {
    let NamedChart { name, chart } = chart;
    let element = draw(chart, WIDE).element(name, "chart", &chart.title, &chart.about);
    let element = element.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    element.replacen("</desc>\n", &format!("</desc>\n{STYLE}"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stands_alone_in_both_colour_schemes() {
        let groups = vec!["one".to_owned(), "two".to_owned()];
        let series = vec![Bars::new("ours", vec![1.0, 2.0]), Bars::new("theirs", vec![3.0, 4.0])];
        let chart = bars("x", "A title", Axis::linear("rate", "k/s"), groups, series, Some(("equal", 1.0)));
        let chart = chart.expect("it has groups");
        let text = svg(&chart);
        assert!(text.starts_with("<svg xmlns=") && text.contains("prefers-color-scheme: dark"), "{text}");
        assert!(!text.contains("url(") && !text.contains("href"), "no external assets: {text}");
        assert_eq!(draw(&chart.chart, WIDE).faults(), Vec::<String>::new());
        assert!(bars("x", "", Axis::linear("", ""), Vec::new(), Vec::new(), None).is_none());
    }
}
