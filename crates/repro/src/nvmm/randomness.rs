//! Varies the share of random accesses: a table that does not fit into DRAM is updated at a random word
//! or at the next one (NVMM, A Closer Look at Random Accesses; numbers in the earlier draft).

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::processor::equal_share;
use deepram_trace::workload::Rng;

use super::machine::{Machine, MachineConfig, Program, RunSpec, Technology};
use super::programs::{of_table, update};
use crate::chart::{Axis, Chart, Drawing, Reference, Series};
use crate::error::ReproError;
use crate::experiment::{Experiment, FinishedRuns, Outcome, Settings};
use crate::statistics::crossover;

const THREADS: [u32; 2] = [1, 16];
const MACHINES: [(&str, Machine); 2] = [("ssd", Machine::Ssd), ("nvmm", Machine::Nvmm(0))];
const WORD: u64 = 8;

/// The threads make `updates` updates of a table among them: `percent` of them at a random word, the
/// others at the word after the thread's last one.
fn program(base: &MachineConfig, threads: u32, updates: u64, percent: u32, seed: u64) -> Program {
    let (words, gap, probability) = (base.data / WORD, base.gap, f64::from(percent) / 100.0);
    let text = format!("{updates} updates, {percent} % at random, seed {seed}");
    of_table(base, text, threads, move |number| {
        let mut random = Rng::new(seed, &format!("thread {number}"));
        let mut word = random.below(words);
        (0..equal_share(updates, number.into(), threads.into())).flat_map(move |_| {
            word = if random.unit() < probability { random.below(words) } else { (word + 1) % words };
            update(word * WORD, gap)
        })
    })
}

fn name(machine: &str, threads: u32, percent: u32) -> String {
    format!("{machine}.t{threads}.random{percent}")
}

