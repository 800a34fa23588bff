//! Cost of flushing a cache line by each method, of lines that were stored to and of lines that were only loaded, beside the
//! stores alone.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use deepram_core::Bytes;
use deepram_linux::flush::{Flusher, Method};
use serde::Serialize;

use super::{OutputArgs, Report};
use crate::output::Table;

/// Options of `deepram bench flush`.
#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    /// Memory of each thread: 64KiB, 1MiB; the larger it is, the more lines have left the caches before they are flushed
    #[arg(long, default_value = "256KiB", value_name = "SIZE")]
    size: Bytes,
    /// Numbers of threads; each has memory of its own
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Vec<u16>,
    /// Flush methods: clflush, clflushopt, clwb, wof (load and non-temporal store); by default all that the processor has
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    methods: Vec<Method>,
    /// Runs of each measurement; the median counts
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Instead compare the persists of a pool's memory controller with bare flush instructions and, if it is installed, PMDK's
    /// libpmem, on shared memory
    #[arg(long)]
    peer: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Serialize)]
struct FlushReport {
    line_bytes: usize,
    bytes_per_thread: u64,
    rows: Vec<FlushRow>,
}

#[derive(Serialize)]
struct FlushRow {
    /// Flush method; none where the lines are only stored to.
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    threads: u16,
    /// Time of a line that was stored to just before, the fence included; for stores alone, of the stores. Median over runs of the
    /// slowest thread.
    dirty_ns_per_line: f64,
    /// The same of a line that was loaded just before.
    #[serde(skip_serializing_if = "Option::is_none")]
    clean_ns_per_line: Option<f64>,
}

pub(super) fn run(args: &FlushArgs) -> anyhow::Result<Report> {
    if args.peer {
        return super::flush_peers::run(args.repeats, &args.methods);
    }
    let available = Method::ALL.into_iter().filter(|method| method.is_available());
    let methods = if args.methods.is_empty() { available.collect() } else { args.methods.clone() };
    let flushers = methods.into_iter().map(Flusher::new).collect::<Result<Vec<_>, _>>()?;
    let line = Flusher::new(Method::best())?.line();
    ensure!(
        args.size.0 >= line as u64 && args.size.0 <= 1 << 30,
        "--size is {}; give one cache line ({line} B) to 1 GiB",
        args.size
    );
    let mut rows = Vec::new();
    for &threads in &args.threads {
        let measure = |flusher: Option<Flusher>, store: bool| {
            median_ns(threads, args.repeats, args.size.0 as usize, line, flusher, store)
        };
        rows.push(FlushRow {
            method: None,
            threads,
            dirty_ns_per_line: measure(None, true),
            clean_ns_per_line: None,
        });
        for flusher in &flushers {
            rows.push(FlushRow {
                method: Some(flusher.method().name()),
                threads,
                dirty_ns_per_line: measure(Some(*flusher), true),
                clean_ns_per_line: Some(measure(Some(*flusher), false)),
            });
        }
    }
    let report = FlushReport { line_bytes: line, bytes_per_thread: args.size.0, rows };
    let text = text(&report);
    Report::new(&report, text)
}

/// Median over `repeats` runs of the time in which the slowest of `threads` threads flushes its memory, nanoseconds a line.
fn median_ns(
    threads: u16,
    repeats: u16,
    size: usize,
    line: usize,
    flusher: Option<Flusher>,
    store: bool,
) -> f64 {
    let start = Barrier::new(usize::from(threads));
    let one = || {
        let mut memory = vec![1u8; size + line];
        let skip = memory.as_ptr().align_offset(line);
        let memory = &mut memory[skip..skip + size];
        let run = |round: u16| {
            let stores = Instant::now();
            for line in memory.chunks_mut(line) {
                if store {
                    line[0] = round as u8;
                }
                std::hint::black_box(&line[0]);
            }
            let stores = stores.elapsed();
            start.wait();
            let Some(flusher) = flusher else { return stores };
            let begin = Instant::now();
            flusher.flush_bytes(memory);
            flusher.fence();
            begin.elapsed()
        };
        (0..repeats).map(run).collect::<Vec<Duration>>()
    };
    let times = std::thread::scope(|scope| {
        let threads = (0..threads).map(|_| scope.spawn(one)).collect::<Vec<_>>();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a measuring thread does not panic"))
            .collect::<Vec<_>>()
    });
    let slowest = |run: usize| times.iter().map(|times| times[run]).max().unwrap_or_default();
    let mut times: Vec<Duration> = (0..usize::from(repeats)).map(slowest).collect();
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64 / size.div_ceil(line) as f64
}

fn text(report: &FlushReport) -> String {
    let mut table = Table::new(&["<method", "threads", "dirty line, ns", "clean line, ns"]);
    for row in &report.rows {
        table.row(vec![
            row.method.unwrap_or("(store only)").into(),
            row.threads.to_string(),
            format!("{:.1}", row.dirty_ns_per_line),
            row.clean_ns_per_line.map_or_else(|| "-".into(), |ns| format!("{ns:.1}")),
        ]);
    }
    format!(
        "{} of memory a thread, lines of {} B\n\n{}",
        Bytes(report.bytes_per_thread),
        report.line_bytes,
        table.render()
    )
}
