//! The figures as CSV files, one for each kind; the first column names the trace.

use std::fmt::Display;
use std::path::Path;

use anyhow::Context;
use deepram_trace::characterize::{Distribution, HitRatios, SpatialClass};

use super::Trace;

/// A CSV file.
struct File {
    name: &'static str,
    text: String,
}

impl File {
    fn new(name: &'static str, columns: &str) -> Self {
        Self { name, text: format!("trace,{columns}\n") }
    }

    fn row(&mut self, trace: &Trace, cells: &[&dyn Display]) {
        self.text += &quoted(&trace.name);
        for cell in cells {
            self.text += &format!(",{cell}");
        }
        self.text.push('\n');
    }
}

/// A text as a CSV field.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

/// A number, or nothing.
fn maybe<T: Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Writes the files to the folder, which is created if it does not exist.
///
/// # Errors
/// The folder or a file cannot be written.
pub(super) fn write(folder: &Path, traces: &[Trace]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("--csv {}", folder.display()))?;
    for file in files(traces) {
        let path = folder.join(file.name);
        std::fs::write(&path, file.text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn files(traces: &[Trace]) -> Vec<File> {
    let mut traffic =
        File::new("traffic.csv", "operation,requests,bytes,mean_bytes,page_accesses,unique_pages,page_bytes");
    let mut spatial = File::new("spatial.csv", "stride_pages,rod,class,reads,writes");
    let mut lru = hit_ratio_file("lru.csv");
    let mut lru_of_writes = hit_ratio_file("lru_of_writes.csv");
    let mut policies = File::new("policies.csv", "policy,capacity_bytes,misses,all,read,write");
    let mut working_set =
        File::new("working_set.csv", "window_requests,window,all_pages,read_pages,write_pages");
    let mut addresses =
        File::new("addresses.csv", "first_request,window_requests,device,first_page,pages,reads,writes");
    let mut over_time = File::new("over_time.csv", "from,width,unit,reads,writes,read_bytes,write_bytes");
    let mut distributions = File::new("distributions.csv", "quantity,from,to,count");
    for trace in traces {
        let figures = &trace.figures;
        for (operation, t) in [("all", &figures.all), ("read", &figures.read), ("write", &figures.write)] {
            let mean = maybe(t.mean_bytes());
            traffic.row(
                trace,
                &[
                    &operation,
                    &t.requests,
                    &t.bytes,
                    &mean,
                    &t.page_accesses,
                    &t.unique_pages,
                    &figures.page_bytes,
                ],
            );
        }
        for report in &figures.spatial {
            let setting = report.setting;
            for class in SpatialClass::ALL {
                let (reads, writes) =
                    (report.counts.read[class as usize], report.counts.write[class as usize]);
                spatial.row(trace, &[&setting.stride_pages, &setting.rod, &class.name(), &reads, &writes]);
            }
        }
        figures.lru.iter().for_each(|point| hit_ratio_row(&mut lru, trace, point));
        figures.lru_of_writes.iter().for_each(|point| hit_ratio_row(&mut lru_of_writes, trace, point));
        for p in &figures.policies {
            let [all, read, write] = [p.all, p.read, p.write].map(maybe);
            policies.row(trace, &[&p.policy, &p.capacity_bytes, &p.misses, &all, &read, &write]);
        }
        for set in &figures.working_sets {
            for kept in &set.kept {
                working_set
                    .row(trace, &[&set.window_requests, &kept.window, &kept.all, &kept.read, &kept.write]);
            }
        }
        for window in &figures.addresses.phases {
            for bin in &window.bins {
                let requests = figures.addresses.window_requests;
                addresses.row(
                    trace,
                    &[
                        &window.first_request,
                        &requests,
                        &bin.device,
                        &bin.first_page,
                        &bin.pages,
                        &bin.reads,
                        &bin.writes,
                    ],
                );
            }
        }
        let (width, unit) = (figures.over_time.width, figures.over_time_unit);
        for (at, bin) in figures.over_time.bins.iter().enumerate() {
            let from = at as u64 * width;
            over_time.row(
                trace,
                &[&from, &width, &unit, &bin.reads, &bin.writes, &bin.read_bytes, &bin.write_bytes],
            );
        }
        let sizes = &figures.sizes;
        for (quantity, distribution) in [
            ("size_bytes", &sizes.all),
            ("read_size_bytes", &sizes.read),
            ("write_size_bytes", &sizes.write),
            ("interarrival_ps", &figures.interarrival_ps),
        ] {
            distribution_rows(&mut distributions, trace, quantity, distribution.as_ref());
        }
    }
    vec![traffic, spatial, lru, lru_of_writes, policies, working_set, addresses, over_time, distributions]
}

fn hit_ratio_file(name: &'static str) -> File {
    File::new(
        name,
        "capacity_pages,capacity_bytes,all,read,write,all_rereferences,write_rereferences,standard_error",
    )
}

fn hit_ratio_row(file: &mut File, trace: &Trace, point: &HitRatios) {
    let ratios = [
        point.all,
        point.read,
        point.write,
        point.all_rereferences,
        point.write_rereferences,
        point.standard_error,
    ]
    .map(maybe)
    .join(",");
    file.row(trace, &[&point.capacity_pages, &point.capacity_bytes, &ratios]);
}

fn distribution_rows(file: &mut File, trace: &Trace, quantity: &str, distribution: Option<&Distribution>) {
    for class in distribution.into_iter().flat_map(|distribution| &distribution.classes) {
        file.row(trace, &[&quantity, &class.from, &class.to, &class.count]);
    }
}
