//! PageRank and connected components over the size of DRAM, on generated stand-ins for the paper's graphs (FlatFlash,
//! section 5.3 and Figure 10).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Bench, GIB, Over, SLOWED, Setting, each, slowdown, totals, words};
use crate::chart::{Axis, Chart, Drawing, Reference, Series};
use crate::curve::mean;
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};
use crate::run::{Figures, Run};

const ALGORITHMS: [&str; 2] = ["pagerank", "cc"];

/// A graph as the paper has it, and the R-MAT shares of its stand-in.
#[derive(Debug)]
pub(super) struct Graph {
    name: &'static str,
    vertices: u64,
    edges_a_vertex: u64,
    rmat: &'static str,
}

/// The shares are Graph500's for Twitter; Friendster, where nobody has so large a part of all links, is assumed flatter.
const GRAPHS: [Graph; 2] = [
    Graph { name: "twitter", vertices: 61_500_000, edges_a_vertex: 24, rmat: "a=0.57,b=0.19,c=0.19" },
    Graph { name: "friendster", vertices: 65_600_000, edges_a_vertex: 27, rmat: "a=0.45,b=0.22,c=0.22" },
];

/// A drive of 1 TB: its memory holds a sixth of the graphs.
const DRIVE: u64 = 1024 * GIB;
/// DRAM of a 256th of the drive and less: the paper gives no sizes, but says that graphs are larger.
const DRAM: [u64; 4] = [4 * GIB, 2 * GIB, GIB, GIB / 2];
const ENDS: [u64; 2] = [4 * GIB, GIB / 2];

/// How much is simulated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    graphs: &'static [Graph],
    dram: &'static [u64],
    /// Of the stand-ins, the logarithm of the number of vertices.
    bits: u32,
    pub(super) threads: u32,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        let study = Self::study(settings);
        let full = Self { graphs: &GRAPHS, dram: &DRAM, bits: 15, ..study };
        settings.pick(full, study)
    }

    /// What the study runs.
    pub(super) fn study(settings: &Settings) -> Self {
        Self { graphs: &GRAPHS[..1], dram: &ENDS, bits: settings.pick(12, 10), threads: 1 }
    }
}

fn name(algorithm: &str, graph: &str, machine: &str, dram: u64) -> String {
    format!("{algorithm}.{graph}.{machine}.{}mib", dram >> 20)
}

/// Bytes of a graph: an array of offsets, one of neighbours, two of values, each from a page's start.
pub(super) fn bytes(vertices: u64, edges: u64) -> u64 {
    let pages = |bytes: u64| bytes.next_multiple_of(4096);
    pages(8 * (vertices + 1)) + pages(4 * edges) + 2 * pages(8 * vertices)
}

/// Bytes of the paper's graph of Twitter, kept so, with each edge so many times.
pub(super) fn twitter_bytes(ways: u64) -> u64 {
    let Graph { vertices, edges_a_vertex, .. } = GRAPHS[0];
    bytes(vertices, ways * vertices * edges_a_vertex)
}

/// How many times as long as with DRAM alone, of one algorithm.
pub(super) fn slowed(finished: &Finished<'_>, extent: Extent, algorithm: &str) -> Result<f64, ReproError> {
    let settings = extent.graphs.iter().flat_map(|graph| extent.dram.iter().map(move |&dram| (graph, dram)));
    slowdown(
        finished,
        settings.map(|(graph, dram)| SLOWED.map(|(machine, _)| name(algorithm, graph.name, machine, dram))),
    )
}

/// The runs.
pub(super) fn runs(bench: Bench<'_>, extent: Extent) -> Result<Vec<Run>, ReproError> {
    let mut runs = Vec::new();
    for algorithm in ALGORITHMS {
        for graph in extent.graphs {
            let vertices = 1 << extent.bits;
            let spec = format!(
                "{algorithm}:scale={},edgefactor={},rounds=2,{}",
                extent.bits, graph.edges_a_vertex, graph.rmat
            );
            // Of the first round all loads; components follow edges both ways.
            let ways = if algorithm == "cc" { 2 } else { 1 };
            let bytes = bytes(vertices, ways * vertices * graph.edges_a_vertex);
            let warm_up = 2 * vertices + 2 * ways * vertices * graph.edges_a_vertex;
            for &dram in extent.dram {
                for &(machine, kind) in bench.machines {
                    let setting = Setting {
                        name: name(algorithm, graph.name, machine, dram),
                        machine: kind,
                        drive: DRIVE,
                        dram,
                        scale: graph.vertices / vertices,
                        threads: extent.threads,
                        warm_up,
                        base: bench.base,
                        seed: bench.settings.seed,
                    };
                    runs.push(setting.workload(bench.registry, &spec, bytes)?);
                }
            }
        }
    }
    Ok(runs)
}

