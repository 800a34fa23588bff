//! Sensitivity study of the hybrid SSD cache: one choice that the paper leaves open at a time is set to the ends of its
//! plausible range.
//!
//! 1. The study replays one stand-in of each collection, cut to its first requests. A collection is then one trace, so
//!    its values differ from those that claims are judged on.
//! 2. A parameter of the thresholds changes only TS and TP, `pcm_hit` only two levels, the rest all buffers.

use std::sync::Arc;

use deepram_media::Registry;

use super::energy::{self, TagPowers, Tags};
use super::grid::{self, Capacities, Grid};
use super::replay::{Arrivals, Conditions};
use super::sources::{Source, Sources};
use super::{lifetime, response};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{ParameterChange, ParameterRow, Study, parameters};

/// The trace of each collection.
const TRACES: [&str; 3] = ["wdev", "tpcc", "fin1"];
/// Requests of each trace.
const REQUESTS: u64 = 60_000;

/// The parameters. Keys with `flat.` apply to TS and TP, with `levels.` to two levels, with `buffer.` to all buffers, with
/// `drive.` to their drive.
const PARAMETERS: &[ParameterRow] = parameters! {
    "tags": "linear", "step", "none"; "leakage of the tags"; "0.25 mW/MiB; Table V alone";
    "arrivals": "even", "stand-in", "stand-in"; "arrival times of the requests";
        "the paper says the span only; at equal distances";
    "warm": "false", "false", "true"; "whether a first pass fills the buffer";
        "the paper mentions no warm-up; the second of two passes";
    "requests": "30000", "60000", "120000"; "requests of each trace in the study"; "half; double";
    "buffer.destage_queue": "4", "64", "1024"; "victims that wait for flash at once";
        "a few page registers; more than a burst";
    "buffer.destage": "synchronous", "queued", "queued"; "whether a write waits for its victim";
        "the paper destages in the background; a buffer without room for victims";
    "buffer.partial_write": "fetch", "merge", "merge"; "a write of a part of a page"; "the rest is read at once";
    "buffer.access_charge": "sectors", "page", "page"; "time and energy of an access to a part of a page";
        "the share of the accessed sectors";
    "buffer.period": "128", "512", "2048"; "length of a period"; "a quarter; four times";
    "buffer.period_of": "accesses", "writes", "writes"; "accesses that make a period"; "the text's page accesses";
    "flat.expected_writes": "of-period", "of-actual", "of-actual"; "SSD writes that a period is compared with";
        "as printed";
    "flat.hotness": "literal", "adaptive", "scaled"; "form of Algorithm 2";
        "as printed; with the interpolation that it declares";
    "flat.coolness": "literal", "adaptive", "off"; "form of Algorithm 3"; "as printed; no wear control";
    "flat.filter_decay": "reset", "reset", "shift"; "change of the filters at a period's end";
        "section VII speaks of shifting";
    "flat.filter_size": "256B", "1KiB", "4KiB"; "size of a Bloom filter"; "a quarter; four times";
    "flat.promoting_write": "pcm", "dram", "dram"; "memory of the write that makes a page hot";
        "the move is scheduled, so the write may come first";
    "flat.moved_counter": "reset", "keep", "keep"; "counter of a page that moves"; "starts again";
    "levels.pcm_hit": "in-place", "in-place", "move"; "write of a page in PCM with two levels"; "it returns to DRAM";
    "drive.nand.program": "650us", "1300us", "2600us"; "flash program time"; "half; double";
    "drive.parallel_units": "1", "4", "8"; "units of a chip that work at once"; "one; every die";
};

/// Metric and title of each value in the study's chart.
const HEADLINES: &[(&str, &str)] = &[
    ("saving.1-20.max_percent", "Largest saving of energy with 1-20"),
    ("increase.12-72.max_percent", "Largest increase of energy with 12-72"),
    ("gain.1e7.over_42.best_percent", "Longest lifetime above 42, 1e7"),
    ("gain.1e8.over_42.best_percent", "Longest lifetime above 42, 1e8"),
    ("match.1e7.worst_percent", "Distance of the lifetimes of PCM and flash, 1e7"),
    ("penalty.1e7.4-80.worst_percent", "Largest penalty with 4-80, 1e7"),
    ("gain.1e8.4-80.best_percent", "Largest gain with 4-80, 1e8"),
    ("penalty.1e8.2-40.worst_percent", "Largest penalty with 2-40, 1e8"),
];

