//! Sensitivity study of the flash disk cache: one choice that the paper leaves open at a time is set to the ends of its
//! plausible range.
//!
//! 1. The study has three parts: lifetime, one region against two, and the server in time. Each is smaller than the
//!    experiment that its claims are judged on, so their values differ.
//! 2. A key with `life.` applies to the lifetimes, with `regions.` to the regions, with `server.` to the server in time,
//!    with `all.` to the three of them.

use std::sync::Arc;

use deepram_media::Registry;

use super::lifetime::LifetimeStudy;
use super::regions::{self, RegionsStudy};
use super::server::{self, PowerStudy};
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{ParameterChange, ParameterRow, Study, parameters};

const PARAMETERS: &[ParameterRow] = parameters! {
    "life.page_deviation": "0", "10", "20"; "deviation of the endurance of pages, percent"; "the ends of Figure 5";
    "life.errors.bit_deviation": "0.75", "1.5", "3"; "deviation of the cycles that bits bear, logarithmic"; "half; double";
    "life.errors.rated_strength": "1", "1", "4"; "bits that a code must correct until the rated endurance";
        "data sheets of MLC parts ask for 4 bits";
    "life.errors.transient": "0", "1e-9", "0.000001"; "probability that a fresh bit is read wrong once"; "none; 1000 times";
    "life.slc.endurance": "50000", "100000", "1000000"; "cycles of single-level cells"; "half; ten times";
    "life.margin": "1", "1", "3"; "bits that a code corrects beyond the faults of its page"; "two more";
    "life.retirement": "block", "block", "page"; "unit that is retired: the block of the failed page, or the page"; "the page alone";
    "life.wear_swap": "false", "true", "true"; "whether blocks of different wear change places"; "off";
    "life.wear_difference": "2", "2", "16"; "difference of wear above which they do"; "eight times";
    "life.wear_strength": "0", "0.01", "0.1"; "erases that a bit of added strength counts as"; "none; ten times";
    "life.wear_single": "0", "0.1", "1"; "erases that a single-level slot counts as"; "none; ten times";
    "life.wear_scale": "800", "1600", "3200"; "factor by which cells wear faster"; "half; double";
    "life.flush": "16384", "65536", "262144"; "accesses between passes over dirty pages of flash"; "a quarter; four times";
    "all.hot_limit": "16", "64", "1024"; "reads of a page that make it hot"; "a quarter; sixteen times";
    "all.migrate_hot": "false", "true", "true"; "whether hot pages move to single-level cells"; "off";
    "all.age_reads": "100000", "1000000", "10000000"; "flash reads after which reads are halved"; "a tenth; ten times";
    "all.write_share": "5%", "10%", "30%"; "share of the write region"; "half; three times";
    "all.least_dead": "0", "10%", "30%"; "dead pages that make a block worth reclaiming"; "any; three times";
    "all.low_blocks": "1", "2", "8"; "free blocks below which reclamation begins"; "half; four times";
    "all.reclaim": "greedy", "greedy", "all"; "blocks that one reclamation handles"; "Figure 4 to the letter";
    "all.ecc.law": "proportional", "affine", "proportional"; "decoding time over strength"; "the paper's doubling to the letter";
    "regions.theta": "0.7", "0.9", "1.1"; "exponent of the workload"; "flatter; steeper";
    "regions.read": "0.5", "0.7", "0.9"; "share of reads"; "as many writes; few";
    "regions.dram_cache": "1MiB", "8MiB", "16MiB"; "DRAM, over 48 MiB of flash"; "an eighth; double";
    "regions.flush": "16384", "65536", "262144"; "accesses between passes over dirty pages of flash"; "a quarter; four times";
    "server.clients": "1", "16", "64"; "clients in a closed loop"; "one; 64";
    "server.think": "0us", "0us", "10ms"; "time between an answer and a client's next request"; "a processor that is busy";
    "server.theta": "0.7", "0.9", "1.2"; "exponent of the database"; "flatter; steeper";
    "server.web_theta": "0.9", "1.1", "1.3"; "exponent of the web server"; "flatter; steeper";
    "server.read": "0.5", "0.7", "0.95"; "share of reads of the database"; "as many writes; few";
    "server.without": "dram-512m", "dram-512m", "dram-1g"; "server without flash"; "Figure 3";
    "server.write_back_period": "100ms", "1s", "30s"; "interval of passes over dirty pages of DRAM"; "a tenth; as of flash";
    "server.flush_period": "5s", "30s", "300s"; "interval of passes over dirty pages of flash"; "a sixth; ten times";
    "server.write_back_queue": "16", "256", "4096"; "pages on their way to flash"; "a sixteenth; sixteen times";
    "server.disk.flat_access": "2.1ms", "4.2ms", "12.5ms"; "access time of the disk";
        "half; the seek and the rotation of the paper's disk";
    "server.dies": "1", "4", "16"; "dies of the flash"; "one; four times";
    "server.software": "0us", "0us", "100us"; "processor time of a request"; "a request of a busy kernel";
    "server.network": "12.5MB/s", "125MB/s", "1.25GB/s"; "network"; "100 Mbit; 10 Gbit";
};

