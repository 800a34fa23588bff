//! `deepram run --media`: a program whose memory behaves like slower, persistent memory.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, ExitStatus};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use deepram_core::suggest::nearest;
use deepram_core::units::{Bytes, PS_PER_S, Picos, parse_share};
use deepram_linux::flush::{Flusher, Method};
use deepram_linux::slow_memory::Machine;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::program;
use super::signals::run_to_end;
use super::start::{PAGING_VARIABLES, ld_preload, library};
use crate::output;

const KIND: &str = "pmem";
const KEYS: [&str; 5] = ["read", "bandwidth", "wbarrier", "flush", "selective"];
/// Bytes of a line.
const LINE: f64 = 64.0;
/// Longest read latency and longest barrier.
const LONGEST_READ: Picos = Picos(100 * 1_000_000);
const LONGEST_BARRIER: Picos = Picos(PS_PER_S);
/// Smallest share of the machine's bandwidth.
const LEAST_SHARE: f64 = 0.001;

/// A cap of the bandwidth (`Th_BW`).
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cap {
    /// Part of this machine's bandwidth.
    Share(f64),
    /// Bytes a second.
    Rate(u64),
}

/// The memory that a program is to have: the parameters of the NVMM application study, Table II.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MediaSpec {
    /// `L_READ`; none: this machine's.
    read: Option<Picos>,
    /// `Th_BW`; none: this machine's.
    cap: Option<Cap>,
    /// `L_WBAR`.
    wbarrier: Picos,
    /// `M_FLUSH`.
    flush: Method,
    /// `M_SYNC`: whether a sync flushes dirty pages only.
    selective: bool,
}

impl Default for MediaSpec {
    fn default() -> Self {
        Self { read: None, cap: None, wbarrier: Picos(0), flush: Method::Clflush, selective: false }
    }
}

impl FromStr for MediaSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, settings) = text.split_once(':').unwrap_or((text, ""));
        if kind != KIND {
            return Err(format!(
                "\"{kind}\" is no memory that can be emulated: give {KIND}, or {KIND}:read=300ns,bandwidth=1/8,wbarrier=1us"
            ));
        }
        let (mut spec, mut given) = (Self::default(), Vec::new());
        for setting in settings.split(',').filter(|_| text.contains(':')) {
            let (key, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("\"{setting}\" is not KEY=VALUE; the keys are {}", KEYS.join(", ")))?;
            if given.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            given.push(key);
            spec.set(key, value)?;
        }
        Ok(spec)
    }
}

impl MediaSpec {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let time = |longest: Picos| {
            let time: Picos = value.parse().map_err(|error| format!("{key}={value}: {error}"))?;
            if time > longest {
                return Err(format!("{key}={value} is longer than the longest, {}", shown(longest)));
            }
            Ok(time)
        };
        match key {
            "read" => self.read = Some(time(LONGEST_READ)?),
            "bandwidth" => self.cap = Some(cap(value).map_err(|why| format!("bandwidth={value}: {why}"))?),
            "wbarrier" => self.wbarrier = time(LONGEST_BARRIER)?,
            "flush" => {
                let method: Method = value.parse().map_err(|error| format!("flush: {error}"))?;
                Flusher::new(method).map_err(|error| format!("flush={value}: {error}"))?;
                self.flush = method;
            }
            "selective" => match value {
                "on" => self.selective = true,
                "off" => self.selective = false,
                _ => return Err(format!("selective={value}: give on or off")),
            },
            _ => {
                let near =
                    nearest(key, KEYS).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
                return Err(format!("unknown key \"{key}\"; the keys are {}{near}", KEYS.join(", ")));
            }
        }
        Ok(())
    }

    /// Whether the figures of this machine are needed.
    fn needs_machine(&self) -> bool {
        self.read.is_some() || self.cap.is_some()
    }

    /// Checks the memory against this machine's. Returns the emulated read latency and the time of a line under the cap, picoseconds.
    fn speed(&self, machine: &Machine) -> anyhow::Result<(u64, u64)> {
        let read = self.read.map_or(machine.memory_ps, |read| read.0);
        ensure!(
            read >= machine.memory_ps,
            "read={}: this machine's own memory takes {} to read, and an emulation can only be slower; give at least that, or \
             leave the key out",
            shown(Picos(read)),
            shown(Picos(machine.memory_ps))
        );
        let own = PS_PER_S as f64 * LINE / machine.line_ps as f64;
        let line_ps = match self.cap {
            None => 0,
            // All of it needs no cap.
            Some(Cap::Share(share)) if share >= 1.0 => 0,
            Some(Cap::Share(share)) => (machine.line_ps as f64 / share) as u64,
            Some(Cap::Rate(bytes)) => {
                ensure!(
                    bytes as f64 <= own,
                    "bandwidth={}: this machine reads {} itself; give less, or leave the key out",
                    shown_rate(bytes),
                    shown_rate(own as u64)
                );
                (PS_PER_S as f64 * LINE / bytes as f64) as u64
            }
        };
        Ok((read, line_ps))
    }

    /// The settings as the library reads them.
    fn to_variable(self, machine: Option<&Machine>) -> anyhow::Result<String> {
        let mut text = format!(
            "flush={} wbarrier_ns={} selective={}",
            self.flush,
            self.wbarrier.0 / 1000,
            if self.selective { "on" } else { "off" }
        );
        if let Some(machine) = machine {
            let (read_ps, line_ps) = self.speed(machine)?;
            text += &format!(" machine={machine} read_ps={read_ps} line_ps={line_ps}");
        }
        Ok(text)
    }
}

