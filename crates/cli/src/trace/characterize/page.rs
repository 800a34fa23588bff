//! The HTML page: the paper's charts, and more.

use std::collections::BTreeMap;

use deepram_repro::chart::{Axis, Bars, Chart, Drawing, Series};
use deepram_repro::html::{ChartSection, charts_page};
use deepram_trace::characterize::{
    AddressWindow, CapacityForHitRatio, Characterization, Distribution, SpatialClass, SpatialReport,
};

use super::{Getter, Trace};

/// Bytes of a MiB.
const MIB: f64 = 1048576.0;

pub(super) fn render(traces: &[Trace]) -> String {
    let names: Vec<&str> = traces.iter().map(|trace| trace.name.as_str()).collect();
    let page_bytes = traces.first().map_or(0, |trace| trace.figures.page_bytes);
    let about = format!("Characterisation of {}, in pages of {page_bytes} bytes.", names.join(", "));
    let sections = [
        section("Spatial locality", spatial(traces)),
        section("Temporal locality", temporal(traces)),
        section("Working set", working_set(traces)),
        section("Requests", requests(traces)),
    ];
    let sections: Vec<_> = sections.into_iter().filter(|section| !section.charts.is_empty()).collect();
    charts_page("Trace characterisation", &[about], &sections)
}

fn section(title: &str, charts: Vec<Chart>) -> ChartSection {
    ChartSection { title: title.into(), charts, tables: Vec::new() }
}

fn lines(title: &str, about: &str, (x, y): (Axis, Axis), series: Vec<Series>) -> Option<Chart> {
    let series: Vec<_> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    let drawing = Drawing::Lines { x, y, series, area: false };
    let chart = Chart { title: title.into(), about: about.into(), drawing, references: Vec::new() };
    let filled = matches!(&chart.drawing, Drawing::Lines { series, .. } if !series.is_empty());
    filled.then_some(chart)
}

/// A line for each trace.
fn by_trace(traces: &[Trace], points: impl Fn(&Characterization) -> Vec<(f64, f64)>) -> Vec<Series> {
    traces.iter().map(|trace| Series::new(&trace.name, points(&trace.figures))).collect()
}

/// Shares of the spatial classes, a chart for each setting and operation (figures 4 to 6).
fn spatial(traces: &[Trace]) -> Vec<Chart> {
    let with: Vec<_> = traces.iter().filter(|trace| !trace.figures.spatial.is_empty()).collect();
    let mut charts = Vec::new();
    for at in 0..with.first().map_or(0, |trace| trace.figures.spatial.len()) {
        let Some(setting) = with.first().and_then(|trace| trace.figures.spatial.get(at)).map(|s| s.setting)
        else {
            continue;
        };
        type Shares = Getter<SpatialReport, Option<[f64; 4]>>;
        let operations: [(&str, Shares); 3] =
            [("read", |s| s.read), ("write", |s| s.write), ("all", |s| s.all)];
        for (operation, shares) in operations {
            let series = SpatialClass::ALL.map(|class| Bars {
                name: class.name().into(),
                values: with
                    .iter()
                    .map(|trace| {
                        let report = trace.figures.spatial.get(at)?;
                        shares(report).map(|shares| 100.0 * shares[class as usize])
                    })
                    .collect(),
            });
            charts.push(Chart {
                title: format!(
                    "Breakdown of {operation} requests, stride {}, ROD {}",
                    setting.stride_pages, setting.rod
                ),
                about: format!(
                    "Each request is compared with {} before it; a stride has a gap of at most {} pages.",
                    setting.rod, setting.stride_pages
                ),
                drawing: Drawing::Bars {
                    axis: Axis::linear("share", "%"),
                    groups: with.iter().map(|trace| trace.name.clone()).collect(),
                    series: series.to_vec(),
                    stacked: true,
                },
                references: Vec::new(),
            });
        }
    }
    charts
}

