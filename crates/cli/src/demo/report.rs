//! The text of the demo: progress while it runs, and the table at its end.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};

use super::worker::ProcessCounters;
use super::{ReportedToken, WorkerRun};
use crate::cli::DemoArgs;
use crate::output::{Table, count, duration, emit_json, emit_text, pairs, rate, size};

/// A phase of the demo: its accesses and their costs.
pub(super) struct Phase {
    name: &'static str,
    accesses: u64,
    took: Duration,
    faults: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Phase {
    pub(super) fn new(
        name: &'static str,
        accesses: u64,
        took: Duration,
        before: &ProcessCounters,
        after: &ProcessCounters,
    ) -> Self {
        Self {
            name,
            accesses,
            took,
            faults: after.faults - before.faults,
            read_bytes: after.read_bytes - before.read_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
        }
    }

    fn row(&self, state: String) -> Vec<String> {
        vec![
            self.name.into(),
            state,
            count(self.accesses),
            duration(self.took),
            rate(self.accesses, self.took),
            count(self.faults),
            size(self.read_bytes),
            size(self.written_bytes),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "accesses": self.accesses,
            "time_ns": self.took.as_nanos() as u64,
            "accesses_per_s": self.accesses as f64 / self.took.as_secs_f64().max(1e-9),
            "faults": self.faults,
            "read_bytes": self.read_bytes,
            "written_bytes": self.written_bytes,
        })
    }
}

/// A verified state.
pub(super) struct VerifiedState {
    pub(super) token: u64,
    pub(super) updates: u64,
    /// Wrong words.
    pub(super) errors: u64,
    /// Time of the recovery or rollback.
    pub(super) reached_in: Duration,
    pub(super) undo: Phase,
    pub(super) scan: Phase,
}

/// Prints one line for each step of the demo, unless the output is JSON.
pub(super) struct Narrator {
    silent: bool,
}

impl Narrator {
    pub(super) fn new(silent: bool) -> Self {
        Self { silent }
    }

    fn print(&self, step: &str, text: &str) {
        if !self.silent {
            // An error is reported with the table at the end; until then the work continues.
            let _ = emit_text(&format!("{step:<9} {text}\n"));
        }
    }

    pub(super) fn created(&mut self, path: &Path, args: &DemoArgs, bytes: u64, took: Duration) {
        let text = format!(
            "{} of memory on {} of flash ({}), {} of DRAM, in {}",
            size(args.size.0),
            size(bytes),
            path.display(),
            size(args.dram.0),
            duration(took)
        );
        self.print("create", &text);
    }

    pub(super) fn note(&mut self, note: &str) {
        self.print("note", note);
    }

    pub(super) fn filled(&mut self, fill: &Phase, token: u64, sync: Duration) {
        let (words, took) = (count(fill.accesses), duration(fill.took));
        self.print(
            "fill",
            &format!("{words} words in {took}; synced as token {token} in {}", duration(sync)),
        );
    }

    pub(super) fn killed(&mut self, worked: &WorkerRun) {
        let synced = worked.tokens.last().map_or(0, |t| t.updates);
        let tokens: Vec<u64> = worked.tokens.iter().map(|t| t.token).collect();
        let range = match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) => format!("tokens {first} to {last}"),
            _ => "no token".into(),
        };
        let text = format!("{} random updates in {}, synced as {range}", count(synced), {
            duration(worked.update.took)
        });
        self.print("update", &text);
        let lost = count(worked.lost_updates);
        self.print("kill", &format!("SIGKILL, at least {lost} updates after the last token"));
    }

    pub(super) fn reopened(&mut self, took: Duration, newest: u64, reported: &ReportedToken) {
        let text =
            format!("at token {newest} in {} (last reported: token {})", duration(took), reported.token);
        self.print("reopen", &text);
    }

    pub(super) fn rolled_back(&mut self, token: u64, took: Duration) {
        self.print("rollback", &format!("to token {token} in {}", duration(took)));
    }

    pub(super) fn verified(&mut self, verified: &VerifiedState, words: u64) {
        let text = format!(
            "token {}: {} updates undone, {} words read, {} wrong",
            verified.token,
            count(verified.updates),
            count(words),
            count(verified.errors)
        );
        self.print("verify", &text);
    }
}

/// Results of the demo.
pub(super) struct DemoResult {
    pub(super) size: u64,
    pub(super) flash: u64,
    pub(super) dram: u64,
    pub(super) threads: u32,
    pub(super) worked: WorkerRun,
    /// State of the last token, and state after the rollback.
    pub(super) verified: [VerifiedState; 2],
    pub(super) verify_counts: ProcessCounters,
    pub(super) took: Duration,
}

