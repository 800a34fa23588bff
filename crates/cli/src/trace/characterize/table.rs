//! The table on the terminal: a row for each figure, a column for each trace.

use deepram_core::Bytes;
use deepram_trace::characterize::{Characterization, SpatialClass, Traffic};

use super::Trace;
use crate::output::{Table, count, size};

/// A figure of a trace as text.
type Cell<'a> = Box<dyn Fn(&Characterization) -> String + 'a>;

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1}%", 100.0 * share))
}

fn bytes(bytes: u128) -> String {
    size(u64::try_from(bytes).unwrap_or(u64::MAX))
}

fn pages(pages: u64, page_bytes: u64) -> String {
    bytes(u128::from(pages) * u128::from(page_bytes))
}

pub(super) fn render(traces: &[Trace]) -> String {
    let mut headings = vec!["<".to_owned()];
    headings.extend(traces.iter().map(|trace| trace.name.clone()));
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, cell) in rows(traces) {
        let cells = traces.iter().map(|trace| cell(&trace.figures));
        table.row(std::iter::once(name).chain(cells).collect());
    }
    let mut text = table.render();
    if traces.iter().any(|trace| trace.figures.sample.is_some()) {
        text += "Unique data, hit ratios and working sets are estimated from a sample of the pages; ± is the standard error.\n";
    }
    text
}

/// The figures that at least one trace has.
fn rows(traces: &[Trace]) -> Vec<(String, Cell<'_>)> {
    let mut rows: Vec<(String, Cell<'_>)> = Vec::new();
    let mut row = |name: &str, cell: Cell<'static>| rows.push((name.into(), cell));
    row("requests", Box::new(|c| count(c.all.requests)));
    row("writes", Box::new(|c| percent(c.write_share)));
    type OfTraffic = fn(&Characterization) -> &Traffic;
    for (operation, of) in [("", (|c| &c.all) as OfTraffic), ("read ", |c| &c.read), ("write ", |c| &c.write)]
    {
        row(&format!("{operation}traffic"), Box::new(move |c| bytes(of(c).bytes)));
        let mean = |traffic: &Traffic| {
            traffic.mean_bytes().map_or_else(|| "-".into(), |mean| Bytes(mean.round() as u64).to_string())
        };
        row(&format!("{operation}mean size"), Box::new(move |c| mean(of(c))));
        row(&format!("{operation}unique data"), Box::new(move |c| pages(of(c).unique_pages, c.page_bytes)));
    }
    row(
        "span",
        Box::new(|c| {
            c.times.map_or_else(
                || "-".into(),
                |times| format!("{:.3} s", (times.last_ps - times.first_ps) as f64 / 1e12),
            )
        }),
    );
    row(
        "requests/s",
        Box::new(|c| {
            let rate = c.times.and_then(|times| times.requests_per_s);
            rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"))
        }),
    );
    if let Some(settings) =
        traces.iter().map(|trace| &trace.figures.spatial).find(|spatial| !spatial.is_empty())
    {
        for (at, spatial) in settings.iter().enumerate() {
            for class in SpatialClass::ALL {
                let name = format!("{}, {}", class.name(), spatial.setting);
                rows.push((
                    name,
                    Box::new(move |c| {
                        percent(c.spatial.get(at).and_then(|s| s.all.map(|s| s[class as usize])))
                    }),
                ));
            }
            for (operation, write) in [("reads", false), ("writes", true)] {
                let name = format!("random among {operation}, {}", spatial.setting);
                rows.push((
                    name,
                    Box::new(move |c| {
                        let shares = c.spatial.get(at).and_then(|s| if write { s.write } else { s.read });
                        percent(shares.map(|shares| shares[SpatialClass::Random as usize]))
                    }),
                ));
            }
        }
    }
    hit_ratio_rows(&mut rows, traces);
    for window in working_set_windows(traces) {
        let name = format!("working set, mean of {} requests", count(window));
        rows.push((
            name,
            Box::new(move |c| {
                let set = c.working_sets.iter().find(|set| set.window_requests == window);
                set.map_or_else(|| "-".into(), |set| pages(set.mean_pages.round() as u64, c.page_bytes))
            }),
        ));
    }
    rows
}

fn hit_ratio_rows(rows: &mut Vec<(String, Cell<'_>)>, traces: &[Trace]) {
    // Powers of four from 1 MiB on, up to the first that holds all pages of every trace.
    let largest =
        traces.iter().filter_map(|trace| trace.figures.lru.last()).map(|last| last.capacity_bytes).max();
    let sizes = (10..32).map(|half| 1u128 << (2 * half));
    for capacity in sizes.take_while(|capacity| largest.is_some_and(|largest| *capacity < 4 * largest)) {
        let name = format!("LRU hit ratio, {}", bytes(capacity));
        rows.push((
            name,
            Box::new(move |c| {
                let found = c.lru.iter().rev().find(|point| point.capacity_bytes <= capacity);
                found.map_or_else(
                    || "-".into(),
                    |point| match point.standard_error {
                        None => percent(point.all),
                        Some(error) => format!("{} ±{:.1}", percent(point.all), 100.0 * error),
                    },
                )
            }),
        ));
    }
    for at in 0..traces.iter().map(|trace| trace.figures.capacity_for_hit_ratio.len()).max().unwrap_or(0) {
        let ratio =
            traces.iter().find_map(|t| t.figures.capacity_for_hit_ratio.get(at)).map_or(0.0, |c| c.hit_ratio);
        for (what, write) in [("all", false), ("writes", true)] {
            let name = format!("LRU size for {:.0}% hits, {what}", 100.0 * ratio);
            rows.push((
                name,
                Box::new(move |c| {
                    let size =
                        c.capacity_for_hit_ratio.get(at).and_then(|p| if write { p.write } else { p.all });
                    size.map_or_else(|| "none".into(), |size| pages(size, c.page_bytes))
                }),
            ));
        }
    }
    let first = traces.iter().map(|trace| &trace.figures.policies).find(|policies| !policies.is_empty());
    for (at, point) in first.into_iter().flatten().enumerate() {
        let name = format!("{} hit ratio, {}", point.policy, bytes(point.capacity_bytes));
        rows.push((name, Box::new(move |c| percent(c.policies.get(at).and_then(|point| point.all)))));
    }
}

fn working_set_windows(traces: &[Trace]) -> Vec<u64> {
    let sets = traces.iter().flat_map(|trace| &trace.figures.working_sets);
    let mut windows: Vec<u64> = sets.map(|set| set.window_requests).collect();
    windows.sort_unstable();
    windows.dedup();
    windows
}
