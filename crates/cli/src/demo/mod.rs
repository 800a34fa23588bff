//! `deepram demo`: updates, crash, recovery and rollback of a pool larger than its DRAM.
//!
//! 1. The demo creates a pool several times larger than its DRAM.
//! 2. A worker process ([`worker`]) fills a table in the pool, updates it ([`gups`]) and syncs it repeatedly, until
//!    the demo kills the worker between two syncs.
//! 3. The demo reopens the pool, which must hold exactly the updates of the last token: the same updates a second
//!    time must restore the index in every word.
//! 4. The demo rolls back to the oldest kept token and verifies every word again.

mod gups;
mod report;
mod resident;
pub(crate) mod worker;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use deepram_core::Bytes;
use deepram_pool::{CreateOptions, Pool, PoolError, Retention};
use indicatif::ProgressBar;

use self::report::{DemoResult, Narrator, Phase, VerifiedState};
use self::worker::{ProcessCounters, Sampler, WorkerMessage, roots};
use crate::cli::DemoArgs;
use crate::output::progress;

/// Tokens that the pool keeps. Each holds one round of updates, so that all fit in addition to the table.
const KEEP: u32 = 4;
/// Least tokens before the kill, so that an earlier one exists for the rollback.
const LEAST_TOKENS: usize = 3;
/// A round updates at most one in this number of the table's segments.
const ROUND_SHARE: u64 = 8;
/// Longest time without progress of the worker.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Disk space that stays free, bytes.
const SPARE: u64 = 64 << 20;

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let mut narrator = Narrator::new(args.json);
    let started = Instant::now();
    let file = PoolFile::create(args, &mut narrator)?;
    let round = (args.size.0 / 4096 / ROUND_SHARE).max(1024);
    let session = Session { args, file: &file, round };
    let worked = session.work(&mut narrator)?;
    let (verified, verify_counts) = session.verify(&worked, &mut narrator)?;
    let result = DemoResult {
        size: args.size.0,
        flash: file.bytes,
        dram: args.dram.0,
        threads: args.threads,
        worked,
        verified,
        verify_counts,
        took: started.elapsed(),
    };
    result.show(args.json)?;
    result.judge()
}

/// The file of the demo's pool. Without `--keep` the file has no name, so that it vanishes with the last
/// process that has it open.
struct PoolFile {
    /// Path by which this process opens the file.
    path: PathBuf,
    /// The open file, which the worker gets as standard input.
    file: File,
    bytes: u64,
    named: bool,
}

impl PoolFile {
    fn create(args: &DemoArgs, narrator: &mut Narrator) -> anyhow::Result<Self> {
        ensure!(args.dir.is_dir(), "--dir {}: not a folder", args.dir.display());
        // Flash for the table, the kept tokens and reclamation.
        let bytes = args.size.0 / 2 * 5 + (64 << 20);
        let disk = rustix::fs::statvfs(&args.dir)
            .with_context(|| format!("reading the free space of {}", args.dir.display()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        ensure!(
            free >= bytes + SPARE,
            "the demo needs {} in {}, which has {}: give another folder with --dir or a smaller table with --size",
            Bytes(bytes + SPARE),
            args.dir.display(),
            Bytes(free)
        );
        let name = if args.keep {
            "deepram-demo.pool".into()
        } else {
            format!("deepram-demo-{}.pool", std::process::id())
        };
        let path = args.dir.join(name);
        let options = CreateOptions {
            flash: Some(bytes),
            retention: Retention::KeepLast(KEEP),
            // The named roots and the update count have pages of their own.
            ..CreateOptions::new(args.size.0 + (1 << 20))
        };
        let started = Instant::now();
        Pool::create(&[&path], &options)?;
        let opened = File::options().read(true).write(true).open(&path);
        if !args.keep {
            std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
        let file = opened.with_context(|| format!("opening {}", path.display()))?;
        let bytes = file.metadata()?.len();
        narrator.created(&path, args, bytes, started.elapsed());
        let path = if args.keep { path } else { format!("/proc/self/fd/{}", file.as_raw_fd()).into() };
        Ok(Self { path, file, bytes, named: args.keep })
    }

    /// Path by which the worker opens the file, which is its standard input.
    fn path_for_worker(&self) -> &Path {
        if self.named { &self.path } else { Path::new("/proc/self/fd/0") }
    }
}

/// The worker process. Dropping this value kills the process.
struct WorkerProcess {
    child: Child,
    messages: Receiver<anyhow::Result<WorkerMessage>>,
}

impl WorkerProcess {
    fn start(args: &DemoArgs, file: &PoolFile, round: u64) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this executable")?;
        let mut child = Command::new(program)
            .arg("demo-worker")
            .args(["--words", &(args.size.0 / 8).to_string()])
            .args(["--dram", &args.dram.0.to_string()])
            .args(["--threads", &args.threads.to_string()])
            .args(["--round", &round.to_string()])
            .args(["--parent", &std::process::id().to_string()])
            .arg("--pool")
            .arg(file.path_for_worker())
            .stdin(file.file.try_clone()?)
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the worker")?;
        let out = child.stdout.take().context("the worker has no standard output")?;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let parsed = line
                    .map_err(anyhow::Error::from)
                    .and_then(|text| serde_json::from_str(&text).map_err(anyhow::Error::from));
                if sender.send(parsed).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, messages })
    }