impl DemoResult {
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json { emit_json(&self.json()) } else { emit_text(&self.text()) }
    }

    /// Fails if a word was wrong or the resident memory exceeded the budget.
    pub(super) fn judge(&self) -> anyhow::Result<()> {
        let errors = self.errors();
        if errors > 0 {
            bail!("{} words are wrong: this is a defect of deepram, please report it", count(errors));
        }
        if self.resident_max() > self.dram {
            bail!(
                "resident memory reached {}, above the budget of {}: this is a defect of deepram, please report it",
                size(self.resident_max()),
                size(self.dram)
            );
        }
        Ok(())
    }

    fn errors(&self) -> u64 {
        self.verified.iter().map(|v| v.errors).sum()
    }

    /// Peak resident memory of the worker and the demo, bytes.
    fn resident_max(&self) -> u64 {
        self.worked.counts.resident_bytes.max(self.verify_counts.resident_bytes)
    }

    fn amplification(&self) -> f64 {
        self.worked.counts.written_bytes as f64 / self.worked.counts.user_bytes.max(1) as f64
    }

    /// Median and maximum time of a sync.
    fn sync_times(&self) -> (Duration, Duration) {
        let mut times: Vec<u64> = self.worked.tokens.iter().map(|t| t.sync_ns).collect();
        times.sort_unstable();
        let at = |n: usize| Duration::from_nanos(times.get(n).copied().unwrap_or(0));
        (at(times.len() / 2), at(times.len().saturating_sub(1)))
    }

    fn text(&self) -> String {
        let [last, earlier] = &self.verified;
        let mut table =
            Table::new(&["<phase", "<state", "accesses", "time", "rate", "faults", "read", "written"]);
        table.row(self.worked.fill.row("new".into()));
        table.row(self.worked.update.row("being synced".into()));
        for verified in [last, earlier] {
            table.row(verified.undo.row(format!("token {}", verified.token)));
            table.row(verified.scan.row(format!("token {}", verified.token)));
        }
        let (median, most) = self.sync_times();
        let syncs = self.worked.tokens.len() as u64;
        let written: u64 = self.worked.tokens.iter().map(|t| t.written_bytes).sum();
        let words = self.size / 8;
        let full = 4 * words;
        let mut text = String::from("\n");
        text += &table.render();
        text.push('\n');
        text += &pairs(&[
            ("memory", format!("{}, {} times its DRAM", size(self.size), ratio(self.size, self.dram))),
            ("flash", size(self.flash)),
            (
                "resident memory",
                format!(
                    "peak {} of {} (VmRSS of the whole process)",
                    size(self.resident_max()),
                    size(self.dram)
                ),
            ),
            ("threads", self.threads.to_string()),
            (
                "updates",
                format!(
                    "{} before the kill (the full run of HPCC has {})",
                    count(self.worked.update.accesses),
                    count(full)
                ),
            ),
            ("write amplification", format!("{:.2}", self.amplification())),
            (
                "sync",
                format!(
                    "{} (median of {}), maximum {}; {} written for each",
                    duration(median),
                    count(syncs),
                    duration(most),
                    size(written / syncs.max(1))
                ),
            ),
            ("recovery", format!("{} after the kill", duration(last.reached_in))),
            ("rollback", format!("{} to token {}", duration(earlier.reached_in), earlier.token)),
            (
                "verification errors",
                format!("{} of {} words, at two tokens", count(self.errors()), count(words)),
            ),
        ]);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\ndone in {}", duration(self.took));
        text
    }

    fn json(&self) -> Value {
        let [last, earlier] = &self.verified;
        let (median, most) = self.sync_times();
        let state = |v: &VerifiedState| {
            json!({
                "token": v.token,
                "updates": v.updates,
                "wrong_words": v.errors,
                "undo": v.undo.json(),
                "read": v.scan.json(),
            })
        };
        let tokens: Vec<Value> = self
            .worked
            .tokens
            .iter()
            .map(|t| {
                json!({
                    "token": t.token,
                    "updates": t.updates,
                    "sync_ns": t.sync_ns,
                    "written_bytes": t.written_bytes,
                })
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "size_bytes": self.size,
            "flash_bytes": self.flash,
            "dram_bytes": self.dram,
            "threads": self.threads,
            "resident_max_bytes": self.resident_max(),
            "resident_max_worker_bytes": self.worked.counts.resident_bytes,
            "fill": self.worked.fill.json(),
            "update": self.worked.update.json(),
            "tokens": tokens,
            "lost_updates": self.worked.lost_updates,
            "write_amplification": self.amplification(),
            "sync_median_ns": median.as_nanos() as u64,
            "sync_max_ns": most.as_nanos() as u64,
            "recovery_ns": last.reached_in.as_nanos() as u64,
            "rollback_ns": earlier.reached_in.as_nanos() as u64,
            "last_token": state(last),
            "earlier_token": state(earlier),
            "verification_errors": self.errors(),
            "total_ns": self.took.as_nanos() as u64,
        })
    }
}

/// A quotient, without decimals if it is an integer.
fn ratio(a: u64, b: u64) -> String {
    if a.is_multiple_of(b) { (a / b).to_string() } else { format!("{:.1}", a as f64 / b as f64) }
}
