//! Replays of all traces on all buffers, under all policies and endurances, and what the figures read from
//! them.

use std::sync::Arc;

use deepram_media::{Bandwidth, Bytes, Registry, Ssd, WriteBuffer, lifetime_seconds};
use deepram_trace::workload::standin::Collection;

use super::replay::{BASELINE, Conditions, Endurance, HYBRIDS, Policy, Replay, Scheme, name};
use super::sources::Source;
use crate::error::ReproError;
use crate::experiment::FinishedRuns;
use crate::simulation_run::SimulationRun;
use crate::statistics::mean;

/// The runs of all buffers for these sources. Two levels are run once: their endurance changes nothing but their
/// lifetime.
pub(super) fn runs<'a>(
    sources: impl Iterator<Item = &'a Source>,
    conditions: &Conditions,
    registry: &Arc<Registry>,
) -> Result<Vec<SimulationRun>, ReproError> {
    let mut runs = Vec::new();
    for source in sources {
        runs.push(Replay::new(source, BASELINE, None, conditions).run(registry)?);
        for buffer in HYBRIDS {
            for endurance in Endurance::ALL {
                for scheme in Scheme::FLAT {
                    let policy = Policy { scheme, endurance };
                    runs.push(Replay::new(source, buffer, Some(policy), conditions).run(registry)?);
                }
            }
            let policy = Policy { scheme: Scheme::TwoLevel, endurance: Endurance::Low };
            runs.push(Replay::new(source, buffer, Some(policy), conditions).run(registry)?);
        }
    }
    Ok(runs)
}

/// All policies at all endurances.
pub(super) fn policies(schemes: &[Scheme]) -> Vec<Policy> {
    let of = |endurance| schemes.iter().map(move |&scheme| Policy { scheme, endurance });
    Endurance::ALL.into_iter().flat_map(of).collect()
}

/// Sizes and endurance of the memories, for lifetimes.
#[derive(Debug, Clone)]
pub(super) struct Capacities {
    /// Page of PCM and flash, bytes.
    page: u64,
    /// PCM of each hybrid buffer.
    pcm: Vec<Bytes>,
    flash: Bytes,
    flash_endurance: u64,
}

impl Capacities {
    /// The capacities of the presets; `overrides` as for a simulation.
    ///
    /// # Errors
    /// A preset cannot be resolved.
    pub(super) fn new(registry: &Registry, overrides: &[String]) -> Result<Self, ReproError> {
        let wrong = |error: deepram_media::MediaError| ReproError::Config {
            what: "capacities".into(),
            source: Box::new(error.into()),
        };
        let drive: Vec<&str> = overrides.iter().filter_map(|text| text.strip_prefix("drive.")).collect();
        let ssd: Ssd = registry.get_with("ssd.hybrid-buffer", &drive).map_err(wrong)?;
        let mut pcm = Vec::new();
        for buffer in HYBRIDS {
            let preset: WriteBuffer = registry.get(&format!("buffer.hybrid-{buffer}")).map_err(wrong)?;
            pcm.push(preset.pcm.size);
        }
        Ok(Self { page: ssd.nand.page.0, pcm, flash: ssd.raw_bytes(), flash_endurance: ssd.nand.endurance })
    }

    /// Hours until `writes` pages in `seconds` wear a memory out. No write counts as one.
    fn hours(&self, (size, endurance): (Bytes, u64), writes: f64, seconds: f64) -> f64 {
        let rate = Bandwidth(writes.max(1.0) * self.page as f64 / seconds);
        lifetime_seconds(size, endurance, rate, 1.0, 1.0) / 3600.0
    }
}

/// Lifetimes, in hours, with perfect wear levelling.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetime {
    /// Of PCM; infinite for a buffer without PCM.
    pub(super) pcm: f64,
    pub(super) flash: f64,
}

impl Lifetime {
    /// The shorter of the two.
    pub(super) fn shorter(self) -> f64 {
        self.pcm.min(self.flash)
    }
}

/// Finished replays of these sources.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) finished: &'a FinishedRuns<'a>,
    pub(super) sources: &'a [Source],
}

impl Grid<'_> {
    /// A metric of the baseline (`policy` is `None`) or of a hybrid buffer.
    pub(super) fn metric(
        &self,
        source: &Source,
        buffer: &str,
        policy: Option<Policy>,
        metric: &str,
    ) -> Result<f64, ReproError> {
        self.finished.metric(&name(source, buffer, policy), metric)
    }

    /// The metric relative to that of the baseline under the same trace.
    pub(super) fn relative(
        &self,
        source: &Source,
        buffer: &str,
        policy: Policy,
        metric: &str,
    ) -> Result<f64, ReproError> {
        let baseline = self.metric(source, BASELINE, None, metric)?;
        Ok(self.metric(source, buffer, Some(policy), metric)? / baseline)
    }

    /// The sources of a collection.
    pub(super) fn of_group(&self, group: Collection) -> Vec<&Source> {
        self.sources.iter().filter(|source| source.group() == group).collect()
    }

    /// Arithmetic mean over the traces of a collection.
    pub(super) fn group_mean(
        &self,
        group: Collection,
        value: impl Fn(&Source) -> Result<f64, ReproError>,
    ) -> Result<f64, ReproError> {
        let values = self.of_group(group).into_iter().map(value).collect::<Result<Vec<_>, _>>()?;
        mean(&values).ok_or_else(|| ReproError::Paper {
            paper: "ssd-buffer".into(),
            why: format!("no trace of {group:?} was replayed"),
        })
    }

    /// The lifetimes under a trace.
    pub(super) fn lifetime(
        &self,
        source: &Source,
        buffer: &str,
        policy: Option<Policy>,
        capacities: &Capacities,
    ) -> Result<Lifetime, ReproError> {
        let of = |metric: &str| self.metric(source, buffer, policy, metric);
        let seconds = of("seconds")?;
        let flash = (capacities.flash, capacities.flash_endurance);
        let flash = capacities.hours(flash, of("flash.programs")?, seconds);
        let size = HYBRIDS.iter().position(|hybrid| *hybrid == buffer).map(|at| capacities.pcm[at]);
        let pcm = match (size, policy) {
            (Some(size), Some(policy)) => {
                capacities.hours((size, policy.endurance.writes()), of("pcm_page_writes")?, seconds)
            }
            _ => f64::INFINITY,
        };
        Ok(Lifetime { pcm, flash })
    }
}
