//! PageRank and connected components against the size of DRAM, on generated stand-ins for the paper's
//! graphs (FlatFlash, section 5.3 and Figure 10).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{
    BaselineRatios, GIB, RunContext, RunSpec, SLOWDOWN_MACHINES, each, slowdown, totals, words,
};
use crate::chart::{Axis, Chart, Drawing, Reference, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::simulation_run::{Metrics, SimulationRun};
use crate::statistics::mean;

const ALGORITHMS: [&str; 2] = ["pagerank", "cc"];

/// A graph of the paper, and the R-MAT parameters of its stand-in.
#[derive(Debug)]
pub(super) struct Graph {
    name: &'static str,
    vertices: u64,
    edges_a_vertex: u64,
    rmat: &'static str,
}

/// R-MAT parameters: Graph500's for Twitter. For Friendster we assume a flatter distribution, because no
/// user has so large a share of all links.
const GRAPHS: [Graph; 2] = [
    Graph { name: "twitter", vertices: 61_500_000, edges_a_vertex: 24, rmat: "a=0.57,b=0.19,c=0.19" },
    Graph { name: "friendster", vertices: 65_600_000, edges_a_vertex: 27, rmat: "a=0.45,b=0.22,c=0.22" },
];

/// Size of the drive, 1 TB. Its memory holds a sixth of the graphs.
const DRIVE: u64 = 1024 * GIB;
/// Sizes of DRAM, from 1/256 of the drive downwards. The paper gives no sizes, but says that the graphs
/// are larger than DRAM.
const DRAM: [u64; 4] = [4 * GIB, 2 * GIB, GIB, GIB / 2];
const ENDS: [u64; 2] = [4 * GIB, GIB / 2];

/// Size of the simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    graphs: &'static [Graph],
    dram: &'static [u64],
    /// Binary logarithm of the number of vertices.
    bits: u32,
    pub(super) threads: u32,
}

impl Extent {
    fn new(settings: &Settings) -> Self {
        let small = Self::for_sensitivity(settings);
        let full = Self { graphs: &GRAPHS, dram: &DRAM, bits: 15, ..small };
        settings.pick(full, small)
    }

    /// The size used by the sensitivity study.
    pub(super) fn for_sensitivity(settings: &Settings) -> Self {
        Self { graphs: &GRAPHS[..1], dram: &ENDS, bits: settings.pick(12, 10), threads: 1 }
    }
}

fn name(algorithm: &str, graph: &str, machine: &str, dram: u64) -> String {
    format!("{algorithm}.{graph}.{machine}.{}mib", dram >> 20)
}

/// Size of a graph in bytes: an array of offsets, one of neighbours, and two of values, each
/// page-aligned.
pub(super) fn bytes(vertices: u64, edges: u64) -> u64 {
    let pages = |bytes: u64| bytes.next_multiple_of(4096);
    pages(8 * (vertices + 1)) + pages(4 * edges) + 2 * pages(8 * vertices)
}

/// Size in bytes of the paper's Twitter graph in this layout, with each edge stored `ways` times.
pub(super) fn twitter_bytes(ways: u64) -> u64 {
    let Graph { vertices, edges_a_vertex, .. } = GRAPHS[0];
    bytes(vertices, ways * vertices * edges_a_vertex)
}

/// FlatFlash's time over that of all-DRAM, for one algorithm.
pub(super) fn slowdown_of(
    finished: &FinishedRuns<'_>,
    extent: Extent,
    algorithm: &str,
) -> Result<f64, ReproError> {
    let settings = extent.graphs.iter().flat_map(|graph| extent.dram.iter().map(move |&dram| (graph, dram)));
    slowdown(
        finished,
        settings.map(|(graph, dram)| {
            SLOWDOWN_MACHINES.map(|(machine, _)| name(algorithm, graph.name, machine, dram))
        }),
    )
}

