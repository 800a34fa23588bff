//! The exact claims about the page table, checked on the code that the pool and the simulator use.

use std::collections::BTreeSet;

use deepram_core::bit_vector::BitVector;
use deepram_core::placement::group;
use deepram_core::{Entry, SegmentSize, Slot, Stamp, Status};
use serde_json::json;

use crate::chart::Table;
use crate::experiment::{Experiment, Outcome};
use crate::simulation_run::{Metrics, SimulationRun};

/// Name of the procedure, part of the digest.
const PROCEDURE: &str = "page table";
const K8: SegmentSize = SegmentSize::K8;

/// An example in the paper: segments with their flash pages, the first flash page, the bit vector.
struct Example {
    what: &'static str,
    placed: &'static [(u8, u64)],
    start: u64,
    vector: &'static str,
}

const EXAMPLES: [Example; 3] = [
    Example {
        what: "whole page",
        placed: &[(0, 100), (1, 101), (2, 102), (3, 103), (4, 104), (5, 105), (6, 106), (7, 107)],
        start: 100,
        vector: "11111111 00000000 00000000 00000000",
    },
    Example {
        what: "flash pages 56 and 59 worn",
        placed: &[(0, 53), (1, 54), (2, 55), (3, 64), (4, 57), (5, 58), (6, 75), (7, 60)],
        start: 53,
        vector: "11101101 00010000 00000010 00000000",
    },
    Example {
        what: "segments 2 and 5 dirty",
        placed: &[(2, 19), (5, 22)],
        start: 17,
        vector: "00100100 00000000 00000000 00000000",
    },
];

/// The paper's list of distances with their vectors.
const DISTANCES: [(u64, &str); 7] = [
    (3, "00100100 00000000 00000000 00000000"),
    (5, "00000100 00100000 00000000 00000000"),
    (11, "00100000 00000100 00000000 00000000"),
    (13, "00000100 00000000 00100000 00000000"),
    (19, "00100000 00000000 00000100 00000000"),
    (21, "00000100 00000000 00000000 00100000"),
    (27, "00100000 00000000 00000000 00000100"),
];

/// The entries that segments in these flash pages produce, as (start, printed vector).
fn entries(placed: &[(u8, u64)]) -> Vec<(u64, String)> {
    let placed: Vec<(u8, Slot)> = placed.iter().map(|&(segment, slot)| (segment, Slot(slot))).collect();
    group(K8, Slot(0), &placed)
        .into_iter()
        .map(|(start, bits)| (start.0, BitVector(bits).to_string()))
        .collect()
}

/// The vectors of entries that hold segments 2 and 5 at this distance, in either order.
fn sharing(distance: u64) -> BTreeSet<String> {
    [(2, 5), (5, 2)]
        .into_iter()
        .filter_map(|(low, high)| match entries(&[(low, 100), (high, 100 + distance)]).as_slice() {
            [(_, vector)] => Some(vector.clone()),
            _ => None,
        })
        .collect()
}

fn metrics() -> Metrics {
    let entry = Entry::new(Slot(53), 0, BitVector(0b1110_1101), Stamp(1), Status::new(true, true, true));
    let right = |example: &&Example| entries(example.placed) == [(example.start, example.vector.to_owned())];
    let listed = |distance: u64| DISTANCES.iter().find(|(listed, _)| *listed == distance);
    // A distance missing from the list counts against it.
    let (mut found, mut extra) = (0, 0);
    for distance in 1..32 {
        match (listed(distance), sharing(distance)) {
            (Some((_, vector)), vectors) => found += usize::from(vectors.contains(*vector)),
            (None, vectors) => extra += usize::from(!vectors.is_empty()),
        }
    }
    let mut metrics = Metrics::new();
    metrics.set("entry.bytes", entry.to_bytes().len() as f64);
    metrics.set("vector.examples_right", EXAMPLES.iter().filter(right).count() as f64);
    metrics.set("vector.distances_right", found as f64 - extra as f64);
    metrics
}

/// Builds the experiment.
pub(super) fn experiment() -> Experiment {
    let config = json!({ "segment_bytes": K8.bytes() });
    let run = SimulationRun::new("placement", PROCEDURE, config, || Ok(metrics()));
    Experiment::new(
        "page-table",
        "Page table and bit vectors",
        "The paper's own examples, computed by the code that pool and simulator share.",
        vec![run],
        |finished| {
            let metrics = finished.run("placement")?.clone();
            let rows = EXAMPLES.iter().map(|example| {
                let ours: Vec<String> = entries(example.placed)
                    .into_iter()
                    .map(|(start, vector)| format!("{start}: {vector}"))
                    .collect();
                vec![example.what.into(), format!("{}: {}", example.start, example.vector), ours.join("; ")]
            });
            let distances = DISTANCES.iter().map(|(distance, vector)| {
                let ours: Vec<String> = sharing(*distance).into_iter().collect();
                vec![format!("distance {distance}"), (*vector).into(), ours.join("; ")]
            });
            let table = Table {
                title: "Bit vectors, with the first flash page".into(),
                headings: vec!["example".into(), "paper".into(), "ours".into()],
                rows: rows.chain(distances).collect(),
            };
            Ok(Outcome { metrics, charts: Vec::new(), tables: vec![table] })
        },
    )
}
