//! `deepram trace characterize`: reads traces and shows their characterisations side by side.

mod csv;
mod page;
mod table;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use deepram_core::cache::Policy;
use deepram_core::units::{Bytes, parse_count};
use deepram_trace::Format;
use deepram_trace::characterize::{
    Characterization, CharacterizeOptions, Characterizer, OPTIMUM, Precedence, Sampling, SpatialSetting,
};
use serde::Serialize;

use super::{TraceInput, unit};
use crate::output::{emit_json, emit_text, progress};

/// Takes one value out of a part of a characterisation.
type Getter<P, V> = fn(&P) -> V;

/// Options of `deepram trace characterize`.
#[derive(Debug, Args)]
pub(crate) struct CharacterizeArgs {
    /// Trace files: plain, gzip or zstd
    #[arg(required = true, value_name = "FILE")]
    inputs: Vec<PathBuf>,
    /// Format of all traces [default: recognised from the content of each]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Size of the address unit of a format that counts in sectors or blocks: 512, 4KiB
    #[arg(long, value_name = "SIZE", value_parser = unit)]
    unit: Option<u64>,
    /// Most records to read of each trace: 1000, 10k, 2.5M
    #[arg(long, value_name = "N", value_parser = parse_count)]
    limit: Option<u64>,
    /// Size of a page
    #[arg(long, value_name = "SIZE", default_value = "8KiB")]
    page: Bytes,
    /// Settings of the spatial classes: longest stride in pages, and number of earlier requests compared
    #[arg(long, value_name = "STRIDE/ROD", value_delimiter = ',', default_value = "2/1,2/64,16/64")]
    spatial: Vec<SpatialSetting>,
    /// Order in which the spatial classes are tried
    #[arg(long, value_name = "CLASSES", default_value = "overlapped,sequential,strided")]
    precedence: Precedence,
    /// Compare reads with earlier reads only, and writes with earlier writes only
    #[arg(long)]
    same_direction: bool,
    /// Shortest window of the working sets, requests; windows 10, 100 and 1000 times as long follow
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1k")]
    window: u64,
    /// Window of the accesses over the address space, requests
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "10k")]
    address_window: u64,
    /// Add the hit ratios of an LRU cache that only writes enter
    #[arg(long)]
    write_only_stack: bool,
    /// Estimate unique pages, hit ratios and working sets from this share of the pages: 0.01
    #[arg(long, value_name = "RATE", conflicts_with = "sample_pages")]
    sample: Option<f64>,
    /// Estimate them from a sample of at most this many pages
    #[arg(long, value_name = "N")]
    sample_pages: Option<u32>,
    /// Policies to simulate: all, or names such as lru,arc,s3fifo; optimum is the replacement that knows all later accesses,
    /// and keeps 5 bytes for each access to a page
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = policies)]
    policies: Vec<Policies>,
    /// Sizes of the simulated caches
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "1MiB,4MiB,16MiB,64MiB,256MiB,1GiB"
    )]
    cache_sizes: Vec<Bytes>,
    /// Print one JSON array with an object for each trace
    #[arg(long)]
    json: bool,
    /// Also write CSV files to this folder, one for each kind of figure
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Also write one HTML page with the charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// One name of `--policies`.
#[derive(Debug, Clone, Default)]
struct Policies {
    simulated: Vec<Policy>,
    optimum: bool,
}

fn policies(name: &str) -> Result<Policies, String> {
    let simulated = match name {
        "all" => Policy::ALL.to_vec(),
        OPTIMUM => return Ok(Policies { optimum: true, ..Policies::default() }),
        name => vec![name.parse().map_err(|error| format!("{error}, all, {OPTIMUM}"))?],
    };
    Ok(Policies { simulated, optimum: false })
}

/// A trace and its characterisation.
#[derive(Serialize)]
struct Trace {
    name: String,
    format: &'static str,
    #[serde(flatten)]
    figures: Characterization,
}

/// Records between two steps of the progress bar.
const STEP: u64 = 1 << 16;

pub(super) fn run(args: &CharacterizeArgs) -> anyhow::Result<()> {
    let options = args.options();
    let mut traces = Vec::new();
    for path in &args.inputs {
        let name = path.display().to_string();
        traces.push(read(args, path, &options).with_context(|| name)?);
    }
    if let Some(folder) = &args.csv {
        csv::write(folder, &traces)?;
    }
    if let Some(file) = &args.html {
        let page = page::render(&traces);
        std::fs::write(file, page).with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json { emit_json(&traces) } else { emit_text(&table::render(&traces)) }
}

fn read(
    args: &CharacterizeArgs,
    path: &std::path::Path,
    options: &CharacterizeOptions,
) -> anyhow::Result<Trace> {
    let mut characterizer = Characterizer::new(options)?;
    let mut reader = TraceInput::new(path.to_path_buf(), args.format).with_unit(args.unit).open()?;
    let bar = progress("reading");
    for item in reader.by_ref().take(args.limit.map_or(usize::MAX, |most| most as usize)) {
        characterizer.add(&item?)?;
        if characterizer.records().is_multiple_of(STEP) {
            bar.set_position(characterizer.records());
        }
    }
    bar.finish_and_clear();
    Ok(Trace {
        name: path.file_name().map_or_else(|| path.into(), PathBuf::from).display().to_string(),
        format: reader.format().name(),
        figures: characterizer.finish()?,
    })
}

impl CharacterizeArgs {
    fn options(&self) -> CharacterizeOptions {
        let mut policies: Vec<Policy> = Vec::new();
        for policy in self.policies.iter().flat_map(|named| &named.simulated) {
            if !policies.contains(policy) {
                policies.push(*policy);
            }
        }
        let mut cache_bytes: Vec<u64> = self.cache_sizes.iter().map(|size| size.0).collect();
        cache_bytes.sort_unstable();
        cache_bytes.dedup();
        CharacterizeOptions {
            page_bytes: self.page.0,
            spatial: self.spatial.clone(),
            precedence: self.precedence,
            same_direction: self.same_direction,
            sampling: match (self.sample, self.sample_pages) {
                (Some(rate), _) => Sampling::Rate(rate),
                (None, Some(pages)) => Sampling::Pages(pages),
                (None, None) => Sampling::Exact,
            },
            write_only_stack: self.write_only_stack,
            window_requests: self.window,
            address_window_requests: self.address_window,
            policies,
            optimum: self.policies.iter().any(|named| named.optimum),
            cache_bytes,
            ..CharacterizeOptions::default()
        }
    }
}
