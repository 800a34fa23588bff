//! Charts of any data have finite coordinates, no overlapping labels, and no label beyond the edge.

use deepram_repro::chart::{Axis, Bars, Chart, Drawing, Reference, Series};
use deepram_repro::svg::{NARROW, WIDE, draw};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec("[A-Za-zµ0-9<&]{1,14}", 1..5).prop_map(|words| words.join(" "))
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (-6.0..9.0f64).prop_map(|power| 10f64.powf(power)),
        2 => -1000.0..1000.0f64,
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ]
}

fn axis() -> impl Strategy<Value = Axis> {
    (name(), prop_oneof!["", "µs", "IPC of all-DRAM"], any::<bool>()).prop_map(|(title, unit, log)| Axis {
        title,
        unit,
        log,
    })
}

fn lines() -> impl Strategy<Value = Drawing> {
    let points = prop::collection::vec((value(), value()), 0..12);
    let series = (name(), points).prop_map(|(name, mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, points }
    });
    (axis(), axis(), prop::collection::vec(series, 0..9), any::<bool>())
        .prop_map(|(x, y, series, area)| Drawing::Lines { x, y, series, area })
}

fn points() -> impl Strategy<Value = Drawing> {
    let points = prop::collection::vec((value(), value()), 0..12);
    let series = (name(), points).prop_map(|(name, points)| Series { name, points });
    (axis(), axis(), prop::collection::vec(series, 0..4)).prop_map(|(x, y, series)| Drawing::Points {
        x,
        y,
        series,
    })
}

fn bars() -> impl Strategy<Value = Drawing> {
    (1..14usize, 1..6usize).prop_flat_map(|(groups, series)| {
        let values = prop::collection::vec(prop::option::weighted(0.9, value()), groups);
        let series = prop::collection::vec((name(), values), series);
        let groups = prop::collection::vec(name(), groups);
        (axis(), groups, series, any::<bool>()).prop_map(|(axis, groups, series, stacked)| Drawing::Bars {
            axis,
            groups,
            series: series.into_iter().map(|(name, values)| Bars { name, values }).collect(),
            stacked,
        })
    })
}

fn chart() -> impl Strategy<Value = Chart> {
    let reference = (name(), value()).prop_map(|(name, value)| Reference { name, value });
    (name(), prop_oneof![lines(), points(), bars()], prop::collection::vec(reference, 0..3))
        .prop_map(|(title, drawing, references)| Chart { about: title.clone(), title, drawing, references })
}

/// Returns every number in the attributes of the drawing.
fn check_numbers(element: &str) {
    let document = roxmltree::Document::parse(element).expect("well-formed");
    for node in document.descendants().filter(|node| node.is_element()) {
        for attribute in node.attributes() {
            let numbers = match attribute.name() {
                "x" | "y" | "x1" | "x2" | "y1" | "y2" | "cx" | "cy" | "r" | "width" | "height" => {
                    vec![attribute.value()]
                }
                "d" => attribute.value().split(['M', 'L', 'Z', ' ']).filter(|n| !n.is_empty()).collect(),
                _ => continue,
            };
            for number in numbers {
                let value: f64 = number.parse().expect("a number");
                // A plot is some hundred pixels wide, and all of its coordinates lie inside.
                assert!(value.is_finite() && value.abs() < 10_000.0, "{}={number}", attribute.name());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_chart_is_drawn_with_finite_numbers_and_text_apart(chart in chart()) {
        for width in [NARROW, WIDE] {
            let canvas = draw(&chart, width);
            prop_assert_eq!(canvas.width, width);
            prop_assert_eq!(canvas.faults(), Vec::<String>::new());
            check_numbers(&canvas.element("id", "wide", &chart.title, &chart.about));
        }
        let table = chart.table();
        prop_assert!(table.rows.iter().all(|row| row.len() == table.headings.len()));
    }
}

#[test]
fn text_upon_another_is_noticed() {
    use deepram_repro::svg::canvas::{Anchor, Canvas};
    let mut canvas = Canvas::new(100.0, 40.0);
    canvas.text(0.0, 20.0, Anchor::Start, "", "here");
    canvas.text(10.0, 20.0, Anchor::Start, "", "there");
    canvas.text(90.0, 20.0, Anchor::Start, "", "beyond");
    assert_eq!(canvas.faults().len(), 2, "{:?}", canvas.faults());
}
