//! Two programs that others wrote: their uses of pages are recorded once by `deepram trace record`, with little DRAM; the record
//! is simulated with other sizes of DRAM, and the programs are measured with these under `deepram run`.
//!
//! Nearly all uses of pages are recorded (`--accesses`): a record of faults alone lacks the uses of pages that stay in memory while it
//! is made, and other pages stay in the predicted runs. The processor time of a program is that of a run in which all of its memory
//! fits, less the simulated faults of that run. It is spread over the recorded accesses in proportion to the times between them, less
//! what a second chance takes and, where so much time passed, a read of the device.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use deepram_core::Bytes;
use deepram_media::{MeasuredFile, Picos};
use deepram_sim::host::{HostOptions, drive};
use deepram_trace::{Item, ReadOptions, Request, TraceReader};
use serde_json::Value;

use super::swap::{SwapCosts, simulated_counts};
use super::workload::Workload;
use super::{Counts, Outcome, PAGE};
use crate::bench::ablate;

/// DRAM while a program is recorded: the least that `deepram run` takes.
const RECORD_DRAM: u64 = 16 << 20;
/// What follows SQLite's load.
const SQLITE_COUNT: &str = "print(d.execute('select count(*) from t').fetchone())\n";

/// A program whose uses of pages are recorded.
pub(super) struct Program {
    work: Workload,
    dir: PathBuf,
    /// The Python interpreter, without the scripts that may stand before it.
    python: String,
    requests: Vec<Request>,
    /// Bytes that the record spans.
    pub(super) data: u64,
    /// Memory that is not paged, bytes; it is a part of the DRAM.
    unpaged: u64,
}

impl Program {
    /// Runs a program with little DRAM and records its uses of pages.
    pub(super) fn record(work: Workload, dir: &Path) -> anyhow::Result<Self> {
        if work == Workload::Sort {
            std::fs::write(dir.join("lines"), ablate::lines())?;
        }
        let python = if work == Workload::Sqlite { interpreter()? } else { String::new() };
        let mut program = Self { work, dir: dir.into(), python, requests: Vec::new(), data: 0, unpaged: 0 };
        let trace = dir.join(format!("{}.trace", if work == Workload::Sort { "sort" } else { "sqlite" }));
        let out = trace.display().to_string();
        let (_, stats) = program.start(&["trace", "record", "--accesses", "--out", &out], RECORD_DRAM)?;
        program.unpaged = stats["unpaged_peak_bytes"].as_u64().unwrap_or(0);
        for item in TraceReader::open(&trace, &ReadOptions::default())? {
            if let Item::Block(request) = item? {
                program.data = program.data.max((request.offset + request.len).next_multiple_of(PAGE));
                program.requests.push(Request { len: 8, ..request });
            }
        }
        ensure!(!program.requests.is_empty(), "{}: no fault was recorded", work.name());
        std::fs::remove_file(&trace)?;
        Ok(program)
    }

