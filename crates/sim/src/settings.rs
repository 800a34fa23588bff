//! The keys of `--set key=value`: one typed schema for each system. The same schema parses values, suggests
//! the nearest key for an unknown one, and lists the keys.
//!
//! Keys without a prefix are figures of the system's main preset; their schema is that of the preset's kind
//! ([`PresetKind::keys`]). A prefix selects another preset of the system, or the options of its model.

use std::fmt::Write as _;

use deepram_core::suggest::nearest;
use deepram_core::units::{Bytes, Picos};
use deepram_media::{Dimension, PresetKind};

use crate::error::SimError;
use crate::pool_model::{POOL_KEYS, PoolModelOptions};
use crate::run::System;

/// A key that `--set` accepts for a system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The key with its prefix: `nand.read`, `memory.channels`, `pool.fault`.
    pub key: String,
    /// The units of its values, or the words that it accepts.
    pub values: String,
    /// The meaning of the key.
    pub help: &'static str,
}

/// The schema of one option of a model: its key, dimension, help, and how to set it. Values are picoseconds for
/// [`Dimension::Time`], bytes for [`Dimension::Size`], and 0 or 1 for [`Dimension::Flag`].
pub(crate) struct OptionKey<O> {
    pub(crate) key: &'static str,
    pub(crate) dimension: Dimension,
    pub(crate) help: &'static str,
    pub(crate) set: fn(&mut O, u64),
}

impl<O> OptionKey<O> {
    /// Parses `value` and sets the option.
    fn set(&self, options: &mut O, value: &str) -> Result<(), String> {
        let number = match self.dimension {
            Dimension::Time => {
                value.parse::<Picos>().map(|time| time.0).map_err(|error| error.to_string())?
            }
            Dimension::Flag => value.parse::<bool>().map(u64::from).map_err(|error| error.to_string())?,
            _ => value.parse::<Bytes>().map(|bytes| bytes.0).map_err(|error| error.to_string())?,
        };
        (self.set)(options, number);
        Ok(())
    }
}

/// The target of the keys with one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The main preset.
    Preset,
    /// The DRAM preset of `ssd-paging`.
    Memory,
    /// The operating-system preset of `ssd-paging`.
    Software,
    /// The SSD of `ssd-buffer` and `pmem`.
    Drive,
    /// The options of `pool`.
    Pool,
}

impl Target {
    /// The prefix of the target's keys, without its dot.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Target::Preset => "",
            Target::Memory => "memory",
            Target::Software => "software",
            Target::Drive => "drive",
            Target::Pool => "pool",
        }
    }

    /// The targets of a system's keys, the main preset first.
    fn of(system: System) -> &'static [Target] {
        match system {
            System::SsdPaging => &[Target::Preset, Target::Memory, Target::Software],
            System::SsdBuffer | System::Pmem => &[Target::Preset, Target::Drive],
            System::Pool => &[Target::Preset, Target::Pool],
            System::Dram
            | System::DiskCache
            | System::Nvmm
            | System::Ssd
            | System::FlatFlash
            | System::UnifiedMMap
            | System::TraditionalStack => &[Target::Preset],
        }
    }

    /// The target of an override of `system`, and the override without the target's prefix.
    pub(crate) fn split(system: System, text: &str) -> (Target, &str) {
        let prefixed = text.split_once('.').and_then(|(prefix, rest)| {
            let target = Target::of(system)[1..].iter().find(|target| target.prefix() == prefix)?;
            Some((*target, rest))
        });
        prefixed.unwrap_or((Target::Preset, text))
    }

    /// The keys of the target, without prefix.
    fn settings(self, system: System) -> Vec<Setting> {
        let values = |dimension: Dimension| match dimension {
            Dimension::Name(words) => words.join(", "),
            Dimension::Flag => "true or false".into(),
            other => other.expected().into(),
        };
        let kind = match self {
            Target::Preset => system.preset_kind(),
            Target::Memory => PresetKind::Dram,
            Target::Software => PresetKind::Software,
            Target::Drive => PresetKind::Ssd,
            Target::Pool => {
                let setting = |option: &OptionKey<PoolModelOptions>| Setting {
                    key: option.key.into(),
                    values: values(option.dimension),
                    help: option.help,
                };
                return POOL_KEYS.iter().map(setting).collect();
            }
        };
        kind.keys()
            .into_iter()
            .map(|spec| Setting { key: spec.key, values: values(spec.dimension), help: spec.meaning })
            .collect()
    }
}

/// All keys that `--set` accepts for a system, those of its main preset first.
#[must_use]
pub fn settings(system: System) -> Vec<Setting> {
    let of_target = |target: &Target| {
        let prefix = if *target == Target::Preset { String::new() } else { format!("{}.", target.prefix()) };
        target
            .settings(system)
            .into_iter()
            .map(move |setting| Setting { key: format!("{prefix}{}", setting.key), ..setting })
    };
    Target::of(system).iter().flat_map(of_target).collect()
}