fn words(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

/// Builds the experiment.
pub(super) fn experiment(settings: &Settings, registry: &Arc<Registry>) -> Result<Experiment, ReproError> {
    let scale = settings.pick(1, 64);
    let percents: Vec<u32> = settings.pick((10..=100).step_by(10).collect(), vec![10, 100]);
    let mut runs = Vec::new();
    for threads in THREADS {
        let base = MachineConfig::default().scaled(scale).with_cores(threads);
        for &percent in &percents {
            let program = program(&base, threads, settings.pick(5_000, 500), percent, settings.seed);
            for (machine, kind) in MACHINES {
                let setting = RunSpec {
                    name: name(machine, threads, percent),
                    machine: kind,
                    technology: Technology::MLC_75,
                    program: program.clone(),
                    base: base.clone(),
                    seed: settings.seed,
                };
                runs.push(setting.run(registry)?);
            }
        }
    }
    Ok(Experiment::new(
        "randomness",
        "Share of random accesses",
        "5000 updates of the table of GUPS, 768 MiB behind 512 MiB of DRAM, with flash of 75 µs and no \
         prefetching by NVMM; the SSD system reads swap clusters. Each update is of a random word or of the \
         next one (assumed, because the paper does not say what the step is). \
         Metrics without a number of threads are for one thread; the draft does not say which it means.",
        runs,
        move |finished| evaluate(finished, &percents),
    ))
}

fn evaluate(finished: &FinishedRuns<'_>, percents: &[u32]) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    let metrics = &mut outcome.metrics;
    let mut times = Vec::new();
    for (machine, _) in MACHINES {
        let mut of = Vec::new();
        for threads in THREADS {
            let points = percents
                .iter()
                .map(|&percent| {
                    let time = finished.metric(&name(machine, threads, percent), "simulated_time_ns")?;
                    Ok((f64::from(percent), time / 1e6))
                })
                .collect::<Result<Vec<_>, ReproError>>()?;
            of.push(Series::new(&format!("{machine}, {}", words(threads)), points));
        }
        if let [one, many] = &of[..] {
            for (&(percent, one), &(_, many)) in one.points.iter().zip(&many.points) {
                metrics.set(format!("{machine}.many_threads.random{percent}"), one / many);
            }
            if let Some(at) = crossover(&many.points, &one.points) {
                metrics.set(format!("{machine}.many_threads_overtake_percent"), at);
            }
        }
        times.push(of);
    }
    let mut speedups = Vec::new();
    if let [ssd, nvmm] = &times[..] {
        for ((ssd, nvmm), threads) in ssd.iter().zip(nvmm).zip(THREADS) {
            let ratios = ssd.points.iter().zip(&nvmm.points).map(|(ssd, nvmm)| (ssd.0, ssd.1 / nvmm.1));
            let points: Vec<_> = ratios.collect();
            let prefix = if threads == 1 { "speedup".into() } else { format!("speedup.t{threads}") };
            for (percent, speedup) in &points {
                metrics.set(format!("{prefix}.random{percent}"), *speedup);
            }
            speedups.push(Series::new(&words(threads), points));
        }
    }
    outcome.charts.push(Chart {
        title: "Time by share of random accesses".into(),
        about: "Time of all updates; less is better.".into(),
        drawing: Drawing::Lines {
            x: Axis::linear("random accesses", "%"),
            y: Axis::log("time", "ms"),
            series: times.concat(),
            area: false,
        },
        references: Vec::new(),
    });
    outcome.charts.push(Chart {
        title: "Speedup of NVMM over the SSD system by share of random accesses".into(),
        about: "Time of the SSD system over that of NVMM; more is better for NVMM.".into(),
        drawing: Drawing::Lines {
            x: Axis::linear("random accesses", "%"),
            y: Axis::linear("speedup", ""),
            series: speedups,
            area: false,
        },
        references: [("paper, 10 %", 2.0), ("paper, 100 %", 5.0)]
            .map(|(name, value)| Reference { name: name.into(), value })
            .into(),
    });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use deepram_sim::processor::ThreadStep;
    use deepram_trace::{MemRef, MemoryAccess};

    use super::*;
    use crate::result_cache::{CachedResult, ResultsByDigest};

    /// Addresses of a thread's updates, each a load and a store.
    fn updates(percent: u32, threads: u32) -> Vec<Vec<u64>> {
        let base = MachineConfig { data: 1 << 20, ..MachineConfig::default() };
        let made = (program(&base, threads, 10_001, percent, 4).threads)().unwrap();
        let addresses = made.into_iter().map(|thread| {
            let all: Vec<MemRef> = thread
                .map(|step| match step.unwrap() {
                    ThreadStep::Access(reference) => reference,
                    step => panic!("{step:?}"),
                })
                .collect();
            for pair in all.chunks(2) {
                assert_eq!((pair[0].access, pair[1].access), (MemoryAccess::Load, MemoryAccess::Store));
                assert_eq!(pair[0].addr, pair[1].addr);
            }
            all.chunks(2).map(|pair| pair[0].addr).collect()
        });
        addresses.collect()
    }

    #[test]
    fn the_share_of_random_updates_is_the_one_requested() {
        for (percent, threads) in [(10, 1), (70, 1), (10, 16), (100, 16), (0, 4)] {
            let all = updates(percent, threads);
            assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 10_001);
            let follow = all
                .iter()
                .flat_map(|of| of.windows(2))
                .filter(|pair| pair[1] == (pair[0] + WORD) % (1 << 20));
            let share = follow.count() as f64 / (10_001 - threads) as f64;
            // Binomial: the standard deviation is at most half a percent.
            let expected = 1.0 - f64::from(percent) / 100.0;
            assert!((share - expected).abs() < 0.025, "{percent} % of {threads}: {share} follow (seed 4)");
        }
    }

    #[test]
    fn the_claim_gets_its_figures() {
        let settings = Settings { quick: true, seed: 1 };
        let registry = Arc::new(Registry::builtin().unwrap());
        let experiment = experiment(&settings, &registry).unwrap();
        let claim = super::super::CLAIMS.iter().find(|claim| claim.experiment == experiment.id).unwrap();
        let mut results = ResultsByDigest::default();
        for run in &experiment.runs {
            let stored = CachedResult {
                digest: run.digest.clone(),
                name: run.name.clone(),
                procedure: run.procedure.into(),
                config: run.config.clone(),
                metrics: run.execute().unwrap(),
                wall_s: 0.0,
            };
            results.insert(run.digest.clone(), stored);
        }
        let metrics = experiment.outcome(&results).unwrap().unwrap().metrics.0;
        for name in claim.metrics {
            assert!(metrics[*name].is_finite() && metrics[*name] > 0.0, "{name}");
        }
    }
}
