//! The options of a simulation by their names on the command line, and the forms of their values.

use std::ops::Range;

use deepram_core::suggest::nearest;
use deepram_core::units::{Bytes, ParseUnitError, Picos, parse_count, parse_share, split_unit};

use super::{DriveState, Simulation};
use crate::clients::Logging;
use crate::error::SimError;
use crate::nvmm::Prefetch;
use crate::run::System;

/// The names of all options of a simulation, as `deepram sim` calls them. `set` is not among them: it has keys of its
/// own ([`crate::settings`]).
pub const OPTIONS: [&str; 32] = [
    "system",
    "workload",
    "trace",
    "format",
    "preset",
    "seed",
    "threads",
    "depth",
    "think",
    "closed",
    "requests",
    "warm-up",
    "wrap",
    "object-slots",
    "precondition",
    "filled",
    "suspend",
    "processor",
    "cores",
    "gap",
    "dram",
    "persist",
    "clients",
    "logging",
    "work",
    "log-lock",
    "prefetch",
    "memory",
    "software",
    "drive",
    "swap",
    "interval",
];

impl Simulation {
    /// Sets an option by its name in [`OPTIONS`]. `persist` takes ranges separated by commas; switches take `true` or
    /// `false`.
    ///
    /// # Errors
    /// There is no such option (the error suggests the nearest one), or the value is invalid.
    pub fn set_option(&mut self, name: &str, value: &str) -> Result<(), SimError> {
        let value = value.trim();
        let wrong = |why: String| SimError::config(name, why);
        let number = || value.parse::<u64>().map_err(|_| wrong(expected_number(value)));
        let positive = || match value.parse::<u32>() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(wrong(format!("{value:?} is not a whole number from 1 to {}", u32::MAX))),
        };
        let count = || parse_count(value).map_err(|error| wrong(error.to_string()));
        let time = || parse_time(value).map_err(|why| wrong(format!("{value:?}: {why}")));
        let flag = || match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong(format!("{value:?} is neither true nor false"))),
        };
        let text = || Some(value.to_owned());
        match name {
            "system" => self.system = System::parse(value)?,
            "workload" => self.workload = text(),
            "trace" => self.trace = Some(value.into()),
            "format" => self.format = Some(value.parse().map_err(|e| wrong(format!("{e}")))?),
            "preset" => self.preset = value.to_owned(),
            "seed" => self.seed = number()?,
            "threads" => self.threads = positive()?,
            "depth" => self.depth = positive()?,
            "think" => self.think = time()?,
            "closed" => self.closed = flag()?,
            "requests" => self.requests = count()?,
            "warm-up" => self.warm_up = count()?,
            "wrap" => self.wrap = flag()?,
            "object-slots" => self.object_slots = Some(parse_object_slots(value).map_err(wrong)?),
            "precondition" => {
                let states = [
                    ("empty", DriveState::Empty),
                    ("sequential", DriveState::Sequential),
                    ("steady", DriveState::Steady),
                ];
                self.precondition = Some(word(value, &states).map_err(wrong)?);
            }
            "filled" => {
                self.filled = Some(parse_share(value).map_err(|error| wrong(error.to_string()))?);
            }
            "suspend" => self.suspend = flag()?,
            "processor" => self.processor = text(),
            "cores" => self.cores = Some(positive()?),
            "gap" => {
                self.gap = u32::try_from(number()?).map_err(|_| wrong(expected_number(value)))?;
            }
            "dram" => {
                self.dram = Some(value.parse().map_err(|error: ParseUnitError| wrong(error.to_string()))?);
            }
            "persist" => {
                let ranges: Result<_, _> = value.split(',').map(parse_region).collect();
                self.persist = ranges.map_err(wrong)?;
            }
            "clients" => {
                let clients = positive()?;
                if clients > 4096 {
                    return Err(wrong(format!("{clients} are more than 4096, the most clients")));
                }
                self.clients = Some(clients);
            }
            "logging" => {
                let logs = [("central", Logging::Central), ("own", Logging::Own)];
                self.logging = Some(word(value, &logs).map_err(wrong)?);
            }
            "work" => self.work = time()?,
            "log-lock" => self.log_lock = time()?,
            "prefetch" => self.prefetch = Some(parse_prefetch(value).map_err(wrong)?),
            "memory" => self.memory = text(),
            "software" => self.software = text(),
            "drive" => self.drive = text(),
            "swap" => self.swap = flag()?,
            "interval" => self.interval = Some(parse_interval(value).map_err(wrong)?),
            _ => {
                let near =
                    nearest(name, OPTIONS).map_or_else(String::new, |near| format!("; did you mean {near}?"));
                return Err(wrong(format!("there is no such option{near} (known: {})", OPTIONS.join(", "))));
            }
        }
        Ok(())
    }
}

fn expected_number(value: &str) -> String {
    format!("{value:?} is not a whole number such as 1 or 4096")
}

/// The value of a word out of a closed list.
fn word<T: Copy>(value: &str, words: &[(&str, T)]) -> Result<T, String> {
    words.iter().find(|(word, _)| *word == value).map(|(_, of)| *of).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let near = nearest(value, names.iter().copied())
            .map_or_else(String::new, |near| format!("; did you mean {near}?"));
        format!("{value:?} is none of {}{near}", names.join(", "))
    })
}

/// Parses a prefetch policy: `none`, `streams`, or a number of blocks.
///
/// # Errors
/// The text is none of these, or the number is above 1024.
pub fn parse_prefetch(text: &str) -> Result<Prefetch, String> {
    match text {
        "none" => Ok(Prefetch::None),
        "streams" => Ok(Prefetch::STREAMS),
        number => match number.parse() {
            Ok(0) => Ok(Prefetch::None),
            Ok(blocks) if blocks <= 1024 => Ok(Prefetch::Next(blocks)),
            _ => Err("expected none, streams, or a number of blocks up to 1024".into()),
        },
    }
}

/// Parses a range of addresses, `FIRST..END`, in bytes.
///
/// # Errors
/// The text has another form, or the range is empty.
pub fn parse_region(text: &str) -> Result<Range<u64>, String> {
    let expected = || "expected FIRST..END with FIRST less than END, such as 0..1GiB".to_owned();
    let (first, end) = text.split_once("..").ok_or_else(expected)?;
    let bytes = |text: &str| text.trim().parse::<Bytes>().map(|bytes| bytes.0).map_err(|_| expected());
    let region = bytes(first)?..bytes(end)?;
    if region.is_empty() { Err(expected()) } else { Ok(region) }
}

/// Parses a time; a number without a unit counts microseconds.
///
/// # Errors
/// The text is not a time.
pub fn parse_time(text: &str) -> Result<Picos, String> {
    let bare = split_unit(text).1.is_empty();
    let with_unit = if bare { format!("{}us", text.trim()) } else { text.to_owned() };
    with_unit.parse().map_err(|error: ParseUnitError| format!("expected {}", error.wanted()))
}

/// Parses an interval of time longer than 0; a number without a unit counts microseconds.
///
/// # Errors
/// The text is not a time, or the time is 0.
pub fn parse_interval(text: &str) -> Result<Picos, String> {
    match parse_time(text)? {
        Picos(0) => Err("expected an interval longer than 0".into()),
        interval => Ok(interval),
    }
}

/// Parses a number of object slots, at least one.
///
/// # Errors
/// The text is not a count, or the count is 0.
pub fn parse_object_slots(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("expected at least one slot".into()),
        Ok(slots) => Ok(slots),
        Err(error) => Err(error.to_string()),
    }
}
