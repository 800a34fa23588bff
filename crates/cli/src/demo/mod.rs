//! `deepram demo`: the whole of it, end to end, for real.
//!
//! 1. A pool is created, several times larger than its DRAM.
//! 2. A second process ([`worker`]) fills a table in it and updates the table ([`gups`]), syncing
//!    again and again, until this one kills it between two syncs.
//! 3. The pool is reopened and must hold exactly the updates of the last token: doing them again
//!    must leave every word with its own number.
//! 4. The same after a rollback to the oldest token that is kept.

mod gups;
mod memory;
mod report;
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

use self::report::{Outcome, Phase, Teller, Verified};
use self::worker::{Counts, Line, Watch, roots};
use crate::cli::DemoArgs;
use crate::output::progress;

/// Tokens that the pool keeps. Each holds a round of updates, so that they fit beside the table.
const KEEP: u32 = 4;
/// Tokens before the kill, so that there is an earlier one to go back to.
const LEAST_TOKENS: usize = 3;
/// A round updates at most this part of the table's segments.
const ROUND_SHARE: u64 = 8;
/// A worker that does nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Disk that stays free.
const SPARE: u64 = 64 << 20;

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<()> {
    let mut teller = Teller::new(args.json);
    let started = Instant::now();
    let file = PoolFile::create(args, &mut teller)?;
    let round = (args.size.0 / 4096 / ROUND_SHARE).max(1024);
    let session = Session { args, file: &file, round };
    let worked = session.work(&mut teller)?;
    let (verified, verify_counts) = session.verify(&worked, &mut teller)?;
    let outcome = Outcome {
        size: args.size.0,
        flash: file.bytes,
        dram: args.dram.0,
        threads: args.threads,
        worked,
        verified,
        verify_counts,
        took: started.elapsed(),
    };
    outcome.show(args.json)?;
    outcome.judge()
}

/// The file of the demo's pool. Without `--keep` it has no name: it is gone with the last process
/// that has it open, however that ends.
struct PoolFile {
    /// Where it can be opened by this process.
    path: PathBuf,
    /// What the worker gets as standard input.
    file: File,
    bytes: u64,
    named: bool,
}

impl PoolFile {
    fn create(args: &DemoArgs, teller: &mut Teller) -> anyhow::Result<Self> {
        ensure!(args.dir.is_dir(), "{} is not a folder: give one with --dir", args.dir.display());
        // The table, the tokens that are kept, and room to reclaim in.
        let bytes = args.size.0 / 2 * 5 + (64 << 20);
        let disk = rustix::fs::statvfs(&args.dir)
            .with_context(|| format!("asking for the free space in {}", args.dir.display()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        ensure!(
            free >= bytes + SPARE,
            "the demo needs {} in {}, which has {}: choose another folder with --dir, or a smaller table with --size",
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
            // The roots and the word that counts have pages of their own.
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
        teller.created(&path, args, bytes, started.elapsed());
        let path = if args.keep { path } else { format!("/proc/self/fd/{}", file.as_raw_fd()).into() };
        Ok(Self { path, file, bytes, named: args.keep })
    }

    /// The path by which a process that has the file as standard input can open it.
    fn path_for_worker(&self) -> &Path {
        if self.named { &self.path } else { Path::new("/proc/self/fd/0") }
    }
}

/// The worker, killed and waited for when this goes.
struct Worker {
    child: Child,
    lines: Receiver<anyhow::Result<Line>>,
}

impl Worker {
    fn start(args: &DemoArgs, file: &PoolFile, round: u64) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
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
            .context("starting the process that works")?;
        let out = child.stdout.take().context("the worker has no output")?;
        let (sender, lines) = channel();
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
        Ok(Self { child, lines })
    }

    /// The next line; `None` when the worker has ended.
    fn line(&self) -> anyhow::Result<Option<Line>> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(line?)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("the worker has said nothing for {PATIENCE:?}"),
        }
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("killing the worker")?;
        self.child.wait().context("waiting for the worker")?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
    }
}

/// A token as the worker reported it.
#[derive(Debug, Clone, Copy)]
struct Synced {
    token: u64,
    updates: u64,
    sync_ns: u64,
    /// Bytes that the sync and the write-back before it wrote.
    written_bytes: u64,
}

