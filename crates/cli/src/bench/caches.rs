//! Cache replacement policies on traces in memory: miss counts and speed, beside those of libCacheSim on the same
//! references in the same run.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use deepram_core::cache::UnknownPolicy;
use deepram_sim::cache::{POLICIES, Policy, ReferenceString};
use deepram_trace::workload::{Rng, Zipf};
use deepram_trace::{ReadOptions, TraceReader};
use serde::{Deserialize, Serialize};

use super::{OutputArgs, Report, Scratch, timed};
use crate::output::{Table, count};

/// Options of `deepram bench caches`.
#[derive(Debug, Args)]
pub(crate) struct CachesArgs {
    /// Folder with the cache traces; without it the bench uses generated references only
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Most references taken from each trace; number of generated references
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    requests: usize,
    /// Capacity of the cache, objects; for the small LIRS traces a tenth of their distinct objects instead
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    capacity: usize,
    /// Policies to run, of lru, fifo, clock, clock2, sieve, s3fifo, arc [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = parse_policy)]
    policies: Vec<Policy>,
    /// Run libCacheSim too, with python3 or $DEEPRAM_PEER_PYTHON
    #[arg(long)]
    peer: bool,
    /// Runs of each policy; the median counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Distinct objects of the generated references, whose popularity follows Zipf's law with exponent 1.
const ZIPF_IDS: u64 = 1_000_000;
const ZIPF_SEED: u64 = 42;

/// Trace files below the folder. The flag marks a trace whose capacity is a tenth of its distinct objects.
const TRACES: &[(&str, bool)] = &[
    ("cache/twitter_cluster52_1M.csv.zst", false),
    ("cache/arc_OLTP.lis.zst", false),
    ("cache/arc_P3.lis.zst", false),
    ("cache/lirs_2_pools.trace.gz", true),
    ("cache/lirs_cpp.trace.gz", true),
    ("cache/lirs_cs.trace.gz", true),
    ("cache/lirs_gli.trace.gz", true),
    ("cache/lirs_loop.trace.gz", true),
    ("cache/lirs_multi1.trace.gz", true),
    ("cache/lirs_multi2.trace.gz", true),
    ("cache/lirs_multi3.trace.gz", true),
    ("cache/lirs_ps.trace.gz", true),
    ("cache/lirs_sprite.trace.gz", true),
];

#[derive(Serialize)]
struct CacheRow {
    trace: String,
    policy: &'static str,
    capacity: usize,
    distinct: u64,
    requests: u64,
    misses: u64,
    miss_ratio: f64,
    requests_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<PeerRow>,
}

#[derive(Serialize)]
struct PeerRow {
    misses: u64,
    /// Speed with the default hash table of 2^24 buckets.
    default_requests_per_s: f64,
    /// Speed with a hash table of about twice the capacity.
    fitted_requests_per_s: f64,
    /// Our speed divided by the faster of the two.
    speedup: f64,
}

#[derive(Serialize)]
struct CachesReport {
    rows: Vec<CacheRow>,
    /// Traces or peers that did not run, with the reason.
    skipped: Vec<String>,
}

pub(super) fn run(args: &CachesArgs) -> anyhow::Result<Report> {
    let policies = if args.policies.is_empty() { POLICIES.to_vec() } else { args.policies.clone() };
    let mut skipped = Vec::new();
    let python = if args.peer { peer_python().map_err(|reason| skipped.push(reason)).ok() } else { None };
    let mut rows = Vec::new();

    let zipf = Zipf::new(ZIPF_IDS, 1.0);
    let mut rng = Rng::new(ZIPF_SEED, "bench caches");
    let generated = ReferenceString::numbers((0..args.requests).map(|_| zipf.sample(&mut rng)));
    measure(args, "zipf", &policies, python.as_deref(), args.capacity, &generated, &mut rows)?;
    drop(generated);

    if args.traces.is_none() {
        skipped.push("traces: no folder given; use --traces DIR".into());
    }
    for (name, small) in TRACES {
        let Some(path) = args.traces.as_ref().map(|folder| folder.join(name)) else {
            break;
        };
        if !path.exists() {
            skipped.push(format!("{name}: no file {}", path.display()));
            continue;
        }
        // A trace that counts in blocks: one block is one cache object.
        let options = ReadOptions { unit_bytes: Some(4096), ..ReadOptions::default() };
        let references = ReferenceString::of(TraceReader::open(&path, &options)?, 4096, args.requests)?;
        let tenth = (references.distinct() / 10) as usize;
        let capacity = if *small { tenth.max(20) } else { args.capacity };
        let short = name.trim_start_matches("cache/").split('.').next().unwrap_or(name);
        measure(args, short, &policies, python.as_deref(), capacity, &references, &mut rows)?;
    }

    let mut text = table(&rows, python.is_some());
    for reason in &skipped {
        text += &format!("skipped: {reason}\n");
    }
    Report::new(&CachesReport { rows, skipped }, text)
}

/// Parses the name of a policy that libCacheSim has, too.
fn parse_policy(name: &str) -> Result<Policy, UnknownPolicy> {
    Policy::parse_among(name, &POLICIES)
}

/// Runs the policies on one trace, and libCacheSim's policies if `python` is given.
fn measure(
    args: &CachesArgs,
    trace: &str,
    policies: &[Policy],
    python: Option<&str>,
    capacity: usize,
    references: &ReferenceString,
    rows: &mut Vec<CacheRow>,
) -> anyhow::Result<()> {
    let requests = references.len() as u64;
    let speed = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        requests as f64 / seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let peers = match python {
        Some(python) => run_peer(python, args.repeats, policies, capacity, references)?,
        None => Vec::new(),
    };
    for policy in policies {
        let mut misses = 0;
        let mut seconds = Vec::new();
        for _ in 0..args.repeats {
            let mut cache = policy.build(capacity);
            let (missed, time) = timed(|| cache.access_all(references.as_slice()));
            misses = missed;
            seconds.push(time.as_secs_f64());
        }
        let requests_per_s = speed(seconds);
        let peer = peers.iter().find(|peer| peer.policy == policy.name()).map(|peer| {
            let (default, fitted) = (speed(peer.seconds.clone()), speed(peer.fitted.clone()));
            PeerRow {
                misses: peer.misses,
                default_requests_per_s: default,
                fitted_requests_per_s: fitted,
                speedup: requests_per_s / default.max(fitted),
            }
        });
        rows.push(CacheRow {
            trace: trace.into(),
            policy: policy.name(),
            capacity,
            distinct: references.distinct(),
            requests,
            misses,
            miss_ratio: misses as f64 / requests as f64,
            requests_per_s,
            peer,
        });
    }
    Ok(())
}

fn table(rows: &[CacheRow], with_peer: bool) -> String {
    let mut headings =
        vec!["<trace", "<policy", "capacity", "requests", "misses", "miss ratio", "M requests/s"];
    if with_peer {
        headings.extend(["libCacheSim misses", "M requests/s", "with fitted table", "speedup"]);
    }
    let mut table = Table::new(&headings);
    for row in rows {
        let mut cells = vec![
            row.trace.clone(),
            row.policy.into(),
            count(row.capacity as u64),
            count(row.requests),
            count(row.misses),
            format!("{:.4}", row.miss_ratio),
            format!("{:.1}", row.requests_per_s / 1e6),
        ];
        if with_peer {
            cells.extend(match &row.peer {
                Some(peer) => [
                    if peer.misses == row.misses { "equal".into() } else { count(peer.misses) },
                    format!("{:.1}", peer.default_requests_per_s / 1e6),
                    format!("{:.1}", peer.fitted_requests_per_s / 1e6),
                    format!("{:.1}", peer.speedup),
                ],
                None => ["-", "-", "-", "-"].map(String::from),
            });
        }
        table.row(cells);
    }
    table.render()
}

/// A Python with libCacheSim, or the reason why there is none.
pub(super) fn peer_python() -> Result<String, String> {
    let python = std::env::var("DEEPRAM_PEER_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import libcachesim"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    Err(format!(
        "libCacheSim: {python} cannot import it. Install it with: python3 -m venv peer && \
         peer/bin/pip install libcachesim==0.3.5, and set DEEPRAM_PEER_PYTHON=peer/bin/python"
    ))
}

/// One line of the peer script's output: the runs of one policy.
#[derive(Deserialize)]
pub(super) struct PeerRun {
    policy: String,
    pub(super) misses: u64,
    pub(super) seconds: Vec<f64>,
    pub(super) fitted: Vec<f64>,
}

pub(super) fn run_peer(
    python: &str,
    repeats: u16,
    policies: &[Policy],
    capacity: usize,
    references: &ReferenceString,
) -> anyhow::Result<Vec<PeerRun>> {
    let scratch = Scratch::new(&std::env::temp_dir())?;
    let trace = scratch.file("references.oracleGeneral");
    write_oracle(&trace, references).with_context(|| format!("writing {}", trace.display()))?;
    let output = Command::new(python)
        .args(["-c", include_str!("caches_peer.py")])
        .arg(&trace)
        .args([references.len(), capacity, usize::from(repeats)].map(|n| n.to_string()))
        .args(policies.iter().map(|policy| policy.name()))
        .output()
        .with_context(|| format!("running {python}"))?;
    if !output.status.success() {
        bail!("libCacheSim failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("output of libCacheSim: '{line}'")))
        .collect()
}

/// Writes the references in libCacheSim's binary format: time, id, size 1, next use unknown.
fn write_oracle(path: &Path, references: &ReferenceString) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for number in references.as_slice() {
        file.write_all(&0u32.to_le_bytes())?;
        file.write_all(&u64::from(*number).to_le_bytes())?;
        file.write_all(&1u32.to_le_bytes())?;
        file.write_all(&(-1i64).to_le_bytes())?;
    }
    file.flush()
}
