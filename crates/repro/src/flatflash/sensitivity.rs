//! Sensitivity study of the programs: one assumption at a time is set to the ends of its plausible
//! range.
//!
//! 1. The study runs smaller versions of the experiments: only the ends of their sweeps, smaller sizes,
//!    one of the two graphs. Its ratios therefore differ slightly from those that claims are judged on.
//! 2. A parameter of promotion or of lines over the link changes only runs of FlatFlash, a parameter of
//!    the storage stack only those of TraditionalStack. The other runs are shared with the base.

use std::sync::Arc;

use deepram_media::Registry;

use super::latency::WarmUp;
use super::machine::{ALL, MachineConfig, RunContext};
use super::{cost, graph, gups, latency, redis};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{ParameterChange, ParameterRow, Study, parameters};

/// The parameters. Keys with `flat.` apply to FlatFlash alone, with `stack.` to TraditionalStack alone, with `all.`
/// to the presets of all machines.
const PARAMETERS: &[ParameterRow] = parameters! {
    "flat.fill_idle": "false", "false", "true"; "promote at the first access while DRAM has unused frames";
        "Algorithm 1 only counts accesses, but a warm-up may have filled DRAM";
    "flat.max_threshold": "1", "7", "14"; "maximum promotion threshold"; "promote at the first access; double";
    "flat.algorithm": "literal", "decided", "decided"; "variant of Algorithm 1"; "as printed";
    "flat.reset_epoch": "as scaled", "as scaled", "10000"; "accesses per epoch of Algorithm 1"; "unscaled";
    "flat.line_read": "1us", "4.8us", "4.8us"; "latency of a line load over the link";
        "a link of 0.5 us each way, as in SkyByte-Artifact";
    "flat.posted_writes": "16", "64", "256"; "capacity of the write buffer, stores"; "a quarter; four times";
    "flat.platform_epoch": "10ms", "none", "1s"; "protection epoch of the paper's platform, before scaling";
        "the paper measured on it, the base is the hardware of its section 3; experiment platform has a sweep";
    "promote": "2us", "12.1us", "12.1us"; "time to move a page to DRAM"; "a page at the link's speed";
    "walk": "0.05us", "0.7us", "0.7us"; "time of a page-table walk"; "a walk served by the processor's caches";
    "all.nand.read": "1us", "9.76us", "89.76us"; "flash array read time";
        "the fastest devices of Figure 14; a read of 100 us";
    "all.nand.program": "16us", "246us", "1200us"; "flash program time";
        "the Z-SSD's write latency, section 3.3; a part that programs one page at once";
    "all.nand.suspend_program": "1us", "20us", "10ms"; "time to suspend a program for a read";
        "nearly none; a device that cannot suspend";
    "all.hit_policy": "hit", "hit", "frequency"; "effect of a hit on a page's RRIP interval";
        "the other variant of RRIP";
    "all.write_queue": "as scaled", "as scaled", "64"; "queued programs per die"; "unscaled";
    "tlb": "as scaled", "as scaled", "1024"; "TLB entries"; "unscaled, whatever the size of the data";
    "memory": "0.25", "1", "4"; "factor on the size of the drive's memory (0.125 % of the drive)";
        "a quarter; four times";
    "cpu": "0.1", "1", "2"; "factor on the size of the processor's cache (30 MiB)";
        "one core's share; both sockets";
    "stack.software.wait": "0us", "1.1us", "33.13us"; "wait in the storage stack";
        "none; Linux with the SLC drive in the NVMM study";
    "stack.indirections": "1", "2", "4"; "translation tables besides the page table"; "one; double";
    "latency.stores": "0", "0", "0.5"; "share of stores in section 5.1"; "the paper mentions reads and writes";
    "latency.warm_up": "lines", "pages", "pages"; "warm-up of section 5.1";
        "the paper says that it is random, not what an access is";
    "gups.threads": "1", "24", "24"; "threads of GUPS"; "the paper says several";
    "graph.threads": "1", "1", "24"; "threads of the graph programs"; "one per core";
    "redis.threads": "1", "16", "16"; "concurrent Redis requests"; "Redis serves one client at a time";
    "redis.theta": "0.5", "0.99", "0.99"; "skew of Redis keys";
        "the paper sets the working set by the distribution's parameter";
};

