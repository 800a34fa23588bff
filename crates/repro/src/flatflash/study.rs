//! What the results hang on: one assumption at a time goes to the ends of what is plausible.
//!
//! 1. The study runs the experiments small: the ends of their sweeps, sizes divided further, one of the two graphs. Its
//!    ratios differ a little from those that claims are judged on.
//! 2. A parameter of promotion or of lines over the link changes runs of FlatFlash only, one of the storage stack those
//!    of the stack; the other runs are those of the base.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::SimError;

use super::machine::{ALL, Base, Bench};
use super::{cost, graph, gups, latency, redis};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::Change;

/// Key, what it is, low end, base, high end, why these ends. `flat.` begins what only FlatFlash uses, `stack.` what only
/// the storage stack does, `all.` a figure of all machines.
pub(super) const PARAMETERS: [[&str; 6]; 23] = [
    [
        "flat.fill_idle",
        "a first use promotes while DRAM is idle",
        "false",
        "false",
        "true",
        "the algorithm counts uses only, and a warm-up may have filled DRAM",
    ],
    ["flat.max_threshold", "largest threshold of promotion", "1", "7", "14", "promote at once; double"],
    ["flat.algorithm", "form of Algorithm 1", "literal", "decided", "decided", "as printed"],
    ["flat.reset_epoch", "uses of an epoch", "1000", "10000", "100000", "a tenth; ten times"],
    [
        "flat.line_read",
        "load of a line over the link",
        "1us",
        "4.8us",
        "4.8us",
        "a link of 0.5 us each way, as SkyByte-Artifact has it",
    ],
    ["flat.posted_writes", "stores in the write buffer", "16", "64", "256", "a quarter; four times"],
    ["promote", "moving a page to DRAM", "2us", "12.1us", "12.1us", "a page at the link's speed"],
    ["walk", "walk of the page table", "0.05us", "0.7us", "0.7us", "one that finds its entries in caches"],
    [
        "all.nand.read",
        "flash's array time of a read",
        "1us",
        "9.76us",
        "89.76us",
        "Figure 14's fastest devices; a read of 100 us",
    ],
    ["all.nand.program", "time of a program", "16us", "1200us", "1200us", "the Z-SSD's write, section 3.3"],
    [
        "all.nand.suspend_program",
        "time to suspend a program for a read",
        "1us",
        "20us",
        "10ms",
        "nearly none; a part that cannot",
    ],
    [
        "all.hit_policy",
        "what a hit does to a page's interval",
        "hit",
        "hit",
        "frequency",
        "the other form of RRIP",
    ],
    ["all.write_queue", "programs of a die under way", "8", "64", "512", "an eighth; eight times"],
    ["tlb", "translations held", "as scaled", "as scaled", "1024", "all, whatever the data's size"],
    ["memory", "the drive's memory over 0.125 % of the drive", "0.25", "1", "4", "a quarter; four times"],
    ["cpu", "the processor's cache over 30 MiB", "0.1", "1", "2", "a core's share; both sockets"],
    [
        "stack.software.wait",
        "the stack's wait",
        "0us",
        "1.1us",
        "33.13us",
        "none; the NVMM study's Linux with its SLC drive",
    ],
    ["stack.indirections", "tables beside the page table", "1", "2", "4", "one; double"],
    [
        "latency.stores",
        "share of stores in section 5.1",
        "0",
        "0",
        "0.5",
        "the paper speaks of reads and writes",
    ],
    ["gups.threads", "threads of GUPS", "1", "24", "24", "the paper says several"],
    ["graph.threads", "threads of the graph programs", "1", "1", "24", "one a core"],
    ["redis.threads", "requests of Redis under way", "1", "16", "16", "Redis serves one client at a time"],
    [
        "redis.theta",
        "skew of keys",
        "0.5",
        "0.99",
        "0.99",
        "the paper sets the working set by the distribution's parameter",
    ],
];

/// Figure and title of what a chart shows.
pub(super) const HEADLINES: [(&str, &str); 6] = [
    ("random.over_unified.mean", "Random access over UnifiedMMap"),
    ("sequential.over_unified.mean", "Sequential access over UnifiedMMap"),
    ("gups.time.over_unified.mean", "GUPS over UnifiedMMap"),
    ("pagerank.time.over_unified.mean", "PageRank over UnifiedMMap"),
    ("redis.mean.over_unified.mean", "Redis over UnifiedMMap, mean"),
    ("redis.p99.over_unified.mean", "Redis over UnifiedMMap, 99th percentile"),
];

/// All that may change.
#[derive(Debug, Clone)]
struct Assumptions {
    base: Base,
    latency: latency::Extent,
    gups: gups::Extent,
    graph: graph::Extent,
    redis: redis::Extent,
}

/// The runs, with this change if it is one of theirs.
pub(super) fn experiment(
    change: Option<Change<'_>>,
    settings: &Settings,
    registry: &Arc<Registry>,
) -> Result<Experiment, ReproError> {
    let mut assumptions = Assumptions::new(settings);
    if let Some(change) = change.filter(|change| PARAMETERS.iter().any(|row| row[0] == change.key)) {
        assumptions.apply(change)?;
    }
    assumptions.experiment(settings, registry)
}