/// The figures of claims: times and pages programmed of the baselines over FlatFlash's.
pub(super) fn figures(finished: &Finished<'_>, extent: Extent) -> Result<Figures, ReproError> {
    let mut figures = Figures::new();
    for algorithm in ALGORITHMS {
        let all = |figure: &str| -> Result<Vec<[f64; 3]>, ReproError> {
            let settings =
                extent.graphs.iter().flat_map(|graph| extent.dram.iter().map(move |&dram| (graph, dram)));
            let of = |(graph, dram): (&Graph, u64)| {
                each(finished, figure, |machine| name(algorithm, graph.name, machine, dram))
            };
            settings.map(of).collect()
        };
        let mut over = Over::default();
        all("simulated_time_ns")?.into_iter().for_each(|times| over.push(times));
        over.set(&mut figures, &format!("{algorithm}.time"));
        for (at, dram) in extent.dram.iter().enumerate() {
            let speedups: Vec<f64> =
                over.unified.iter().skip(at).step_by(extent.dram.len()).copied().collect();
            let mean = mean(&speedups).unwrap_or(f64::NAN);
            figures.set(format!("{algorithm}.dram{}mib.over_unified", dram >> 20), mean);
        }
        totals(&mut figures, &format!("{algorithm}.moved"), &all("counters.page_movements")?);
        totals(&mut figures, &format!("{algorithm}.programs"), &all("flash.programs")?);
    }
    Ok(figures)
}

/// The experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(Bench::plain(settings, registry), extent)?;
    let about = format!(
        "Stand-ins for the graphs of Twitter and Friendster: R-MAT graphs of {} vertices with as many edges a vertex, all \
         sizes of the machine in proportion. Not GraphChi: one thread pulls values along the edges of a compressed graph, \
         the edges in order, the values of neighbours at random. Two rounds, of which the second is measured. A drive of \
         {}, DRAM of {} to {} before scaling (assumed: the paper gives no sizes).",
        1u64 << extent.bits,
        words(DRIVE),
        words(GIB / 2),
        words(4 * GIB),
    );
    Ok(Experiment::new("graph", "Graph analytics", about, runs, move |finished| {
        let mut outcome = Outcome { figures: figures(finished, extent)?, ..Outcome::default() };
        for algorithm in ALGORITHMS {
            outcome.charts.push(chart(finished, algorithm, extent)?);
        }
        Ok(outcome)
    }))
}

fn chart(finished: &Finished<'_>, algorithm: &str, extent: Extent) -> Result<Chart, ReproError> {
    let mut series = Vec::new();
    for graph in extent.graphs {
        let mut over = [Vec::new(), Vec::new()];
        for &dram in extent.dram.iter().rev() {
            let name = |machine: &str| name(algorithm, graph.name, machine, dram);
            let [flat, unified, stack] = each(finished, "simulated_time_ns", name)?;
            let at = (dram >> 20) as f64;
            over[0].push((at, unified / flat));
            over[1].push((at, stack / flat));
        }
        for (points, baseline) in over.into_iter().zip(["unified", "stack"]) {
            series.push(Series::new(&format!("{}, over {baseline}", graph.name), points));
        }
    }
    Ok(Chart {
        title: format!("Speedup over the size of DRAM, {algorithm}"),
        about: "Time of the baselines over that of FlatFlash; more is better for FlatFlash.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("DRAM before scaling", "MiB"),
            y: Axis::linear("speedup", ""),
            series,
            area: false,
        },
        references: vec![Reference { name: "as fast".into(), value: 1.0 }],
    })
}
