//! What the ratios of GUPS and MMAP hang on: one assumption at a time goes to the ends of what is plausible.

use std::sync::Arc;

use deepram_media::Registry;
use deepram_sim::SimError;

use super::machine::Base;
use super::sweep::Sweep;
use crate::error::ReproError;
use crate::experiment::{Experiment, Outcome, Settings};
use crate::sensitivity::{Change, Headline, Parameter, Sensitivity};

/// GUPS costs more to simulate; all that is missed of it is at 75 us.
const GUPS_US: [f64; 1] = [75.0];
const MMAP_US: [f64; 3] = [75.0, 150.0, 750.0];

/// Key, what it is, low end, base, high end, why these ends. What begins with a preset's kind is a figure of
/// that preset.
const PARAMETERS: [[&str; 6]; 13] = [
    [
        "blocking",
        "loads wait for the one before",
        "false",
        "false",
        "true",
        "the paper's NVMM stalls on a miss",
    ],
    ["processor.misses", "misses of a core under way", "4", "10", "16", "from small cores to the newest"],
    ["processor.cores", "cores", "1", "6", "16", "MARSSx86 runs as many as it is told to"],
    [
        "gap",
        "instructions from one reference to the next",
        "2",
        "5",
        "50",
        "a bare loop; library calls for random numbers",
    ],
    ["data", "bytes of the table or file", "128MiB", "256MiB", "512MiB", "half and double"],
    [
        "nvmm.stripe",
        "planes that a page's segments lie in",
        "1",
        "16",
        "16",
        "one block for a page, as the page table allows",
    ],
    ["nvmm.channels", "flash channels of NVMM", "4", "16", "32", "a DIMM's worth; double"],
    [
        "segment",
        "bytes of a cache block and of a flash read",
        "4KiB",
        "4KiB",
        "16KiB",
        "the paper's 4 to 16 KB",
    ],
    [
        "write_back_above",
        "dirty share from which blocks are written early",
        "0.02",
        "0.1",
        "1",
        "nearly always; never",
    ],
    ["ssd.channels", "channels of the drive", "4", "16", "32", "a small drive; double"],
    [
        "software.wait_on_core",
        "the software's wait keeps its core",
        "false",
        "false",
        "true",
        "the table gives time, not whose it is",
    ],
    ["software.wait", "the software's wait", "29.85us", "59.7us", "119.4us", "half and double"],
    ["readahead", "pages that Linux reads around a fault at most", "0", "32", "64", "none; double"],
];

/// The study.
pub(super) fn study(settings: &Settings, registry: &Arc<Registry>) -> Result<Sensitivity, ReproError> {
    let parameters = PARAMETERS
        .iter()
        .map(|[key, what, low, base, high, why]| Parameter {
            key: (*key).into(),
            what: (*what).into(),
            low: (*low).into(),
            base: (*base).into(),
            high: (*high).into(),
            why: (*why).into(),
        })
        .collect();
    let headlines = [
        ("gups.speedup.t1.75us", "GUPS, one thread"),
        ("gups.speedup.t1.prefetch16.75us", "GUPS, one thread, prefetch"),
        ("gups.speedup.t16.75us", "GUPS, sixteen threads"),
        ("mmap.speedup.t1.75us", "MMAP, one thread"),
        ("mmap.speedup.t1.prefetch16.75us", "MMAP, one thread, prefetch"),
        ("mmap.speedup.t16.75us", "MMAP, sixteen threads"),
        ("mmap.speedup.t16.prefetch16.75us", "MMAP, sixteen threads, prefetch"),
    ];
    let headlines =
        headlines.map(|(figure, title)| Headline { figure: figure.into(), title: title.into() }).to_vec();
    Sensitivity::new(headlines, parameters, &|change: Option<Change<'_>>| {
        let mut base = Base::default();
        if let Some(change) = change {
            apply(&mut base, change)?;
        }
        let mut runs = Sweep::Gups.runs(settings, registry, &base, &GUPS_US)?;
        runs.extend(Sweep::Mmap.runs(settings, registry, &base, &MMAP_US)?);
        Ok(Experiment::new("sensitivity", "Sensitivity", "", runs, |finished| {
            let mut outcome = Outcome::default();
            Sweep::Gups.figures(finished, &GUPS_US, &mut outcome)?;
            Sweep::Mmap.figures(finished, &MMAP_US, &mut outcome)?;
            Ok(outcome)
        }))
    })
}

/// Sets what the change names.
fn apply(base: &mut Base, change: Change<'_>) -> Result<(), ReproError> {
    let Change { key, value } = change;
    let wrong = |why: String| ReproError::Config {
        what: "sensitivity".into(),
        source: Box::new(SimError::Config { key: key.into(), why }),
    };
    let bytes =
        || value.parse::<deepram_core::units::Bytes>().map(|bytes| bytes.0).map_err(|e| wrong(e.to_string()));
    match key.split_once('.') {
        Some(("processor", figure)) => base.processor.push(format!("{figure}={value}")),
        Some(("nvmm", figure)) => base.flash.push(format!("{figure}={value}")),
        Some(("ssd", figure)) => base.drive.push(format!("{figure}={value}")),
        Some(("software", _)) => base.drive.push(format!("{key}={value}")),
        _ => match key {
            "blocking" => base.blocking = value == "true",
            "gap" => base.gap = value.parse().map_err(|_| wrong(format!("{value:?} is no count")))?,
            "data" => base.data = bytes()?,
            "segment" => {
                base.flash.push(format!("segment={value}"));
                base.flash.push(format!("nand.page={value}"));
            }
            "write_back_above" => {
                base.nvmm.write_back_above =
                    value.parse().map_err(|_| wrong(format!("{value:?} is no share")))?;
            }
            "readahead" => {
                base.paging.readahead_most =
                    value.parse().map_err(|_| wrong(format!("{value:?} is no count")))?;
            }
            _ => return Err(wrong("the study does not know how to set it".into())),
        },
    }
    Ok(())
}
