//! `deepram bench ablate`: what each heuristic gives, of the pager of `deepram run` or of a pool. Programs run with all heuristics
//! and with one of them turned off, by turns; the ratio of the two times is taken within each pair.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use deepram_core::Bytes;
use deepram_pager::Heuristic;
use deepram_pool::FaultOptions;
use serde::Serialize;

use super::memory::{self, Peer, Workload};
use super::{OutputArgs, Report, Scratch};
use crate::output::{Table, progress};

/// Options of `deepram bench ablate`.
#[derive(Debug, Args)]
pub(crate) struct AblateArgs {
    /// Store behind the memory: heuristics of the pager under `deepram run`, or of a mapped pool
    #[arg(long, default_value = "swap", value_name = "STORE")]
    backing: Backing,
    /// Heuristics to turn off, one at a time [default: all that the backing has]
    #[arg(long, value_delimiter = ',', value_name = "HEURISTIC")]
    only: Vec<Heuristic>,
    /// Programs to run [default: all that the backing runs]
    #[arg(long, value_delimiter = ',', value_name = "PROGRAM")]
    programs: Vec<Program>,
    /// Folder for the swap files and the inputs, on the device to be measured
    #[arg(long, default_value = "/var/tmp", value_name = "PATH")]
    pub(super) dir: PathBuf,
    /// Rounds: each runs a program with all heuristics, then without each
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// What holds the pages that are not in DRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Backing {
    /// The swap file of `deepram run`
    Swap,
    /// A pool, whose programs are the loops over an array
    Pool,
}

impl Backing {
    fn heuristics(self) -> &'static [Heuristic] {
        match self {
            Self::Swap => &Heuristic::ALL,
            Self::Pool => &FaultOptions::HEURISTICS,
        }
    }
}

/// What runs: loops over an array four times as large as its DRAM, and programs that others wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Program {
    /// Random reads by one thread
    Reads,
    /// Random reads by four threads
    Reads4,
    /// Random updates by one thread
    Updates,
    /// Zipf-distributed reads by one thread
    Zipf,
    /// Reads of rows of 16 KiB in random order
    Rows,
    /// Sequential reads
    Scan,
    /// GNU sort of random lines
    Sort,
    /// SQLite: a table in memory is filled, indexed and joined
    Sqlite,
    /// Python: sorting and grouping of objects
    Python,
}

/// DRAM budget of the loops over arrays, the array's size, and the length of their measurement.
const ARRAY_DRAM: Bytes = Bytes(64 << 20);
const ARRAY: Bytes = Bytes(256 << 20);
const SECONDS: f64 = 3.0;
/// Budget of the other programs.
const PROGRAM_DRAM: Bytes = Bytes(64 << 20);
/// Lines that `sort` sorts.
const LINES: u32 = 2_000_000;

/// SQLite's load, for Python: a table in memory is filled and indexed.
pub(super) const SQLITE_LOAD: &str = "import sqlite3
d = sqlite3.connect(':memory:')
d.execute('create table t(id integer primary key, k integer, v text)')
d.executemany('insert into t(k, v) values(?, ?)', ((i * 7919 % 1000003, 'value %d' % i) for i in range(1500000)))
d.execute('create index i on t(k)')
";
const SQLITE_JOIN: &str = "\
print(d.execute('select count(*), sum(length(a.v)) from t a join t b on a.k = b.id where b.id % 97 = 0').fetchone())
";
const PYTHON: &str = "import random
r = random.Random(1)
all = [(r.random(), i) for i in range(380000)]
all.sort()
groups = {}
for value, i in all: groups.setdefault(i % 1009, []).append(value)
print(len(groups), sum(len(g) for g in groups.values()))
";

impl Program {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn dram(self) -> Bytes {
        match self {
            Self::Sort | Self::Sqlite | Self::Python => PROGRAM_DRAM,
            _ => ARRAY_DRAM,
        }
    }