/// Builds the runs.
pub(super) fn runs(context: RunContext<'_>, extent: Extent) -> Result<Vec<SimulationRun>, ReproError> {
    let mut runs = Vec::new();
    for algorithm in ALGORITHMS {
        for graph in extent.graphs {
            let vertices = 1 << extent.bits;
            let spec = format!(
                "{algorithm}:scale={},edgefactor={},rounds=2,{}",
                extent.bits, graph.edges_a_vertex, graph.rmat
            );
            // The first round warms up. Connected components follows each edge in both directions.
            let ways = if algorithm == "cc" { 2 } else { 1 };
            let bytes = bytes(vertices, ways * vertices * graph.edges_a_vertex);
            let warm_up = 2 * vertices + 2 * ways * vertices * graph.edges_a_vertex;
            for &dram in extent.dram {
                for &(machine, kind) in context.machines {
                    let setting = RunSpec {
                        name: name(algorithm, graph.name, machine, dram),
                        machine: kind,
                        drive: DRIVE,
                        dram,
                        scale: graph.vertices / vertices,
                        threads: extent.threads,
                        warm_up,
                        base: context.base,
                        seed: context.settings.seed,
                    };
                    runs.push(setting.workload(context.registry, &spec, bytes, std::iter::empty)?);
                }
            }
        }
    }
    Ok(runs)
}

/// Sets the metrics of the claims: times, page movements and pages programmed of the baselines over
/// FlatFlash's.
pub(super) fn metrics(finished: &FinishedRuns<'_>, extent: Extent) -> Result<Metrics, ReproError> {
    let mut metrics = Metrics::new();
    for algorithm in ALGORITHMS {
        let all = |metric: &str| -> Result<Vec<[f64; 3]>, ReproError> {
            let settings =
                extent.graphs.iter().flat_map(|graph| extent.dram.iter().map(move |&dram| (graph, dram)));
            let of = |(graph, dram): (&Graph, u64)| {
                each(finished, metric, |machine| name(algorithm, graph.name, machine, dram))
            };
            settings.map(of).collect()
        };
        let mut over = BaselineRatios::default();
        all("simulated_time_ns")?.into_iter().for_each(|times| over.push(times));
        over.set(&mut metrics, &format!("{algorithm}.time"));
        for (at, dram) in extent.dram.iter().enumerate() {
            let speedups: Vec<f64> =
                over.unified.iter().skip(at).step_by(extent.dram.len()).copied().collect();
            let mean = mean(&speedups).unwrap_or(f64::NAN);
            metrics.set(format!("{algorithm}.dram{}mib.over_unified", dram >> 20), mean);
        }
        totals(&mut metrics, &format!("{algorithm}.moved"), &all("counters.page_movements")?);
        totals(&mut metrics, &format!("{algorithm}.programs"), &all("flash.programs")?);
    }
    Ok(metrics)
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let extent = Extent::new(settings);
    let runs = runs(RunContext::plain(settings, registry), extent)?;
    let about = format!(
        "R-MAT graphs of {} vertices stand in for the Twitter and Friendster graphs, with as many edges \
         per vertex, and all sizes of the machine are scaled in proportion. GraphChi is not simulated: one \
         thread pulls values along the edges of a compressed graph, reading edges in order and the \
         neighbours' values at random. Of two rounds the second is measured. The drive has {}, DRAM {} to \
         {} before scaling (assumed, because the paper gives no sizes).",
        1u64 << extent.bits,
        words(DRIVE),
        words(GIB / 2),
        words(4 * GIB),
    );
    Ok(Experiment::new("graph", "Graph analytics", about, runs, move |finished| {
        let mut outcome = Outcome { metrics: metrics(finished, extent)?, ..Outcome::default() };
        for algorithm in ALGORITHMS {
            outcome.charts.push(chart(finished, algorithm, extent)?);
        }
        Ok(outcome)
    }))
}

fn chart(finished: &FinishedRuns<'_>, algorithm: &str, extent: Extent) -> Result<Chart, ReproError> {
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
        title: format!("Speedup by DRAM size, {algorithm}"),
        about: "Time of the baselines over that of FlatFlash; more is better for FlatFlash.".into(),
        drawing: Drawing::Lines {
            x: Axis::log("DRAM before scaling", "MiB"),
            y: Axis::linear("speedup", ""),
            series,
            area: false,
        },
        references: vec![Reference { name: "equal".into(), value: 1.0 }],
    })
}
