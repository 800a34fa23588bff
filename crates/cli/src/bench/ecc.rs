//! BCH codes: rates of every kernel on one core, beside bchlib (the Linux kernel's BCH) on the same codewords in the same
//! run.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use deepram_ecc::{Bch, Kernel};
use deepram_trace::workload::Rng;
use serde::{Deserialize, Serialize};

use super::{OutputArgs, Report, Scratch};
use crate::output::Table;

/// Options of `deepram bench ecc`.
#[derive(Debug, Args)]
pub(crate) struct EccArgs {
    /// Lengths of the data, bytes
    #[arg(long, value_delimiter = ',', default_value = "512,1024,2048,4096", value_name = "N")]
    sizes: Vec<usize>,
    /// Numbers of correctable bits
    #[arg(long, value_delimiter = ',', default_value = "1,4,8,12,40", value_name = "T")]
    strengths: Vec<usize>,
    /// Kernels to run, of portable, table, clmul, clmul-256, clmul-512 [default: all that the processor has]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = parse_kernel)]
    kernels: Vec<Kernel>,
    /// Run bchlib too, with python3 or $DEEPRAM_PEER_PYTHON
    #[arg(long)]
    peer: bool,
    /// Measurements of each rate; the fastest counts, because other work on the machine only slows them
    #[arg(long, default_value_t = 25, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Time of each measurement, milliseconds
    #[arg(long, default_value_t = 2, value_name = "MS", value_parser = clap::value_parser!(u16).range(1..))]
    milliseconds: u16,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// Different codewords that a measurement takes turns with.
const CODEWORDS: usize = 32;
const SEED: u64 = 42;

fn parse_kernel(name: &str) -> Result<Kernel, String> {
    Kernel::ALL.into_iter().find(|kernel| kernel.name() == name).ok_or_else(|| {
        let names: Vec<_> = Kernel::ALL.iter().map(|kernel| kernel.name()).collect();
        format!("unknown kernel; expected one of {}", names.join(", "))
    })
}

#[derive(Serialize)]
struct EccReport {
    rows: Vec<EccRow>,
    /// Why a peer did not run.
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct EccRow {
    data_bytes: usize,
    t: usize,
    m: u32,
    /// A kernel, or `bchlib`.
    kernel: String,
    #[serde(flatten)]
    rates: Rates,
    /// Rates over those of bchlib.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Rates>,
}

/// Bytes of data, in millions a second; or ratios of these.
#[derive(Serialize, Clone, Copy)]
struct Rates {
    encode: f64,
    /// Decoding without errors.
    decode_clean: f64,
    /// Finding the positions of t errors.
    decode_errors: f64,
}

impl Rates {
    fn new(bytes: usize, seconds: [Vec<f64>; 3]) -> Self {
        let [encode, decode_clean, decode_errors] =
            seconds.map(|runs| bytes as f64 / runs.into_iter().fold(f64::INFINITY, f64::min) / 1e6);
        Self { encode, decode_clean, decode_errors }
    }