/// All settings that the study can change.
#[derive(Debug, Clone)]
pub(super) struct Assumptions {
    conditions: Conditions,
    tags: Tags,
}

/// The stand-ins of the study.
fn sources() -> Result<Vec<Source>, ReproError> {
    let all = Sources::new(&[])?.stand_ins;
    Ok(all.into_iter().filter(|source| TRACES.contains(&source.target.trace)).collect())
}

impl Study for Assumptions {
    const HEADLINES: &'static [(&'static str, &'static str)] = HEADLINES;
    const PARAMETERS: &'static [ParameterRow] = PARAMETERS;

    fn base(settings: &Settings) -> Self {
        let most = Some(settings.pick(REQUESTS, 2_000));
        Self {
            conditions: Conditions { most, seed: settings.seed, ..Conditions::default() },
            tags: Tags::Step,
        }
    }

    fn experiment(self, _settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let Self { conditions, tags } = self;
        let sources = sources()?;
        let runs = grid::runs(sources.iter(), &conditions, registry)?;
        let powers = TagPowers::new(registry)?;
        let capacities = Capacities::new(registry, &conditions.all)?;
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, move |finished| {
            let grid = Grid { finished, sources: &sources };
            let mut outcome = Outcome::default();
            energy::metrics(grid, &powers, tags, &mut outcome)?;
            lifetime::metrics(grid, &capacities, &mut outcome)?;
            response::metrics(grid, &mut outcome)?;
            Ok(outcome)
        }))
    }

    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError> {
        let ParameterChange { key, value } = change;
        let conditions = &mut self.conditions;
        match key.split_once('.') {
            Some(("flat", key)) => conditions.flat.push(format!("{key}={value}")),
            Some(("levels", key)) => conditions.levels.push(format!("{key}={value}")),
            Some(("buffer", key)) => conditions.all.push(format!("{key}={value}")),
            Some(("drive", _)) => conditions.all.push(format!("{key}={value}")),
            Some(_) => return Err(change.unsupported()),
            None => match (key, value) {
                ("tags", "linear") => self.tags = Tags::Linear,
                ("tags", "none") => self.tags = Tags::None,
                ("arrivals", "even") => conditions.arrivals = Arrivals::Even,
                ("warm", _) => conditions.warm = change.flag()?,
                ("requests", _) => {
                    // The numbers are those of full runs; quick runs keep the proportion.
                    let most = conditions.most.unwrap_or(REQUESTS);
                    conditions.most = Some(most * u64::from(change.count()?) / REQUESTS);
                }
                _ => return Err(change.unsupported()),
            },
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::{ChangedEnd, changed_ends};

    #[test]
    fn every_end_of_a_range_changes_the_runs_that_it_applies_to_and_no_others() {
        let (base, ends) = changed_ends::<Assumptions>();
        let levels = base.iter().filter(|name| name.ends_with(".2l")).count();
        let flat = base.iter().filter(|name| name.contains(".ts.") || name.contains(".tp.")).count();
        assert_eq!((levels, flat, base.len()), (18, 72, 93));
        for ChangedEnd { key, text, changed } in ends {
            let expected = match key.split_once('.') {
                Some(("flat", _)) => flat,
                Some(("levels", _)) => levels,
                // The energy of the tags is added after the runs.
                None if key == "tags" => 0,
                _ => base.len(),
            };
            assert_eq!(changed.len(), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_parameter_or_value_is_an_error() {
        let settings = Settings { quick: true, seed: 1 };
        for (key, value) in [("nothing", "1"), ("tags", "heavy"), ("warm", "lukewarm"), ("other.key", "1")] {
            let change = ParameterChange { key, value };
            let error = Assumptions::base(&settings).apply(change).unwrap_err().to_string();
            assert!(error.contains("sensitivity"), "{error}");
        }
    }
}