impl fmt::Display for MediaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = |time: Picos| format!("{}ns", time.ns());
        let mut all = Vec::new();
        all.extend(self.read.map(|read| format!("read={}", ns(read))));
        all.extend(self.cap.map(|cap| match cap {
            Cap::Share(share) => format!("bandwidth={share}"),
            Cap::Rate(bytes) => format!("bandwidth={bytes}B/s"),
        }));
        all.push(format!("wbarrier={}", ns(self.wbarrier)));
        all.push(format!("flush={}", self.flush));
        all.push(format!("selective={}", if self.selective { "on" } else { "off" }));
        write!(f, "{KIND}:{}", all.join(","))
    }
}

fn shown(time: Picos) -> String {
    output::duration(Duration::from_nanos(time.0 / 1000))
}

fn shown_rate(bytes: u64) -> String {
    output::rate(bytes, Duration::from_secs(1))
}

/// Parses a cap: a fraction such as 1/8, a share such as 0.125 or 12.5%, or a rate such as 4GB/s.
fn cap(text: &str) -> Result<Cap, String> {
    let wanted = "give a share of this machine's bandwidth such as 1/8 or 12.5%, or a rate such as 4GB/s";
    if let Some(size) = text.strip_suffix("/s") {
        let bytes: Bytes = size.parse().map_err(|error| format!("{error}; {wanted}"))?;
        return if bytes.0 >= 1 << 20 { Ok(Cap::Rate(bytes.0)) } else { Err("the least is 1MiB/s".into()) };
    }
    let share = match text.split_once('/') {
        Some((above, below)) => {
            let number = |text: &str| text.parse::<u32>().map_err(|_| wanted.to_owned());
            f64::from(number(above)?) / f64::from(number(below)?)
        }
        None => parse_share(text).map_err(|_| wanted.to_owned())?,
    };
    if (LEAST_SHARE..=1.0).contains(&share) {
        Ok(Cap::Share(share))
    } else {
        Err(format!("a share is between {LEAST_SHARE} and 1; {wanted}"))
    }
}

/// A program that is ready to start on emulated memory.
pub(crate) struct MediaProgram {
    command: Command,
    /// The clock of the memory that all processes of the run share; they open it by its number here.
    bus: OwnedFd,
}

impl MediaProgram {
    /// Checks the program, and measures this machine if the memory's speed is asked for.
    ///
    /// # Errors
    /// The program cannot run under the library, or this machine cannot behave like that memory; the message gives the reason.
    pub(crate) fn new(spec: &MediaSpec, words: &[std::ffi::OsString]) -> anyhow::Result<Self> {
        let machine = if spec.needs_machine() {
            Some(Machine::measure().context("measuring this machine's memory")?)
        } else {
            None
        };
        Self::on_machine(spec, words, machine.as_ref())
    }