/// Metric and title of each value in the study's chart.
const HEADLINES: &[(&str, &str)] = &[
    ("random.over_unified.mean", "Random access over UnifiedMMap"),
    ("sequential.over_unified.mean", "Sequential access over UnifiedMMap"),
    ("gups.time.over_unified.mean", "GUPS over UnifiedMMap"),
    ("pagerank.time.over_unified.mean", "PageRank over UnifiedMMap"),
    ("redis.mean.over_unified.mean", "Redis over UnifiedMMap, mean"),
    ("redis.p99.over_unified.mean", "Redis over UnifiedMMap, 99th percentile"),
];

/// All settings that the study can change.
#[derive(Debug, Clone)]
pub(super) struct Assumptions {
    base: MachineConfig,
    latency: latency::Extent,
    gups: gups::Extent,
    graph: graph::Extent,
    redis: redis::Extent,
}

impl Study for Assumptions {
    const HEADLINES: &'static [(&'static str, &'static str)] = HEADLINES;
    const PARAMETERS: &'static [ParameterRow] = PARAMETERS;

    fn base(settings: &Settings) -> Self {
        Self {
            base: MachineConfig::default(),
            latency: latency::Extent::for_sensitivity(),
            gups: gups::Extent::for_sensitivity(settings),
            graph: graph::Extent::for_sensitivity(settings),
            redis: redis::Extent::for_sensitivity(settings),
        }
    }

    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let Self { base, latency, gups, graph, redis } = self;
        let context = RunContext { base: &base, ..RunContext::plain(settings, registry) };
        let mut runs = latency::runs(context, latency)?;
        let context = RunContext { machines: &ALL, ..context };
        runs.extend(gups::runs(context, gups)?);
        runs.extend(graph::runs(context, graph)?);
        runs.extend(redis::runs(context, redis)?);
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, move |finished| {
            let mut outcome = Outcome::default();
            for metrics in [
                latency::metrics(finished, latency)?,
                gups::metrics(finished, gups)?,
                graph::metrics(finished, graph)?,
                redis::metrics(finished, redis)?,
            ] {
                outcome.metrics.0.extend(metrics.0);
            }
            cost::slowdowns(finished, (gups, graph, redis), &mut outcome)?;
            Ok(outcome)
        }))
    }

    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError> {
        let ParameterChange { key, value } = change;
        let base = &mut self.base;
        match key.split_once('.') {
            Some(("flat", "platform_epoch")) => base.platform_epoch_ns = Some(change.picoseconds()? / 1000),
            Some(("flat", key)) => base.flat.push(format!("{key}={value}")),
            Some(("stack", key)) => base.stack.push(format!("{key}={value}")),
            Some(("all", key)) => base.overrides.push(format!("{key}={value}")),
            Some(("latency", "stores")) => self.latency.stores = change.number()?,
            Some(("latency", "warm_up")) if value == "lines" => self.latency.warm_up = WarmUp::Lines,
            Some(("gups", "threads")) => self.gups.threads = change.count()?,
            Some(("graph", "threads")) => self.graph.threads = change.count()?,
            Some(("redis", "threads")) => self.redis.threads = change.count()?,
            Some(("redis", "theta")) => self.redis.theta = change.number()?,
            Some(_) => return Err(change.unsupported()),
            None => match key {
                "promote" | "walk" => base.overrides.push(format!("{key}={value}")),
                "tlb" => base.overrides.push(format!("tlb_entries={value}")),
                "memory" => base.buffer_times = Some(change.number()?),
                "cpu" => base.cpu_times = Some(change.number()?),
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
    fn every_end_of_a_range_changes_runs_and_only_those_of_its_machine() {
        let (base, ends) = changed_ends::<Assumptions>();
        let of = |machine: &str| base.iter().filter(|name| name.contains(&format!(".{machine}."))).count();
        for ChangedEnd { key, text, changed } in ends {
            let changed = changed.len();
            match key.split_once('.') {
                Some(("flat", _)) => assert_eq!(changed, of("flatflash"), "{text}"),
                Some(("stack", _)) => assert_eq!(changed, of("stack"), "{text}"),
                Some(("all", _)) => assert_eq!(changed, base.len(), "{text}"),
                // A cache of minimal size cannot shrink further.
                None => assert!(changed > 0, "{text}"),
                Some(_) => assert!((1..base.len()).contains(&changed), "{text}"),
            }
        }
    }

    #[test]
    fn an_unknown_parameter_or_value_is_an_error() {
        let mut assumptions = Assumptions::base(&Settings { quick: true, seed: 1 });
        for (key, value) in [("nothing", "1"), ("gups.thread", "1"), ("memory", "large")] {
            let error = assumptions.apply(ParameterChange { key, value }).unwrap_err().to_string();
            assert!(error.contains("sensitivity"), "{error}");
        }
    }
}