    /// The next message; `None` once the worker has ended.
    fn message(&self) -> anyhow::Result<Option<WorkerMessage>> {
        match self.messages.recv_timeout(STALL_TIMEOUT) {
            Ok(message) => Ok(Some(message?)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("the worker has sent no message for {STALL_TIMEOUT:?}"),
        }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("killing the worker")?;
        self.child.wait().context("waiting for the worker")?;
        Ok(())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // An error means that the worker has ended already.
        let _ = self.kill();
    }
}

/// A token that the worker reported.
#[derive(Debug, Clone, Copy)]
struct ReportedToken {
    token: u64,
    updates: u64,
    sync_ns: u64,
    /// Bytes written by the sync and by the write-back before it.
    written_bytes: u64,
}

/// Work of the worker until it was killed.
struct WorkerRun {
    fill: Phase,
    update: Phase,
    tokens: Vec<ReportedToken>,
    counts: ProcessCounters,
    /// Lower bound of the updates made after the last token.
    lost_updates: u64,
}

/// One run of the demo.
struct Session<'a> {
    args: &'a DemoArgs,
    file: &'a PoolFile,
    round: u64,
}

impl Session<'_> {
    fn work(&self, narrator: &mut Narrator) -> anyhow::Result<WorkerRun> {
        let mut worker = WorkerProcess::start(self.args, self.file, self.round)?;
        let (fill, mut last) = self.watch_fill(&worker, narrator)?;
        let filled = last;
        let started = Instant::now();
        let wanted = Duration::from_secs(self.args.seconds);
        let bar = progress("updating");
        bar.set_length(wanted.as_millis() as u64);
        let mut tokens: Vec<ReportedToken> = Vec::new();
        let mut updates = 0;
        let mut moved = Instant::now();
        loop {
            let Some(message) = worker.message()? else { bail!(self.worker_failed(&mut worker)?) };
            let synced = tokens.last().map_or(0, |t: &ReportedToken| t.updates);
            match message {
                WorkerMessage::Token { token, updates: synced, sync_ns, counts } => {
                    let written_bytes = counts.written_bytes - last.written_bytes;
                    tokens.push(ReportedToken { token, updates: synced, sync_ns, written_bytes });
                    last = counts;
                    moved = Instant::now();
                }
                WorkerMessage::Progress { updates: now, .. } => {
                    if now != updates {
                        (updates, moved) = (now, Instant::now());
                    }
                    ensure!(
                        moved.elapsed() < STALL_TIMEOUT,
                        "the worker has made no update for {STALL_TIMEOUT:?}"
                    );
                    let lost = now.saturating_sub(synced);
                    // The kill comes in the middle of a round, so that unsynced updates are lost. With rounds too
                    // short to be observed there, the kill comes anywhere.
                    let amid = lost > self.round / 4 && lost < self.round / 4 * 3;
                    let late = started.elapsed() >= wanted + Duration::from_secs(1) && lost > 0;
                    if started.elapsed() >= wanted && tokens.len() >= LEAST_TOKENS && (amid || late) {
                        break;
                    }
                }
                WorkerMessage::Note(note) => narrator.note(&note),
                WorkerMessage::Filled { .. } => {}
            }
            bar.set_position(started.elapsed().as_millis() as u64);
        }
        let update = Phase::new("update", updates, started.elapsed(), &filled, &last);
        worker.kill()?;
        // The worker may have synced once more before it was killed.
        while let Ok(message) = worker.messages.recv() {
            match message {
                Ok(WorkerMessage::Token { token, updates: synced, sync_ns, counts }) => {
                    let written_bytes = counts.written_bytes - last.written_bytes;
                    tokens.push(ReportedToken { token, updates: synced, sync_ns, written_bytes });
                    last = counts;
                }
                Ok(WorkerMessage::Progress { updates: now, .. }) => updates = now,
                // The last message may be incomplete.
                _ => {}
            }
        }
        bar.finish_and_clear();
        let synced = tokens.last().map_or(0, |t| t.updates);
        let lost_updates = updates.saturating_sub(synced);
        let worked = WorkerRun { fill, update, tokens, counts: last, lost_updates };
        narrator.killed(&worked);
        Ok(worked)
    }

    fn watch_fill(
        &self,
        worker: &WorkerProcess,
        narrator: &mut Narrator,
    ) -> anyhow::Result<(Phase, ProcessCounters)> {
        let words = self.args.size.0 / 8;
        let bar = progress("filling");
        bar.set_length(words);
        let mut filled = (0, Instant::now());
        loop {
            match worker.message()? {
                Some(WorkerMessage::Filled { fill_ns, sync_ns, token, counts }) => {
                    bar.finish_and_clear();
                    let took = Duration::from_nanos(fill_ns);
                    let fill = Phase::new("fill", words, took, &ProcessCounters::default(), &counts);
                    narrator.filled(&fill, token, Duration::from_nanos(sync_ns));
                    return Ok((fill, counts));
                }
                Some(WorkerMessage::Progress { words_filled, .. }) => {
                    if words_filled != filled.0 {
                        filled = (words_filled, Instant::now());
                    }
                    ensure!(
                        filled.1.elapsed() < STALL_TIMEOUT,
                        "the worker has filled no word for {STALL_TIMEOUT:?}"
                    );
                    bar.set_position(words_filled);
                }
                Some(WorkerMessage::Note(note)) => narrator.note(&note),
                Some(WorkerMessage::Token { .. }) => {}
                None => bail!("the worker ended during the fill; its error is above"),
            }
        }
    }

    fn worker_failed(&self, worker: &mut WorkerProcess) -> anyhow::Result<String> {
        let status = worker.child.wait()?;
        Ok(format!("the worker ended during the updates ({status}); its error is above"))
    }

    fn verify(
        &self,
        worked: &WorkerRun,
        narrator: &mut Narrator,
    ) -> anyhow::Result<([VerifiedState; 2], ProcessCounters)> {
        let sampler = Sampler::default();
        let started = Instant::now();
        let (pool, _) = worker::open(&self.file.path, self.args.dram.0)?;
        let recovery = started.elapsed();
        let history = pool.history()?;
        let newest = history.last().map_or(0, |t| t.token.0);
        let reported = worked.tokens.last().context("no token was reported")?;
        narrator.reopened(recovery, newest, reported);
        // A later token is right as well: the worker was killed between its commit and its report.
        ensure!(
            newest >= reported.token,
            "the pool opened at token {newest}, but the worker had synced token {}",
            reported.token
        );
        let updates_of = |token: u64| {
            let known = worked.tokens.iter().find(|t| t.token == token).map(|t| t.updates);
            known.unwrap_or_else(|| reported.updates + (token - reported.token) * self.round)
        };
        let stop = AtomicBool::new(false);
        let sampled = std::thread::scope(|scope| {
            let sampling = scope.spawn(|| -> anyhow::Result<ProcessCounters> {
                while !stop.load(Relaxed) {
                    sampler.sample(&pool)?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                sampler.sample(&pool)
            });
            // Stops the sampling thread also if the verification panics.
            let running = StopAtEnd(&stop);
            let result = (|| {
                let last =
                    self.verify_state(&pool, &sampler, newest, updates_of(newest), recovery, narrator)?;
                // The history is read only now, because the pool drops old tokens when it needs their space.
                let history = pool.history()?;
                let earlier = history.iter().find(|t| worked.tokens.iter().any(|w| w.token == t.token.0));
                let earlier =
                    earlier.filter(|t| t.token.0 < newest).context("the pool keeps no earlier token")?;
                let started = Instant::now();
                pool.rollback(earlier.token)?;
                let took = started.elapsed();
                narrator.rolled_back(earlier.token.0, took);
                let token = earlier.token.0;
                let earlier = self.verify_state(&pool, &sampler, token, updates_of(token), took, narrator)?;
                anyhow::Ok([last, earlier])
            })();
            drop(running);
            let counts = sampling.join().expect("the sampling thread does not panic");
            anyhow::Ok((result?, counts?))
        });
        // The pool stays in the state of the token rolled back to.
        pool.abandon()?;
        sampled
    }

    /// Undoes the updates of a token's state and counts the wrong words.
    fn verify_state(
        &self,
        pool: &Pool,
        sampler: &Sampler,
        token: u64,
        updates: u64,
        reached_in: Duration,
        narrator: &mut Narrator,
    ) -> anyhow::Result<VerifiedState> {
        let (table, update_count) = roots(pool)?;
        let threads = self.args.threads;
        let mut errors = u64::from(update_count[0].load(Relaxed) != updates);
        let before = sampler.sample(pool)?;
        let started = Instant::now();
        let bar = spinner("undoing the updates");
        gups::update(&table, threads, 0, updates, &AtomicU64::new(0));
        bar.finish_and_clear();
        let undone = sampler.sample(pool)?;
        let undo = Phase::new("undo", updates, started.elapsed(), &before, &undone);
        let started = Instant::now();
        let bar = spinner("reading every word");
        errors += gups::wrong_words(&table, threads);
        bar.finish_and_clear();
        let scan = Phase::new("read", table.len() as u64, started.elapsed(), &undone, &sampler.sample(pool)?);
        if let Some(damage) = pool.take_errors().into_iter().find(|d| !matches!(d, PoolError::NoSpace { .. }))
        {
            return Err(damage.into());
        }
        let verified = VerifiedState { token, updates, errors, reached_in, undo, scan };
        narrator.verified(&verified, table.len() as u64);
        Ok(verified)
    }
}

/// Sets its flag when it is dropped.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A spinner for work of unknown length.
fn spinner(message: &'static str) -> ProgressBar {
    let bar = progress(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.with_style(indicatif::ProgressStyle::default_spinner())
}