    fn workload(self) -> Option<(Workload, u32)> {
        match self {
            Self::Reads => Some((Workload::Reads, 1)),
            Self::Reads4 => Some((Workload::Reads, 4)),
            Self::Updates => Some((Workload::Updates, 1)),
            Self::Zipf => Some((Workload::Zipf, 1)),
            Self::Rows => Some((Workload::Rows, 1)),
            Self::Scan => Some((Workload::Scan, 1)),
            Self::Sort | Self::Sqlite | Self::Python => None,
        }
    }

    /// Runs once, without one heuristic if one is given. Returns the seconds of an access, or of the program.
    fn run(
        self,
        backing: Backing,
        deepram: &Path,
        dir: &Path,
        off: Option<Heuristic>,
    ) -> anyhow::Result<f64> {
        match (backing, self.workload()) {
            (Backing::Pool, Some(workload)) => {
                let memory = (ARRAY.0, ARRAY_DRAM.0);
                let off = off.map(|off| off.name().to_owned());
                let words = memory::worker_words(Peer::Pool, memory, workload, SECONDS, dir, off)?;
                let output = Command::new(deepram).args(words).stdin(Stdio::null()).output()?;
                std::fs::remove_file(dir.join("data"))?;
                self.check(&output)?;
                memory::seconds_per_access(&String::from_utf8_lossy(&output.stdout))
            }
            _ => self.run_paged(deepram, dir, off),
        }
    }

    fn check(self, output: &Output) -> anyhow::Result<()> {
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}: {}", self.name(), output.status, said.trim());
        Ok(())
    }

    fn run_paged(self, deepram: &Path, dir: &Path, off: Option<Heuristic>) -> anyhow::Result<f64> {
        let lines = dir.join("lines").display().to_string();
        let words: Vec<String> = match self.workload() {
            Some((workload, threads)) => {
                let memory = (ARRAY.0, ARRAY.0);
                let worker =
                    memory::worker_words(Peer::Plain, memory, (workload, threads), SECONDS, dir, None)?;
                std::iter::once(deepram.display().to_string()).chain(worker).collect()
            }
            None => match self {
                Self::Sqlite => vec!["python3".into(), "-c".into(), [SQLITE_LOAD, SQLITE_JOIN].concat()],
                Self::Python => ["python3", "-c", PYTHON].map(str::to_owned).into(),
                _ => ["sort", "-S", "512M", "-o", "/dev/null", &lines].map(str::to_owned).into(),
            },
        };
        let mut command = Command::new(deepram);
        command.args(["run", "--dram", &format!("{}B", self.dram().0), "--store"]).arg(dir);
        if let Some(off) = off {
            command.args(["--without", off.name()]);
        }
        let begin = Instant::now();
        let output = command.arg("--").args(words).stdin(Stdio::null()).output()?;
        let elapsed = begin.elapsed().as_secs_f64();
        self.check(&output)?;
        match self.workload() {
            Some(_) => memory::seconds_per_access(&String::from_utf8_lossy(&output.stdout)),
            None => Ok(elapsed),
        }
    }
}

#[derive(Serialize)]
struct AblateReport {
    backing: Backing,
    array_bytes: u64,
    array_dram_bytes: u64,
    program_dram_bytes: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    program: String,
    /// Seconds of an access, or of the program, with all heuristics; one number a round.
    base_s: Vec<f64>,
    without: Vec<Without>,
}

#[derive(Serialize)]
struct Without {
    heuristic: &'static str,
    /// Time without the heuristic by the time with all of the same round.
    ratios: Vec<f64>,
    /// Their median: 1.1 means that the heuristic saves a tenth of the time that the program takes with it.
    median: f64,
}

