//! The characterisation of a trace in one pass, against a simulation by libCacheSim for each cache size, on the same
//! references in the same run.

use anyhow::{Context, ensure};
use clap::Args;
use deepram_core::units::parse_count;
use deepram_sim::cache::{Policy, ReferenceString};
use deepram_trace::characterize::{CharacterizeOptions, Characterizer, Counted};
use deepram_trace::workload::{Rng, Zipf};
use deepram_trace::{Item, Op, Request};
use serde::Serialize;

use super::caches::{peer_python, run_peer};
use super::{OutputArgs, Report, timed};
use crate::output::{Table, count};

/// Options of `deepram bench characterize`.
#[derive(Debug, Args)]
pub(crate) struct CharacterizeArgs {
    /// Number of generated references: 1000, 10k, 10M
    #[arg(long, default_value = "10M", value_name = "N", value_parser = parse_count)]
    requests: u64,
    /// Number of distinct pages, whose popularity follows Zipf's law with exponent 0.5
    #[arg(long, default_value = "1M", value_name = "N", value_parser = parse_count)]
    pages: u64,
    /// Capacities at which the LRU misses are compared, pages
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,500000", value_name = "N")]
    capacities: Vec<u64>,
    /// Run libCacheSim too, with python3 or $DEEPRAM_PEER_PYTHON
    #[arg(long)]
    peer: bool,
    /// Runs of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const PAGE: u64 = 8192;
const SKEW: f64 = 0.5;
const SEED: u64 = 42;

#[derive(Serialize)]
struct CharacterizeReport {
    requests: u64,
    distinct_pages: u64,
    /// Stack distances, spatial classes, working sets and all other figures, in one pass.
    requests_per_s: f64,
    capacities: Vec<CapacityRow>,
    /// Why a peer did not run.
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct CapacityRow {
    capacity_pages: u64,
    misses: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_misses: Option<u64>,
    /// Of a simulation of this capacity alone, with the faster of the peer's hash tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_requests_per_s: Option<f64>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(super) fn run(args: &CharacterizeArgs) -> anyhow::Result<Report> {
    ensure!(args.pages > 0, "--pages is 0; give at least 1");
    let zipf = Zipf::new(args.pages, SKEW);
    let mut rng = Rng::new(SEED, "bench characterize");
    let references = ReferenceString::numbers((0..args.requests).map(|_| zipf.sample(&mut rng)));
    let mut capacities = args.capacities.clone();
    capacities.sort_unstable();
    capacities.dedup();

    let mut seconds = Vec::new();
    let mut misses = Vec::new();
    for _ in 0..args.repeats {
        let (report, time) = timed(|| -> anyhow::Result<_> {
            let mut characterizer = Characterizer::new(&CharacterizeOptions::default())?;
            for (number, page) in references.as_slice().iter().enumerate() {
                let op = if number % 3 == 0 { Op::Write } else { Op::Read };
                let (offset, time_ps) = (u64::from(*page) * PAGE, Some(number as u64 * 1_000_000));
                characterizer.add(&Item::Block(Request { time_ps, device: 0, offset, len: PAGE, op }))?;
            }
            Ok(characterizer.finish()?)
        });
        seconds.push(time.as_secs_f64());
        let distances = report?.distances.context("all pages are used")?;
        let accesses = distances.accesses(Counted::All);
        misses = distances.hits(&capacities, Counted::All).into_iter().map(|hits| accesses - hits).collect();
    }

    let mut skipped = Vec::new();
    let python = if args.peer { peer_python().map_err(|reason| skipped.push(reason)).ok() } else { None };
    let mut rows = Vec::new();
    for (&capacity_pages, &misses) in capacities.iter().zip(&misses) {
        let peer = python.as_deref().map(|python| {
            run_peer(python, args.repeats, &[Policy::Lru], capacity_pages as usize, &references)
        });
        let peer = peer.transpose()?.and_then(|runs| runs.into_iter().next());
        rows.push(CapacityRow {
            capacity_pages,
            misses,
            peer_misses: peer.as_ref().map(|peer| peer.misses),
            peer_requests_per_s: peer
                .map(|peer| args.requests as f64 / median(peer.seconds).min(median(peer.fitted))),
        });
    }
    let report = CharacterizeReport {
        requests: args.requests,
        distinct_pages: references.distinct(),
        requests_per_s: args.requests as f64 / median(seconds),
        capacities: rows,
        skipped,
    };
    let text = text(&report);
    let mut result = Report::new(&report, text)?;
    let differs = report.capacities.iter().find(|row| row.peer_misses.is_some_and(|peer| peer != row.misses));
    result.failure =
        differs.map(|row| format!("libCacheSim has other misses at {} pages", row.capacity_pages));
    Ok(result)
}

fn text(report: &CharacterizeReport) -> String {
    let mut table = Table::new(&["capacity", "misses", "libCacheSim misses", "its M requests/s"]);
    for row in &report.capacities {
        table.row(vec![
            count(row.capacity_pages),
            count(row.misses),
            row.peer_misses.map_or_else(
                || "-".into(),
                |peer| if peer == row.misses { "equal".into() } else { count(peer) },
            ),
            row.peer_requests_per_s.map_or_else(|| "-".into(), |rate| format!("{:.1}", rate / 1e6)),
        ]);
    }
    let mut text = format!(
        "{} requests to {} pages: all figures and every capacity in one pass, {:.1} M requests/s\n{}",
        count(report.requests),
        count(report.distinct_pages),
        report.requests_per_s / 1e6,
        table.render()
    );
    for reason in &report.skipped {
        text += &format!("skipped: {reason}\n");
    }
    text
}