/// All keys that `--set` accepts for a system, as a table: key, units or words, meaning.
#[must_use]
pub fn settings_table(system: System) -> String {
    let settings = settings(system);
    let width = |of: fn(&Setting) -> usize| settings.iter().map(of).max().unwrap_or(0);
    let (keys, values) = (width(|s| s.key.len()), width(|s| s.values.len()));
    settings.iter().fold(String::new(), |mut text, Setting { key, values: units, help }| {
        let _ = writeln!(text, "{key:<keys$}  {units:<values$}  {help}");
        text
    })
}

/// The error of a key that a system does not have: suggests the nearest of its keys.
pub(crate) fn unknown_key(system: System, target: Target, key: &str) -> SimError {
    let full = if target == Target::Preset { key.to_owned() } else { format!("{}.{key}", target.prefix()) };
    let settings = settings(system);
    let near = nearest(&full, settings.iter().map(|setting| setting.key.as_str()))
        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let name = system.name();
    SimError::config(
        format!("--set {full}"),
        format!("{name} has no such key{near} (`deepram sim {name} --keys` lists its keys)"),
    )
}

/// Sets the options of `pool` from one override without its prefix, `key=value`.
///
/// # Errors
/// The key does not exist, or the value does not parse.
pub(crate) fn set_pool_option(options: &mut PoolModelOptions, text: &str) -> Result<(), SimError> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let (key, value) = (key.trim(), value.trim());
    let Some(option) = POOL_KEYS.iter().find(|option| option.key == key) else {
        return Err(unknown_key(System::Pool, Target::Pool, key));
    };
    option.set(options, value).map_err(|why| SimError::config(format!("--set pool.{key}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_lists_its_keys_once_and_those_of_its_other_presets_with_their_prefix() {
        for system in System::ALL {
            let keys: Vec<String> = settings(system).into_iter().map(|setting| setting.key).collect();
            let mut once = keys.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), keys.len(), "{system:?}");
            assert!(!keys.is_empty() && settings_table(system).lines().count() == keys.len());
            assert_eq!(keys.iter().any(|key| key == "memory.channels"), system == System::SsdPaging);
            // The hierarchies of FlatFlash contain an operating system; that of `ssd-paging` is a preset of its own.
            let has_software = system == System::SsdPaging || system.access_mode().is_some();
            assert_eq!(keys.iter().any(|key| key == "software.entry"), has_software, "{system:?}");
            let has_drive = keys.iter().any(|key| key == "drive.nand.read");
            assert_eq!(has_drive, matches!(system, System::SsdBuffer | System::Pmem), "{system:?}");
            assert_eq!(keys.iter().any(|key| key == "pool.first_store"), system == System::Pool);
        }
    }

    #[test]
    fn a_misspelt_key_or_prefix_is_answered_with_the_nearest_key_of_the_system() {
        let error = |system, text: &'static str| {
            let (target, key) = Target::split(system, text);
            unknown_key(system, target, key).to_string()
        };
        assert!(error(System::SsdPaging, "memry.channels").contains("did you mean `memory.channels`"));
        assert!(error(System::SsdPaging, "memory.chanels").contains("did you mean `memory.channels`"));
        let mut options = PoolModelOptions::default();
        let misspelt = set_pool_option(&mut options, "falt=3us").unwrap_err().to_string();
        assert!(misspelt.contains("did you mean `pool.fault`"), "{misspelt}");
        let unitless = set_pool_option(&mut options, "fault=3").unwrap_err().to_string();
        assert!(unitless.starts_with("--set pool.fault: "), "{unitless}");
    }

    #[test]
    fn each_key_of_the_pool_sets_the_field_that_it_names() {
        let mut options = PoolModelOptions::default();
        for text in [
            "data=1GiB",
            "budget=2GiB",
            "segment=8KiB",
            "hit=5ns",
            "fault=33us",
            "first_store = 21us",
            "write_back=6us",
            "install=1us",
            "fresh=2us",
            "second_chance=3us",
            "evict=4us",
            "stage=6ns",
            "fault_around=false",
            "huge_pages=false",
        ] {
            set_pool_option(&mut options, text).unwrap();
        }
        let expected = PoolModelOptions {
            data: Bytes(1 << 30),
            budget: Bytes(2 << 30),
            segment: Bytes(8192),
            hit: Picos(5_000),
            fault: Picos(33_000_000),
            protect: Picos(21_000_000),
            flush: Picos(6_000_000),
            install: Picos(1_000_000),
            fresh: Picos(2_000_000),
            second_chance: Picos(3_000_000),
            evict: Picos(4_000_000),
            stage: Picos(6_000),
            fault_around: false,
            huge_pages: false,
            ..PoolModelOptions::default()
        };
        assert_eq!(options, expected);
    }
}