/// Metric and title of each value in the study's chart.
const HEADLINES: &[(&str, &str)] = &[
    ("ratio.mean", "Lifetime over a code of one bit"),
    ("years.longest", "Years of the best workload"),
    ("unified.miss_percent", "Misses, one region"),
    ("split.miss_percent", "Misses, two regions"),
    ("oltp.throughput_gain_percent", "Throughput of dbt2 with flash"),
    ("oltp.power_saving_percent", "Power saved under dbt2"),
    ("web.throughput_gain_percent", "Throughput of SPECWeb99 with flash"),
    ("web.power_saving_percent", "Power saved under SPECWeb99"),
];

/// All settings that the study can change.
#[derive(Debug, Clone)]
pub(super) struct Assumptions {
    settings: Settings,
    life: LifetimeStudy,
    deviation: u32,
    regions: RegionsStudy,
    /// Exponent and share of reads of the regions' workload.
    database: (String, String),
    server: PowerStudy,
}

impl Study for Assumptions {
    const HEADLINES: &'static [(&'static str, &'static str)] = HEADLINES;
    const PARAMETERS: &'static [ParameterRow] = PARAMETERS;

    fn base(settings: &Settings) -> Self {
        let mut life = LifetimeStudy::new(settings);
        // Uniform accesses, and few hot pages.
        (life.workloads, life.controllers) = (vec![0, 2], 2);
        life.set.push(format!("wear_scale={}", settings.pick(1600, 20_000)));
        let mut regions = RegionsStudy::new(settings);
        // An eighth of everything.
        regions.sizes = vec![384];
        regions.shortened = settings.pick(8, 64);
        regions.periods = (1 << 9, 1 << 16);
        regions.set = vec!["dram_cache=8MiB".into()];
        regions.set.extend(settings.quick.then(|| "dram_cache=2MiB".into()));
        let mut server = PowerStudy::new(settings);
        server.shorten(settings);
        let database = ("0.9".into(), "0.7".into());
        Self { settings: *settings, life, deviation: 10, regions, database, server }
    }

    fn experiment(self, settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
        let Self { life, deviation, mut regions, database: (theta, read), server, .. } = self;
        regions.workload = format!("zipf:theta={theta},span=256MiB,read={read},size=8KiB");
        let mut runs = life.runs(settings, registry, deviation, "")?;
        runs.extend(regions.runs(settings, registry)?);
        runs.extend(server.runs(settings, registry)?);
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, move |finished| {
            let mut outcome = Outcome::default();
            life.metrics(finished, &mut outcome)?;
            regions::metrics(&regions, finished, &mut outcome)?;
            server::metrics(&server, finished, &mut outcome)?;
            Ok(outcome)
        }))
    }

    fn apply(&mut self, change: ParameterChange<'_>) -> Result<(), ReproError> {
        let ParameterChange { key, value } = change;
        let (life, regions, server) = (&mut self.life, &mut self.regions, &mut self.server);
        let (part, name) = key.split_once('.').ok_or_else(|| change.unsupported())?;
        let set = format!("{name}={value}");
        match (part, name) {
            ("life", "page_deviation") => self.deviation = change.count()?,
            ("life", "flush") => life.periods.1 = change.count()?.into(),
            ("life", "wear_scale") if self.settings.quick => {
                // The numbers are those of full runs; quick runs keep the proportion.
                life.set.push(format!("wear_scale={}", 25 * change.count()? / 2));
            }
            ("life", _) => life.set.push(set),
            ("regions", "theta") => self.database.0 = value.into(),
            ("regions", "read") => self.database.1 = value.into(),
            ("regions", "flush") => regions.periods.1 = change.count()?.into(),
            ("regions", _) => regions.set.push(set),
            ("server", "clients") => server.clients = change.count()?,
            ("server", "think") => server.think_ps = change.picoseconds()?,
            ("server", "theta") => server.database.0 = value.into(),
            ("server", "read") => server.database.1 = value.into(),
            ("server", "web_theta") => server.web = value.into(),
            ("server", "without") => server.without = value.into(),
            ("server", _) => server.set.push(set),
            ("all", _) => {
                for list in [&mut life.set, &mut regions.set, &mut server.set] {
                    list.push(set.clone());
                }
            }
            _ => return Err(change.unsupported()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::{check_parts, check_refused};

    #[test]
    fn every_end_of_a_range_changes_runs_of_its_part_and_no_others() {
        check_parts::<Assumptions>(|name| match name {
            name if name.ends_with(".384") => "regions",
            name if name.starts_with("oltp") || name.starts_with("web") => "server",
            _ => "life",
        });
    }

    #[test]
    fn an_unknown_parameter_or_value_is_an_error() {
        check_refused::<Assumptions>(&[
            ("nothing", "1"),
            ("server.clients", "few"),
            ("other.key", "1"),
            ("life.nothing", "1"),
        ]);
    }
}