    /// Runs the program once and returns its seconds and the statistics of the run.
    fn start(&self, words: &[&str], dram: u64) -> anyhow::Result<(f64, Value)> {
        let deepram = std::env::current_exe().context("finding this command")?;
        let lines = self.dir.join("lines").display().to_string();
        let sqlite = [ablate::SQLITE_LOAD, SQLITE_COUNT].concat();
        let program: &[&str] = match self.work {
            Workload::Sort => &["sort", "--parallel=1", "-S", "512M", "-o", "/dev/null", &lines],
            _ => &[&self.python, "-c", &sqlite],
        };
        let mut command = Command::new(deepram);
        command.args(words).args(["--dram", &format!("{dram}B"), "--stats", "json"]);
        command.arg("--store").arg(&self.dir).arg("--").args(program).stdin(Stdio::null());
        let begin = Instant::now();
        let output = command.output()?;
        let elapsed = begin.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}: {}", self.work.name(), output.status, said.trim());
        let json = said.find('{').map(|at| &said[at..]);
        let stats = json.and_then(|json| serde_json::Deserializer::from_str(json).into_iter().next());
        let stats: Value = stats.transpose()?.with_context(|| format!("no statistics in {said:?}"))?;
        Ok((elapsed, stats))
    }

    /// Measures the program with this much DRAM; rates and counts are those of a recorded access.
    pub(super) fn measure(&self, dram: u64) -> anyhow::Result<Outcome> {
        let (elapsed, stats) = self.start(&["run"], dram)?;
        let accesses = self.requests.len() as f64;
        let each = |name: &str| stats[name].as_u64().unwrap_or(0) as f64 / accesses;
        let counts = Counts {
            misses: each("faults_major"),
            second_chances: each("victim_buffer_hits"),
            first_stores: each("faults_write_protected"),
            read_ahead: each("readahead_pages"),
            written: each("written_back_pages"),
        };
        Ok(Outcome { per_s: accesses / elapsed, counts, frames: None })
    }

    /// DRAM with which all memory of the program fits.
    pub(super) fn ample(&self) -> u64 {
        2 * self.data + self.unpaged + (64 << 20)
    }

    /// Processor time of the program before each recorded access, picoseconds; in all that of a run with [`Program::ample`] DRAM at
    /// the rate `ample_per_s`.
    pub(super) fn think_times(
        &self,
        file: &MeasuredFile,
        costs: &SwapCosts,
        ample_per_s: f64,
    ) -> anyhow::Result<Vec<u64>> {
        let none = vec![0; self.requests.len()];
        let faults = self.simulate(file, costs, self.ample(), &none)?;
        let seconds = (1.0 / ample_per_s - 1.0 / faults.per_s).max(0.0) * self.requests.len() as f64;
        let fault = (costs.second_chance_ns * 1e3) as u64;
        let Picos(read) = file.latency(false, Bytes(PAGE));
        let before = std::iter::once(0).chain(self.requests.iter().filter_map(|request| request.time_ps));
        let gaps = self.requests.iter().zip(before).map(|(request, before)| {
            let gap = request.time_ps.unwrap_or(0).saturating_sub(before).saturating_sub(fault);
            if gap > read / 2 { gap.saturating_sub(read) } else { gap }
        });
        let gaps: Vec<u64> = gaps.collect();
        let scale = seconds * 1e12 / (gaps.iter().sum::<u64>() as f64).max(1.0);
        Ok(gaps.into_iter().map(|gap| (gap as f64 * scale) as u64).collect())
    }

    /// Simulates the recorded accesses.
    pub(super) fn simulate(
        &self,
        file: &MeasuredFile,
        costs: &SwapCosts,
        dram: u64,
        think_times: &[u64],
    ) -> anyhow::Result<Outcome> {
        let paged = dram.saturating_sub(self.unpaged).max(dram / 4);
        let mut model = costs.model(file, self.data, paged, true)?;
        let host = HostOptions { closed: true, think_times: true, ..HostOptions::default() };
        let requests = self.requests.iter().zip(think_times);
        let requests = requests.map(|(request, think)| Ok(Request { time_ps: Some(*think), ..*request }));
        let simulated = drive(&mut model, requests, &host)?;
        let counts = simulated_counts(&model, self.requests.len() as u64);
        Ok(Outcome { per_s: simulated.requests_per_s, counts, frames: None })
    }

    /// What the record holds, as text.
    pub(super) fn shown(&self) -> String {
        format!(
            "{}: {} accesses to {} recorded with {} of DRAM, {} of it not paged",
            self.work.name(),
            self.requests.len(),
            Bytes(self.data),
            Bytes(RECORD_DRAM),
            Bytes(self.unpaged)
        )
    }
}

/// Path of the interpreter that `python3` starts.
fn interpreter() -> anyhow::Result<String> {
    let output = Command::new("python3")
        .args(["-c", "import sqlite3, sys; print(sys.executable)"])
        .stdin(Stdio::null())
        .output()
        .context("python3")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "python3 with its module sqlite3: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