/// Hit ratios by cache size, and cache sizes by hit ratio (figures 8 and 10).
fn temporal(traces: &[Trace]) -> Vec<Chart> {
    let hits = |ratio: fn(&deepram_trace::characterize::HitRatios) -> Option<f64>| {
        by_trace(traces, |figures| {
            figures
                .lru
                .iter()
                .filter_map(|point| Some((point.capacity_pages as f64, ratio(point)?)))
                .collect()
        })
    };
    let axes =
        || (Axis::log("stack distance, or LRU capacity", "pages"), Axis::linear("share of the accesses", ""));
    let mut charts: Vec<Chart> = [
        lines(
            "Cumulative stack distance of all accesses",
            "The hit ratio of an LRU cache of that capacity, over all accesses; a first access to a page is a miss.",
            axes(),
            hits(|point| point.all),
        ),
        lines(
            "Cumulative stack distance of writes",
            "All accesses move the stack; writes are counted.",
            axes(),
            hits(|point| point.write),
        ),
        lines(
            "Cumulative stack distance without first accesses",
            "Accesses to pages that were accessed before.",
            axes(),
            hits(|point| point.all_rereferences),
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let sizes: [(&str, Getter<CapacityForHitRatio, Option<u64>>); 2] =
        [("write", |point| point.write), ("all", |point| point.all)];
    for (operation, capacity) in sizes {
        let ratios = traces.iter().find(|trace| !trace.figures.capacity_for_hit_ratio.is_empty());
        let Some(ratios) = ratios.map(|trace| &trace.figures.capacity_for_hit_ratio) else { continue };
        let bars = ratios.iter().enumerate().map(|(at, ratio)| Bars {
            name: format!("{:.0} %", 100.0 * ratio.hit_ratio),
            values: traces
                .iter()
                .map(|trace| {
                    let pages = capacity(trace.figures.capacity_for_hit_ratio.get(at)?)?;
                    Some(pages as f64 * trace.figures.page_bytes as f64 / MIB)
                })
                .collect(),
        });
        charts.push(Chart {
            title: format!("Smallest LRU cache for a hit ratio, {operation} accesses"),
            about: "A hit ratio that no cache reaches, because of first accesses, has no bar.".into(),
            drawing: Drawing::Bars {
                axis: Axis::log("cache size", "MiB"),
                groups: traces.iter().map(|trace| trace.name.clone()).collect(),
                series: bars.collect(),
                stacked: false,
            },
            references: Vec::new(),
        });
    }
    charts.extend(traces.iter().filter_map(policies));
    charts
}

/// Miss ratios of the simulated policies of one trace.
fn policies(trace: &Trace) -> Option<Chart> {
    let mut by_policy: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for point in &trace.figures.policies {
        let size = point.capacity_bytes as f64 / MIB;
        if let Some(hits) = point.all {
            by_policy.entry(point.policy).or_default().push((size, 1.0 - hits));
        }
    }
    lines(
        &format!("Miss ratio of replacement policies, {}", trace.name),
        "Each point is a simulation.",
        (Axis::log("cache size", "MiB"), Axis::linear("miss ratio", "")),
        by_policy.into_iter().map(|(name, points)| Series::new(name, points)).collect(),
    )
}

/// Working sets, and accesses over the address space in the phases of each trace (figure 7).
fn working_set(traces: &[Trace]) -> Vec<Chart> {
    let mut charts = Vec::new();
    let mean = by_trace(traces, |figures| {
        let size = |pages: f64| pages * figures.page_bytes as f64 / MIB;
        figures.working_sets.iter().map(|set| (set.window_requests as f64, size(set.mean_pages))).collect()
    });
    charts.extend(lines(
        "Mean working set by window length",
        "Distinct pages of a window of requests.",
        (Axis::log("window", "requests"), Axis::log("working set", "MiB")),
        mean,
    ));
    for trace in traces {
        let Some(set) = trace.figures.working_sets.first() else { continue };
        let points = |pages: fn(&deepram_trace::characterize::WindowPages) -> u64| {
            let at = |kept: &deepram_trace::characterize::WindowPages| {
                let size = pages(kept) as f64 * trace.figures.page_bytes as f64 / MIB;
                ((kept.window * set.window_requests) as f64, size)
            };
            set.kept.iter().map(at).collect()
        };
        let series = vec![
            Series::new("all", points(|kept| kept.all)),
            Series::new("read", points(|kept| kept.read)),
            Series::new("write", points(|kept| kept.write)),
        ];
        charts.extend(area(lines(
            &format!("Working set over time, {}", trace.name),
            &format!("Distinct pages of windows of {} requests.", set.window_requests),
            (Axis::linear("request", ""), Axis::linear("working set", "MiB")),
            series,
        )));
        charts.extend(addresses(trace));
    }
    charts
}

/// Fills the area under each line, which has many points.
fn area(chart: Option<Chart>) -> Option<Chart> {
    let mut chart = chart?;
    if let Drawing::Lines { area, .. } = &mut chart.drawing {
        *area = true;
    }
    Some(chart)
}

/// Accesses by address, a chart for all accesses, reads and writes; devices follow each other.
fn addresses(trace: &Trace) -> Vec<Chart> {
    let distribution = &trace.figures.addresses;
    // Where each device begins on the axis, in pages.
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    for bin in distribution.phases.iter().flat_map(|window| &window.bins) {
        let end = ends.entry(bin.device).or_default();
        *end = (*end).max(bin.first_page.saturating_add(bin.pages));
    }
    let mut begin = 0.0;
    let begins: BTreeMap<u32, f64> = ends
        .into_iter()
        .map(|(device, end)| {
            let here = begin;
            begin += end as f64;
            (device, here)
        })
        .collect();
    let gib = trace.figures.page_bytes as f64 / (1024.0 * MIB);
    let points = |window: &AddressWindow, count: fn(u64, u64) -> u64| {
        let filled = window.bins.iter().filter(|bin| count(bin.reads, bin.writes) > 0);
        filled
            .map(|bin| {
                let start = begins.get(&bin.device).copied().unwrap_or(0.0);
                ((start + bin.first_page as f64) * gib, count(bin.reads, bin.writes) as f64)
            })
            .collect()
    };
    type Count = fn(u64, u64) -> u64;
    let operations: [(&str, Count); 3] =
        [("all", |reads, writes| reads + writes), ("read", |reads, _| reads), ("write", |_, writes| writes)];
    let chart = |(operation, count): (&str, Count)| {
        let series = distribution.phases.iter().map(|window| {
            Series::new(&format!("from request {}", window.first_request), points(window, count))
        });
        lines(
            &format!("Accesses over the address space, {operation}, {}", trace.name),
            &format!(
                "Page accesses of the last {} requests of each of five phases, in at most 256 bins a device.",
                distribution.window_requests
            ),
            (Axis::linear("address", "GiB"), Axis::log("page accesses", "")),
            series.collect(),
        )
    };
    operations.into_iter().filter_map(chart).collect()
}

/// Read/write mix over time, sizes and inter-arrival times.
fn requests(traces: &[Trace]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for trace in traces {
        let figures = &trace.figures;
        let (scale, unit) = if figures.over_time_unit == "ps" { (1e-12, "s") } else { (1.0, "requests") };
        let points = |count: fn(&deepram_trace::characterize::TimeBin) -> u64| {
            let bins = figures.over_time.bins.iter().enumerate();
            bins.map(|(at, bin)| ((at as u64 * figures.over_time.width) as f64 * scale, count(bin) as f64))
                .collect()
        };
        charts.extend(area(lines(
            &format!("Reads and writes over time, {}", trace.name),
            &format!("Requests in each bin of {} {unit}.", figures.over_time.width as f64 * scale),
            (Axis::linear("time", unit), Axis::linear("requests", "")),
            vec![
                Series::new("reads", points(|bin| bin.reads)),
                Series::new("writes", points(|bin| bin.writes)),
            ],
        )));
    }
    charts.extend(lines(
        "Request sizes",
        "Share of the requests that are at most as long.",
        (Axis::log("size", "bytes"), Axis::linear("share of the requests", "")),
        by_trace(traces, |figures| cumulative(figures.sizes.all.as_ref(), 1.0)),
    ));
    charts.extend(lines(
        "Inter-arrival times",
        "Share of the requests that follow the one before within that time.",
        (Axis::log("time", "µs"), Axis::linear("share of the requests", "")),
        by_trace(traces, |figures| cumulative(figures.interarrival_ps.as_ref(), 1e-6)),
    ));
    charts
}

/// A distribution's cumulative shares at the upper ends of its classes.
fn cumulative(distribution: Option<&Distribution>, scale: f64) -> Vec<(f64, f64)> {
    let Some(distribution) = distribution else { return Vec::new() };
    let mut sum = 0;
    let points = distribution.classes.iter().map(|class| {
        sum += class.count;
        (class.to.min(distribution.max) as f64 * scale, sum as f64 / distribution.count as f64)
    });
    points.collect()
}
