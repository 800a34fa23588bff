//! Fuzz function for the specification of a sweep. For any bytes the result is an error of one line, or a sweep whose
//! points can be listed; never a panic, a hang or much memory.
//!
//! The fuzz target and `crates/sim/tests/it/sweep_hostile.rs` share this file.

use std::path::Path;

use deepram_sim::sweep::{MAX_POINTS, Sweep};

/// A function that a fuzz target calls with arbitrary bytes.
pub(crate) type Target = fn(&[u8]);

/// Every target of this file: its name and its function.
pub(crate) const TARGETS: &[(&str, Target)] = &[("sweep", |data| sweep(&String::from_utf8_lossy(data)))];

/// A specification that uses most features of the format.
pub(crate) const SAMPLE: &str = r#"# sizes and policies
system = "ssd"
workload = "zipf:span=1MiB,count=50"
warm-up = 10
constraints = ["2 * threads <= depth", "set.nand.read < 60us", "preset != mlc"]

[set]
controller = "3us"
nand.program = "400us"

[axes]
preset = ["slc", "tlc"]
seed = { from = 1, to = 3 }
depth = { from = 1, to = 16, scale = "powers-of-two" }
threads = [1, 2]
workload.theta = [0.5, 0.99]
set.nand.read = { from = "10us", to = "100us", points = 3, scale = "log" }

[pareto]
minimize = ["latency.p99_ns", "energy_total_nj"]
maximize = ["throughput_requests_per_s"]
"#;

/// Returns a small valid input for each target.
pub(crate) fn sample(_target: &str) -> Vec<u8> {
    SAMPLE.into()
}

/// Parses the text as a sweep. The points of an accepted one can be listed and written.
pub(crate) fn sweep(text: &str) {
    // A file of presets may be any file of the machine.
    if text.contains("config") {
        return;
    }
    match Sweep::parse("hostile.toml", text, Path::new("/nonexistent")) {
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.len() < 4000 && !shown.contains(char::is_control), "{shown:?}");
        }
        Ok(sweep) => {
            assert!(!sweep.is_empty() && sweep.len() <= MAX_POINTS);
            for point in [0, sweep.len() / 2, sweep.len() - 1] {
                let values = sweep.values(point).expect("the point exists");
                assert_eq!(values.len(), sweep.axes().len());
                let line = sweep.line(point, r#"{"status":"failed","error":""}"#).expect("the point exists");
                assert!(!line.contains('\n') && line.ends_with('}'), "{line:?}");
            }
            assert!(sweep.values(sweep.len()).is_err());
        }
    }
}
