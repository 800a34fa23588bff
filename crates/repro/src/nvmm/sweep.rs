//! Latency sweeps: GUPS and MMAP over the read latency of the flash, with one thread and sixteen, with and
//! without prefetch (NVMM, Latency Sensitivity).

use std::sync::Arc;

use deepram_media::Registry;

use super::machine::{Machine, Program, Setting};
use crate::chart::{Axis, Chart, Drawing, Series};
use crate::curve::crossover;
use crate::error::ReproError;
use crate::experiment::{Experiment, Finished, Outcome, Settings};

/// Read latencies in microseconds; SLC is 25, MLC 75.
const LATENCIES: [f64; 7] = [1.0, 10.0, 25.0, 75.0, 150.0, 375.0, 750.0];
const THREADS: [u32; 2] = [1, 16];
const WINDOW: u32 = 16;

const MACHINES: [(&str, Machine); 3] =
    [("ssd", Machine::Ssd), ("nvmm", Machine::Nvmm(0)), ("nvmm.prefetch16", Machine::Nvmm(WINDOW))];

/// The sweep of a program.
pub(super) fn experiment(
    settings: &Settings,
    registry: &Arc<Registry>,
    program: Program,
) -> Result<Experiment, ReproError> {
    let (id, title, accesses) = match program {
        Program::Gups => ("gups", "GUPS over the latency of flash", 5_000),
        Program::Mmap => ("mmap", "MMAP over the latency of flash", 10_000),
    };
    let setting = |machine, threads, read_us, blocking| Setting {
        machine,
        program,
        threads,
        read_us,
        blocking,
        accesses: settings.pick(accesses, accesses / 10),
        seed: settings.seed,
    };
    let mut runs = Vec::new();
    for threads in THREADS {
        for read_us in LATENCIES {
            for (_, machine) in MACHINES {
                runs.push(setting(machine, threads, read_us, false).run(registry)?);
            }
        }
        // The assumption that weighs most: whether a load that misses keeps the next from being sent.
        for (_, machine) in MACHINES {
            runs.push(setting(machine, threads, 75.0, true).run(registry)?);
        }
    }
    Ok(Experiment::new(
        id,
        title,
        "Table or file four times the DRAM. The processor reorders: a thread has as many misses under way as \
         its window and miss registers allow. A page fault waits for the loads before it. The runs named \
         \"blocking\" have one load under way at a time.",
        runs,
        move |finished| evaluate(finished, title),
    ))
}

fn time(
    finished: &Finished<'_>,
    machine: &str,
    threads: u32,
    read_us: f64,
    blocking: bool,
) -> Result<f64, ReproError> {
    let blocking = if blocking { ".blocking" } else { "" };
    finished.figure(&format!("{machine}.t{threads}.{read_us}us{blocking}"), "simulated_time_ns")
}

fn evaluate(finished: &Finished<'_>, title: &str) -> Result<Outcome, ReproError> {
    let mut outcome = Outcome::default();
    for threads in THREADS {
        let mut series = Vec::new();
        for (name, _) in MACHINES {
            let points = LATENCIES
                .iter()
                .map(|&read_us| Ok((read_us, time(finished, name, threads, read_us, false)? / 1e6)))
                .collect::<Result<Vec<_>, ReproError>>()?;
            series.push(Series::new(name, points));
        }
        for read_us in LATENCIES {
            let ssd = time(finished, "ssd", threads, read_us, false)?;
            let plain = time(finished, "nvmm", threads, read_us, false)?;
            let ahead = time(finished, "nvmm.prefetch16", threads, read_us, false)?;
            outcome.figures.set(format!("speedup.t{threads}.{read_us}us"), ssd / plain);
            outcome.figures.set(format!("speedup.t{threads}.prefetch16.{read_us}us"), ssd / ahead);
            outcome.figures.set(format!("prefetch_gain.t{threads}.{read_us}us"), plain / ahead);
        }
        let ssd = time(finished, "ssd", threads, 75.0, true)?;
        for name in ["nvmm", "nvmm.prefetch16"] {
            let ours = time(finished, name, threads, 75.0, true)?;
            outcome.figures.set(format!("blocking.{name}.t{threads}.75us"), ssd / ours);
        }
        if let [ssd, nvmm, _] = &series[..]
            && let Some(at) = crossover(&ssd.points, &nvmm.points)
        {
            outcome.figures.set(format!("crossover.t{threads}_us"), at);
        }
        outcome.charts.push(Chart {
            title: format!("{title}, {threads} {}", if threads == 1 { "thread" } else { "threads" }),
            about: "Time of the random accesses over the array time of a read; less is better.".into(),
            drawing: Drawing::Lines {
                x: Axis::log("read latency", "µs"),
                y: Axis::log("time", "ms"),
                series,
                area: false,
            },
            references: Vec::new(),
        });
    }
    Ok(outcome)
}