impl Assumptions {
    fn new(settings: &Settings) -> Self {
        Self {
            base: Base::default(),
            latency: latency::Extent::study(settings),
            gups: gups::Extent::study(settings),
            graph: graph::Extent::study(settings),
            redis: redis::Extent::study(settings),
        }
    }

    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let Self { base, latency, gups, graph, redis } = self;
        let bench = Bench { base: &base, ..Bench::plain(settings, registry) };
        let mut runs = latency::runs(bench, latency)?;
        let bench = Bench { machines: &ALL, ..bench };
        runs.extend(gups::runs(bench, gups)?);
        runs.extend(graph::runs(bench, graph)?);
        runs.extend(redis::runs(bench, redis)?);
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, move |finished| {
            let mut outcome = Outcome::default();
            for figures in [
                latency::figures(finished, latency)?,
                gups::figures(finished, gups)?,
                graph::figures(finished, graph)?,
                redis::figures(finished, redis)?,
            ] {
                outcome.figures.0.extend(figures.0);
            }
            cost::slowdowns(finished, (gups, graph, redis), &mut outcome)?;
            Ok(outcome)
        }))
    }

    /// Sets what the change names.
    fn apply(&mut self, change: Change<'_>) -> Result<(), ReproError> {
        let Change { key, value } = change;
        let wrong = |why: String| ReproError::Config {
            what: "sensitivity".into(),
            source: Box::new(SimError::Config { key: key.into(), why }),
        };
        let number = || value.parse::<f64>().map_err(|_| wrong(format!("{value:?} is no number")));
        let count = || value.parse::<u32>().map_err(|_| wrong(format!("{value:?} is no count")));
        let unknown = || wrong(format!("the study does not know how to set it to {value:?}"));
        let base = &mut self.base;
        match key.split_once('.') {
            Some(("flat", figure)) => base.flat.push(format!("{figure}={value}")),
            Some(("stack", figure)) => base.stack.push(format!("{figure}={value}")),
            Some(("all", figure)) => base.overrides.push(format!("{figure}={value}")),
            Some(("latency", "stores")) => self.latency.stores = number()?,
            Some(("gups", "threads")) => self.gups.threads = count()?,
            Some(("graph", "threads")) => self.graph.threads = count()?,
            Some(("redis", "threads")) => self.redis.threads = count()?,
            Some(("redis", "theta")) => self.redis.theta = number()?,
            Some(_) => return Err(unknown()),
            None => match key {
                "promote" | "walk" => base.overrides.push(format!("{key}={value}")),
                "tlb" => base.overrides.push(format!("tlb_entries={value}")),
                "memory" => base.buffer_times = Some(number()?),
                "cpu" => base.cpu_times = Some(number()?),
                _ => return Err(unknown()),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name and digest of each run.
    fn digests(assumptions: Assumptions) -> Vec<(String, String)> {
        let registry = Arc::new(Registry::builtin().unwrap());
        let experiment = assumptions.experiment(&Settings { quick: true, seed: 1 }, &registry).unwrap();
        experiment.runs.into_iter().map(|run| (run.name, run.digest)).collect()
    }

    #[test]
    fn every_end_of_a_range_changes_runs_and_only_those_of_its_machine() {
        let settings = Settings { quick: true, seed: 1 };
        let base = digests(Assumptions::new(&settings));
        let of = |machine: &str| base.iter().filter(|run| run.0.contains(&format!(".{machine}."))).count();
        for [key, _, low, middle, high, _] in PARAMETERS {
            for value in [low, high].into_iter().filter(|value| *value != middle) {
                let mut assumptions = Assumptions::new(&settings);
                assumptions.apply(Change { key, value }).unwrap();
                let now = digests(assumptions);
                assert_eq!(now.len(), base.len(), "{key}={value}");
                let changed = now.iter().zip(&base).filter(|(now, base)| now != base).count();
                match key.split_once('.') {
                    Some(("flat", _)) => assert_eq!(changed, of("flatflash"), "{key}={value}"),
                    Some(("stack", _)) => assert_eq!(changed, of("stack"), "{key}={value}"),
                    Some(("all", _)) => assert_eq!(changed, base.len(), "{key}={value}"),
                    // Caches as small as they can be have no smaller one.
                    None => assert!(changed > 0, "{key}={value}"),
                    Some(_) => assert!((1..base.len()).contains(&changed), "{key}={value}"),
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_is_an_error() {
        let mut assumptions = Assumptions::new(&Settings { quick: true, seed: 1 });
        for (key, value) in [("nothing", "1"), ("gups.thread", "1"), ("memory", "large")] {
            let error = assumptions.apply(Change { key, value }).unwrap_err().to_string();
            assert!(error.contains("sensitivity"), "{error}");
        }
    }
}