    /// As [`MediaProgram::new`], with the figures of this machine if they are known.
    pub(crate) fn on_machine(
        spec: &MediaSpec,
        words: &[std::ffi::OsString],
        machine: Option<&Machine>,
    ) -> anyhow::Result<Self> {
        let program = program::find(&words[0])?;
        let settings = spec.to_variable(machine.filter(|_| spec.needs_machine()))?;
        let bus = memfd_create("deepram-media", MemfdFlags::CLOEXEC).context("creating the shared clock")?;
        ftruncate(&bus, 4096).context("creating the shared clock")?;
        let mut command = Command::new(&program);
        command.args(&words[1..]);
        for name in PAGING_VARIABLES {
            command.env_remove(name);
        }
        command.env("LD_PRELOAD", ld_preload(&library()?));
        command.env("DEEPRAM_RUN_MEDIA", settings);
        command.env("DEEPRAM_RUN_MEDIA_BUS", format!("/proc/{}/fd/{}", std::process::id(), bus.as_raw_fd()));
        Ok(Self { command, bus })
    }

    /// The command, to change its streams.
    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// The command, and the clock that must be kept until the program has ended.
    pub(crate) fn into_parts(self) -> (Command, OwnedFd) {
        (self.command, self.bus)
    }

    /// Starts the program and waits for its end.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn run(mut self) -> anyhow::Result<ExitStatus> {
        run_to_end(&mut self.command, || {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        ticks_per_ms: 2_600_000,
        probe_ticks: 60,
        cycle_ps: 300,
        near_ps: 5_000,
        memory_ps: 180_000,
        thread_line_ps: 6_400,
        thread_copy_ps: 4_000,
        line_ps: 3_200,
    };

    fn spec(text: &str) -> MediaSpec {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn any_subset_of_the_keys_is_a_memory() {
        assert_eq!(spec("pmem"), MediaSpec::default());
        let all = spec("pmem:read=300ns,bandwidth=1/8,wbarrier=1us,flush=clflush,selective=on");
        assert_eq!(all.read, Some(Picos::from_ns(300)));
        assert_eq!(all.cap, Some(Cap::Share(0.125)));
        assert_eq!((all.wbarrier, all.flush, all.selective), (Picos::from_us(1), Method::Clflush, true));
        assert_eq!(spec("pmem:bandwidth=12.5%").cap, Some(Cap::Share(0.125)));
        assert_eq!(spec("pmem:bandwidth=2GB/s").cap, Some(Cap::Rate(2_000_000_000)));
        for text in ["pmem", "pmem:read=300ns,bandwidth=1/8,flush=wof", "pmem:bandwidth=2GB/s,wbarrier=5us"] {
            assert_eq!(spec(&spec(text).to_string()), spec(text), "{text}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (text, says) in [
            ("flash", "give pmem"),
            ("pmem:", "is not KEY=VALUE"),
            ("pmem:read", "is not KEY=VALUE"),
            ("pmem:reed=300ns", "did you mean read?"),
            ("pmem:read=300", "unit"),
            ("pmem:read=300KiB", "read=300KiB"),
            ("pmem:read=1s", "longer than the longest"),
            ("pmem:read=300ns,read=400ns", "given twice"),
            ("pmem:bandwidth=0", "between 0.001 and 1"),
            ("pmem:bandwidth=9/8", "between 0.001 and 1"),
            ("pmem:bandwidth=1/0", "between 0.001 and 1"),
            ("pmem:bandwidth=fast", "such as 1/8"),
            ("pmem:bandwidth=1KiB/s", "1MiB/s"),
            ("pmem:wbarrier=2s", "longer than the longest"),
            ("pmem:flush=clfush", "clflushopt"),
            ("pmem:selective=yes", "on or off"),
        ] {
            let error = text.parse::<MediaSpec>().expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_memory_cannot_be_faster_than_the_machine() {
        assert_eq!(spec("pmem").speed(&MACHINE).ok(), Some((180_000, 0)));
        assert_eq!(spec("pmem:read=300ns,bandwidth=1/8").speed(&MACHINE).ok(), Some((300_000, 25_600)));
        assert_eq!(spec("pmem:bandwidth=1").speed(&MACHINE).ok(), Some((180_000, 0)));
        assert_eq!(spec("pmem:bandwidth=2GB/s").speed(&MACHINE).ok(), Some((180_000, 32_000)));
        let slow = spec("pmem:read=150ns").speed(&MACHINE).expect_err("too fast").to_string();
        assert!(slow.contains("180"), "{slow}");
        let wide = spec("pmem:bandwidth=100GB/s").speed(&MACHINE).expect_err("too wide").to_string();
        assert!(wide.contains("20"), "{wide}");
    }
}