/// What the worker did until it was killed.
struct Worked {
    fill: Phase,
    update: Phase,
    tokens: Vec<Synced>,
    counts: Counts,
    /// Updates that were done and not synced when it was killed, at least.
    lost_updates: u64,
}

struct Session<'a> {
    args: &'a DemoArgs,
    file: &'a PoolFile,
    round: u64,
}

impl Session<'_> {
    fn work(&self, teller: &mut Teller) -> anyhow::Result<Worked> {
        let mut worker = Worker::start(self.args, self.file, self.round)?;
        let (fill, mut last) = self.watch_fill(&worker, teller)?;
        let filled = last;
        let started = Instant::now();
        let wanted = Duration::from_secs(self.args.seconds);
        let bar = progress("updating");
        bar.set_length(wanted.as_millis() as u64);
        let mut tokens: Vec<Synced> = Vec::new();
        let mut updates = 0;
        let mut moved = Instant::now();
        loop {
            let Some(line) = worker.line()? else { bail!(self.worker_failed(&mut worker)?) };
            let synced = tokens.last().map_or(0, |t: &Synced| t.updates);
            match line {
                Line::Token { token, updates: synced, sync_ns, counts } => {
                    let written_bytes = counts.written_bytes - last.written_bytes;
                    tokens.push(Synced { token, updates: synced, sync_ns, written_bytes });
                    last = counts;
                    moved = Instant::now();
                }
                Line::Progress { updates: now, .. } => {
                    if now != updates {
                        (updates, moved) = (now, Instant::now());
                    }
                    ensure!(moved.elapsed() < PATIENCE, "the worker has done nothing for {PATIENCE:?}");
                    let lost = now.saturating_sub(synced);
                    // Well inside a round, so that there is something to lose. Short rounds may
                    // never be seen there: then anywhere.
                    let amid = lost > self.round / 4 && lost < self.round / 4 * 3;
                    let late = started.elapsed() >= wanted + Duration::from_secs(1) && lost > 0;
                    if started.elapsed() >= wanted && tokens.len() >= LEAST_TOKENS && (amid || late) {
                        break;
                    }
                }
                Line::Note(note) => teller.note(&note),
                Line::Filled { .. } => {}
            }
            bar.set_position(started.elapsed().as_millis() as u64);
        }
        let update = Phase::new("update", updates, started.elapsed(), &filled, &last);
        worker.kill()?;
        // It may have synced once more before it died.
        while let Ok(line) = worker.lines.recv() {
            match line {
                Ok(Line::Token { token, updates: synced, sync_ns, counts }) => {
                    let written_bytes = counts.written_bytes - last.written_bytes;
                    tokens.push(Synced { token, updates: synced, sync_ns, written_bytes });
                    last = counts;
                }
                Ok(Line::Progress { updates: now, .. }) => updates = now,
                // The last line may be cut off.
                _ => {}
            }
        }
        bar.finish_and_clear();
        let synced = tokens.last().map_or(0, |t| t.updates);
        let lost_updates = updates.saturating_sub(synced);
        let worked = Worked { fill, update, tokens, counts: last, lost_updates };
        teller.killed(&worked);
        Ok(worked)
    }

    fn watch_fill(&self, worker: &Worker, teller: &mut Teller) -> anyhow::Result<(Phase, Counts)> {
        let words = self.args.size.0 / 8;
        let bar = progress("filling");
        bar.set_length(words);
        let mut filled = (0, Instant::now());
        loop {
            match worker.line()? {
                Some(Line::Filled { fill_ns, sync_ns, token, counts }) => {
                    bar.finish_and_clear();
                    let took = Duration::from_nanos(fill_ns);
                    let fill = Phase::new("fill", words, took, &Counts::default(), &counts);
                    teller.filled(&fill, token, Duration::from_nanos(sync_ns));
                    return Ok((fill, counts));
                }
                Some(Line::Progress { words_filled, .. }) => {
                    if words_filled != filled.0 {
                        filled = (words_filled, Instant::now());
                    }
                    ensure!(filled.1.elapsed() < PATIENCE, "the worker has filled nothing for {PATIENCE:?}");
                    bar.set_position(words_filled);
                }
                Some(Line::Note(note)) => teller.note(&note),
                Some(Line::Token { .. }) => {}
                None => bail!("the process that fills the table has ended: its error stands above"),
            }
        }
    }

    fn worker_failed(&self, worker: &mut Worker) -> anyhow::Result<String> {
        let status = worker.child.wait()?;
        Ok(format!("the process that updates the table has ended ({status}): its error stands above"))
    }

    fn verify(&self, worked: &Worked, teller: &mut Teller) -> anyhow::Result<([Verified; 2], Counts)> {
        let watch = Watch::default();
        let started = Instant::now();
        let (pool, _) = worker::open(&self.file.path, self.args.dram.0)?;
        let recovery = started.elapsed();
        let history = pool.history()?;
        let newest = history.last().map_or(0, |t| t.token.0);
        let reported = worked.tokens.last().context("no token was reported")?;
        teller.reopened(recovery, newest, reported);
        // A later one is right as well: killed between its commit and its report.
        ensure!(
            newest >= reported.token,
            "the pool came back at token {newest}, but token {} had been synced",
            reported.token
        );
        let updates_of = |token: u64| {
            let known = worked.tokens.iter().find(|t| t.token == token).map(|t| t.updates);
            known.unwrap_or_else(|| reported.updates + (token - reported.token) * self.round)
        };
        let stop = AtomicBool::new(false);
        let sampled = std::thread::scope(|scope| {
            let sampler = scope.spawn(|| -> anyhow::Result<Counts> {
                while !stop.load(Relaxed) {
                    watch.counts(&pool)?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                watch.counts(&pool)
            });
            // Also when the verification panics.
            let running = StopAtEnd(&stop);
            let result = (|| {
                let last = self.verify_state(&pool, &watch, newest, updates_of(newest), recovery, teller)?;
                // Asked for now, since the pool gives old tokens up when it needs their room.
                let history = pool.history()?;
                let earlier = history.iter().find(|t| worked.tokens.iter().any(|w| w.token == t.token.0));
                let earlier = earlier.filter(|t| t.token.0 < newest).context("no earlier token is kept")?;
                let started = Instant::now();
                pool.rollback(earlier.token)?;
                let took = started.elapsed();
                teller.rolled_back(earlier.token.0, took);
                let token = earlier.token.0;
                let earlier = self.verify_state(&pool, &watch, token, updates_of(token), took, teller)?;
                anyhow::Ok([last, earlier])
            })();
            drop(running);
            let counts = sampler.join().expect("the sampler does not panic");
            anyhow::Ok((result?, counts?))
        });
        // Kept or not, the pool stays at the token rolled back to.
        pool.abandon()?;
        sampled
    }

    /// Undoes the updates of a token's state and counts the words that are not as they were.
    fn verify_state(
        &self,
        pool: &Pool,
        watch: &Watch,
        token: u64,
        updates: u64,
        reached_in: Duration,
        teller: &mut Teller,
    ) -> anyhow::Result<Verified> {
        let (table, counted) = roots(pool)?;
        let threads = self.args.threads;
        let mut errors = u64::from(counted[0].load(Relaxed) != updates);
        let before = watch.counts(pool)?;
        let started = Instant::now();
        let bar = ticking("undoing the updates");
        gups::update(&table, threads, 0, updates, &AtomicU64::new(0));
        bar.finish_and_clear();
        let undone = watch.counts(pool)?;
        let undo = Phase::new("undo", updates, started.elapsed(), &before, &undone);
        let started = Instant::now();
        let bar = ticking("reading every word");
        errors += gups::wrong_words(&table, threads);
        bar.finish_and_clear();
        let scan = Phase::new("read", table.len() as u64, started.elapsed(), &undone, &watch.counts(pool)?);
        if let Some(damage) = pool.take_errors().into_iter().find(|d| !matches!(d, PoolError::NoSpace { .. }))
        {
            return Err(damage.into());
        }
        let verified = Verified { token, updates, errors, reached_in, undo, scan };
        teller.verified(&verified, table.len() as u64);
        Ok(verified)
    }
}

/// Sets its flag when it goes.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn ticking(what: &'static str) -> ProgressBar {
    let bar = progress(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar.with_style(indicatif::ProgressStyle::default_spinner())
}