    fn over(self, other: Self) -> Self {
        Self {
            encode: self.encode / other.encode,
            decode_clean: self.decode_clean / other.decode_clean,
            decode_errors: self.decode_errors / other.decode_errors,
        }
    }
}

pub(super) fn run(args: &EccArgs) -> anyhow::Result<Report> {
    let kernels: Vec<Kernel> =
        if args.kernels.is_empty() { Kernel::available().collect() } else { args.kernels.clone() };
    let mut report = EccReport { rows: Vec::new(), skipped: Vec::new() };
    let python =
        if args.peer { peer_python().map_err(|reason| report.skipped.push(reason)).ok() } else { None };
    let mut differs = None;
    for &size in &args.sizes {
        for &t in &args.strengths {
            let words = Codewords::new(size, t)?;
            let peer = python.as_deref().map(|python| words.peer(python, args)).transpose()?;
            if peer.as_ref().is_some_and(|peer| !peer.equal) {
                differs = Some(format!("bchlib gives other bits for {size} bytes and t = {t}"));
            }
            let peer = peer.map(|peer| Rates::new(size, [peer.encode, peer.clean, peer.errors]));
            let row = |kernel: &str, rates, ratio| EccRow {
                data_bytes: size,
                t,
                m: words.code.m(),
                kernel: kernel.into(),
                rates,
                ratio,
            };
            report.rows.extend(peer.map(|rates| row("bchlib", rates, None)));
            for &kernel in &kernels {
                let rates = words.measure(kernel, args)?;
                report.rows.push(row(kernel.name(), rates, peer.map(|peer| rates.over(peer))));
            }
        }
    }
    let mut result = Report::new(&report, text(&report))?;
    result.failure = differs;
    Ok(result)
}

/// Codewords, sound and with t wrong bits.
struct Codewords {
    code: Bch,
    sound: Vec<(Vec<u8>, Vec<u8>)>,
    wrong: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Codewords {
    fn new(size: usize, t: usize) -> anyhow::Result<Self> {
        let code = Bch::new(t, size)?;
        let mut rng = Rng::new(SEED, "bench ecc");
        let bits = (8 * size + code.parity_bits()) as u64;
        let (mut sound, mut wrong) = (Vec::new(), Vec::new());
        for _ in 0..CODEWORDS {
            let data: Vec<u8> = (0..size).map(|_| rng.below(256) as u8).collect();
            let mut parity = vec![0; code.parity_len()];
            code.encode(&data, &mut parity)?;
            let mut positions = std::collections::BTreeSet::new();
            while positions.len() < t {
                // Bits of the parity are the most significant ones of its last byte.
                positions.insert(rng.below(bits) as usize ^ 7);
            }
            let (mut wrong_data, mut wrong_parity) = (data.clone(), parity.clone());
            for position in positions {
                let (byte, bit) = (position / 8, 1 << (position % 8));
                match byte.checked_sub(size) {
                    None => wrong_data[byte] ^= bit,
                    Some(byte) => wrong_parity[byte] ^= bit,
                }
            }
            sound.push((data, parity));
            wrong.push((wrong_data, wrong_parity));
        }
        Ok(Self { code, sound, wrong })
    }

    /// Measures one kernel. Every result is checked once before.
    fn measure(&self, kernel: Kernel, args: &EccArgs) -> anyhow::Result<Rates> {
        let (size, t) = (self.code.data_len(), self.code.t());
        let code = Bch::builder(t, size).kernel(kernel).build()?;
        for ((data, parity), (wrong_data, wrong_parity)) in self.sound.iter().zip(&self.wrong) {
            let mut encoded = vec![0; parity.len()];
            code.encode(data, &mut encoded)?;
            let (mut corrected_data, mut corrected_parity) = (wrong_data.clone(), wrong_parity.clone());
            let corrected = code.decode(&mut corrected_data, &mut corrected_parity)?;
            ensure!(
                encoded == *parity
                    && corrected == t
                    && corrected_data == *data
                    && corrected_parity == *parity,
                "kernel {kernel} gives other bits for {size} bytes and t = {t}"
            );
        }
        let time = Duration::from_millis(args.milliseconds.into());
        let mut sound = self.sound.clone();
        let mut positions = Vec::new();
        let mut seconds = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..args.repeats {
            let mut parity = vec![0; code.parity_len()];
            seconds[0].push(seconds_each(time, |n| {
                let _ = black_box(code.encode(&sound[n].0, &mut parity));
            }));
            seconds[1].push(seconds_each(time, |n| {
                let (data, parity) = &mut sound[n];
                let _ = black_box(code.decode(data, parity));
            }));
            seconds[2].push(seconds_each(time, |n| {
                let (data, parity) = &self.wrong[n];
                let _ = black_box(code.decode_into(data, parity, &mut positions));
            }));
        }
        Ok(Rates::new(size, seconds))
    }

    fn peer(&self, python: &str, args: &EccArgs) -> anyhow::Result<PeerRun> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let file = scratch.file("codewords");
        let codewords = self.sound.iter().zip(&self.wrong).flat_map(|(sound, wrong)| [sound, wrong]);
        let contents: Vec<u8> =
            codewords.flat_map(|(data, parity)| data.iter().chain(parity).copied()).collect();
        std::fs::write(&file, contents).with_context(|| format!("writing {}", file.display()))?;
        let numbers = [
            CODEWORDS,
            self.code.data_len(),
            self.code.m() as usize,
            self.code.t(),
            self.code.polynomial() as usize,
            args.repeats.into(),
        ];
        let output = Command::new(python)
            .args(["-c", include_str!("ecc_peer.py")])
            .arg(&file)
            .args(numbers.map(|number| number.to_string()))
            .arg((f64::from(args.milliseconds) / 1e3).to_string())
            .output()
            .with_context(|| format!("running {python}"))?;
        if !output.status.success() {
            bail!("bchlib failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("output of bchlib")
    }
}

/// Seconds of one call, which gets the number of a codeword.
fn seconds_each(time: Duration, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    let mut calls = 0;
    loop {
        (0..CODEWORDS).for_each(&mut call);
        calls += CODEWORDS;
        let passed = start.elapsed();
        if passed >= time {
            return passed.as_secs_f64() / calls as f64;
        }
    }
}

/// The output of the peer's script: seconds a codeword of each repeat.
#[derive(Deserialize)]
struct PeerRun {
    /// True if all parities and all corrections are those of this project.
    equal: bool,
    encode: Vec<f64>,
    clean: Vec<f64>,
    errors: Vec<f64>,
}

/// A Python with bchlib, or the reason why there is none.
fn peer_python() -> Result<String, String> {
    let python = std::env::var("DEEPRAM_PEER_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import bchlib"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    Err(format!(
        "bchlib: {python} cannot import it. Install it with: python3 -m venv peer && peer/bin/pip install bchlib, and \
         set DEEPRAM_PEER_PYTHON=peer/bin/python"
    ))
}

fn text(report: &EccReport) -> String {
    let with_peer = report.rows.iter().any(|row| row.ratio.is_some());
    let mut headings = vec!["data", "m", "t", "<kernel", "encode MB/s", "clean decode", "t errors"];
    if with_peer {
        headings.extend(["× bchlib", "clean decode", "t errors"]);
    }
    let mut table = Table::new(&headings);
    let cells = |rates: Rates, digits: usize| {
        [rates.encode, rates.decode_clean, rates.decode_errors].map(|rate| format!("{rate:.digits$}"))
    };
    for row in &report.rows {
        let mut line =
            vec![row.data_bytes.to_string(), row.m.to_string(), row.t.to_string(), row.kernel.clone()];
        line.extend(cells(row.rates, 0));
        if with_peer {
            line.extend(row.ratio.map_or_else(|| ["-"; 3].map(String::from), |ratio| cells(ratio, 1)));
        }
        table.row(line);
    }
    let mut text = table.render();
    for reason in &report.skipped {
        text.push_str(&format!("skipped: {reason}\n"));
    }
    text
}
