//! `deepram plan`: from a trace to the memory hierarchy that keeps the goals at the least price.

mod json;
mod page;
mod text;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum, value_parser};
use deepram_core::suggest::nearest;
use deepram_core::units::{Bytes, parse_count, split_unit};
use deepram_media::Registry;
use deepram_sim::plan::{Goals, Plan, PlanOptions, PlanProgress, Prices, Use, plan};
use deepram_sim::simulation::{OBJECT_SLOTS, SLOT_BYTES};
use deepram_trace::{Format, Item, ObjectPlacement, TraceError};

use crate::output::{emit_json, emit_text, progress};
use crate::trace::TraceInput;

/// Options of `deepram plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Trace file: plain, gzip or zstd; also of `deepram trace record`
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Format of the trace [default: recognised from its content]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Use of the requests [default: memory for loads and stores, storage otherwise]
    #[arg(long = "as", value_name = "USE", value_enum)]
    of: Option<UseName>,
    /// Goals, such as p99=200us,years=5. The keys: mean and p99 (latency), years (lifetime), price (US dollars), watts (mean
    /// power)
    #[arg(long, value_name = "GOALS")]
    target: Option<Goals>,
    /// Data that the hierarchy holds, for which price, lifetime and standby power are computed [default: the distinct pages
    /// of the trace]
    #[arg(long, value_name = "SIZE")]
    data: Option<Bytes>,
    /// Price of a memory in US dollars per 10^9 bytes: dram=17.3, pcm=8.65 or slc=1.05; may be given again. Flash with two or
    /// three bits a cell costs a half or a third of slc
    #[arg(long = "price", value_name = "MEMORY=USD", value_parser = price)]
    prices: Vec<(String, f64)>,
    /// Requests with which every hierarchy is simulated; 0 for the whole trace. Those that decide the choice are simulated
    /// with the whole trace
    #[arg(long, value_name = "N", default_value = "50k", value_parser = parse_count)]
    sample: u64,
    /// Number of threads that issue requests without arrival times, each one at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    threads: u32,
    /// Closed loop: ignore arrival times and issue the next request at each completion
    #[arg(long)]
    closed: bool,
    /// Seed of all random numbers; equal seeds give equal results
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of simultaneous simulations [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Write the plan with charts to a page without external files
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The uses of requests.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum UseName {
    /// DRAM, and what takes the data that do not fit
    Memory,
    /// Drives and their write buffers
    Storage,
}

impl From<UseName> for Use {
    fn from(name: UseName) -> Self {
        match name {
            UseName::Memory => Use::Memory,
            UseName::Storage => Use::Storage,
        }
    }
}

const MEMORIES: [&str; 3] = ["dram", "pcm", "slc"];

fn price(text: &str) -> Result<(String, f64), String> {
    let (memory, value) =
        text.split_once('=').ok_or("expected MEMORY=USD such as dram=17.3, in US dollars per 10^9 bytes")?;
    if !MEMORIES.contains(&memory) {
        let near =
            nearest(memory, MEMORIES).map_or_else(String::new, |near| format!("; did you mean {near}?"));
        return Err(format!("there is no memory {memory:?}{near} (known: {})", MEMORIES.join(", ")));
    }
    let (number, unit) = split_unit(value);
    let value = number.parse::<f64>().ok().filter(|usd| usd.is_finite() && *usd > 0.0);
    match value.filter(|_| ["", "USD/GB"].contains(&unit)) {
        Some(value) => Ok((memory.into(), value)),
        None => Err("expected a price above 0 in US dollars per 10^9 bytes".into()),
    }
}

/// The prices of the presets with those of the command line in their place.
fn prices(registry: &Registry, given: &[(String, f64)]) -> anyhow::Result<Prices> {
    let mut prices = Prices::of_presets(registry)?;
    for (memory, usd) in given {
        match memory.as_str() {
            "dram" => prices.dram = *usd,
            "pcm" => prices.pcm = *usd,
            _ => prices.slc = *usd,
        }
    }
    Ok(prices)
}

/// A plan and the inputs that its descriptions name.
struct Described<'a> {
    plan: &'a Plan,
    trace: String,
    options: &'a PlanOptions,
}

/// Makes a plan and shows it.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let registry = Registry::builtin()?;
    let options = PlanOptions {
        goals: args.target.clone().unwrap_or_default(),
        of: args.of.map(Use::from),
        data: args.data,
        prices: prices(&registry, &args.prices)?,
        sample: args.sample,
        threads: args.threads,
        closed: args.closed,
        objects: ObjectPlacement { slot_bytes: SLOT_BYTES, slots: OBJECT_SLOTS },
        seed: args.seed,
        jobs: args.jobs.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        ),
    };
    let input = TraceInput::new(args.trace.clone(), args.format);
    let open = || -> Result<Box<dyn Iterator<Item = Result<Item, TraceError>>>, TraceError> {
        Ok(Box::new(input.reader()?))
    };
    let bar = progress("planning");
    let observe = |event| match event {
        PlanProgress::Added(simulations) => bar.inc_length(simulations as u64),
        PlanProgress::Finished => bar.inc(1),
    };
    let plan = plan(&registry, &open, &options, &observe);
    bar.finish_and_clear();
    let plan = plan?;
    let described = Described { plan: &plan, trace: args.trace.display().to_string(), options: &options };
    if let Some(file) = &args.html {
        std::fs::write(file, page::page(&described))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    if args.json { emit_json(&json::json(&described)) } else { emit_text(&text::text(&described)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_names_a_memory_and_is_above_0() {
        assert_eq!(price("pcm=4.5"), Ok(("pcm".into(), 4.5)));
        assert_eq!(price("dram=4USD/GB"), Ok(("dram".into(), 4.0)));
        for (text, expected) in [
            ("pmc=4", "did you mean pcm?"),
            ("4", "expected MEMORY=USD"),
            ("pcm=0", "above 0"),
            ("pcm=4EUR", "US dollars"),
        ] {
            assert!(price(text).unwrap_err().contains(expected), "{text}");
        }
        let registry = Registry::builtin().unwrap();
        let all = prices(&registry, &[("pcm".into(), 4.5)]).unwrap();
        let of_presets = Prices::of_presets(&registry).unwrap();
        assert_eq!(all, Prices { pcm: 4.5, ..of_presets });
    }
}