pub(super) fn run(args: &AblateArgs) -> anyhow::Result<Report> {
    let deepram = std::env::current_exe().context("finding this command")?;
    let scratch = Scratch::new(&args.dir).with_context(|| args.dir.display().to_string())?;
    let dir = std::fs::canonicalize(&scratch.0)?;
    let backing = args.backing;
    let chosen = |program: &Program| {
        let runs = backing == Backing::Swap || program.workload().is_some();
        if args.programs.is_empty() { runs } else { args.programs.contains(program) }
    };
    let programs: Vec<Program> = Program::value_variants().iter().copied().filter(chosen).collect();
    let heuristics = if args.only.is_empty() { backing.heuristics() } else { &args.only };
    if let Some(off) = heuristics.iter().find(|off| !backing.heuristics().contains(off)) {
        return Err(crate::Usage(format!("--only {off}: a pool does not have this heuristic")).into());
    }
    if let Some(program) =
        programs.iter().find(|program| backing == Backing::Pool && program.workload().is_none())
    {
        let text =
            format!("--programs {}: with --backing pool only the loops over an array run", program.name());
        return Err(crate::Usage(text).into());
    }
    if programs.contains(&Program::Sort) {
        std::fs::write(dir.join("lines"), lines())?;
    }
    let bar = progress("measuring");
    bar.set_length(programs.len() as u64 * u64::from(args.rounds) * (1 + heuristics.len() as u64));
    let mut rows = Vec::new();
    for program in programs {
        let mut base_s = Vec::new();
        let mut ratios = vec![Vec::new(); heuristics.len()];
        for round in 0..args.rounds {
            bar.set_message(format!("{}, {} of {}", program.name(), round + 1, args.rounds));
            let once = |off| {
                bar.inc(1);
                program.run(backing, &deepram, &dir, off)
            };
            let base = once(None)?;
            base_s.push(base);
            for (heuristic, ratios) in heuristics.iter().zip(&mut ratios) {
                ratios.push(once(Some(*heuristic))? / base);
            }
        }
        let without = heuristics.iter().zip(ratios).map(|(heuristic, ratios)| {
            let mut sorted = ratios.clone();
            sorted.sort_by(f64::total_cmp);
            Without { heuristic: heuristic.name(), median: sorted[sorted.len() / 2], ratios }
        });
        rows.push(Row { program: program.name(), base_s, without: without.collect() });
    }
    bar.finish_and_clear();
    let report = AblateReport {
        backing,
        array_bytes: ARRAY.0,
        array_dram_bytes: ARRAY_DRAM.0,
        program_dram_bytes: PROGRAM_DRAM.0,
        rows,
    };
    Report::new(&report, text(&report, heuristics))
}

/// Lines of 20 characters for `sort`, the same at each call.
pub(super) fn lines() -> String {
    let mut state = 1_u64;
    (0..LINES)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{state:020}\n")
        })
        .collect()
}

/// A table: a row for each program, a column for each heuristic.
fn text(report: &AblateReport, heuristics: &[Heuristic]) -> String {
    let headings: Vec<&str> =
        std::iter::once("<program").chain(heuristics.iter().map(|heuristic| heuristic.name())).collect();
    let mut table = Table::new(&headings);
    for row in &report.rows {
        let cell = |without: &Without| {
            let (least, most) = without
                .ratios
                .iter()
                .fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(*ratio), most.max(*ratio)));
            format!("{:.2} ({least:.2}-{most:.2})", without.median)
        };
        table.row(std::iter::once(row.program.clone()).chain(row.without.iter().map(cell)).collect());
    }
    format!("time without each heuristic by the time with all: median (least-most)\n\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_many_and_unsorted() {
        let lines = lines();
        let first: Vec<&str> = lines.lines().take(100).collect();
        assert!(!first.is_sorted() && first.iter().all(|line| line.len() == 20));
        assert_eq!(lines.lines().count(), LINES as usize);
    }

    #[test]
    fn the_table_has_the_median_and_the_spread() {
        let without = Without { heuristic: "leader", ratios: vec![0.9, 1.5, 1.25], median: 1.25 };
        let row = Row { program: "reads".into(), base_s: vec![1.0; 3], without: vec![without] };
        let report = AblateReport {
            backing: Backing::Swap,
            array_bytes: 4,
            array_dram_bytes: 1,
            program_dram_bytes: 1,
            rows: vec![row],
        };
        let text = text(&report, &[Heuristic::Leader]);
        assert!(text.contains("reads") && text.contains("1.25 (0.90-1.50)"), "{text}");
    }
}
