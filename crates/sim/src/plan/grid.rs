//! The hierarchies that a plan compares.

use deepram_core::units::{Bytes, Picos};
use deepram_media::{Dram, Hierarchy, Nand, Nvmm, Pcm, Registry, Ssd, WriteBuffer};
use serde::Serialize;

use super::figures::{Parts, Prices, Store};
use super::profile::{DramSize, Profile};
use crate::error::SimError;
use crate::run::{System, SystemConfig};

/// The use of a trace's requests, which determines the systems that fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Accesses of memory: DRAM, and what takes the data that do not fit.
    Memory,
    /// Requests to storage: drives and their write buffers.
    Storage,
}

/// A hierarchy of the grid.
#[derive(Debug, Clone)]
pub struct Point {
    /// Its system and configuration.
    pub config: SystemConfig,
    /// The medium of the data, such as `xl-flash`.
    pub store: String,
    /// The faster memory in front of it, such as `16 MiB DRAM`.
    pub memory: String,
    /// What of the hierarchy the data need.
    pub parts: Parts,
    /// Bytes that the simulated device holds.
    pub capacity: Bytes,
}

impl Point {
    /// The name: system, store and memory.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}, {}, {}", self.config.system.name(), self.store, self.memory)
    }

    /// The options by which `deepram sim` simulates the hierarchy; `None` for a drive without a buffer, which
    /// begins full here and cannot there.
    #[must_use]
    pub fn sim_options(&self) -> Option<String> {
        let config = &self.config;
        if config.system == System::Ssd {
            return None;
        }
        let mut text = format!("{} --preset {}", config.system.name(), config.preset);
        let dram = config.nvmm.cache.0.max(config.paging.memory.0).max(config.flat.memory.0);
        if dram > 0 {
            text.push_str(&format!(" --dram {dram}"));
        }
        if config.system == System::SsdPaging {
            text.push_str(&format!(" --memory {} --software {}", config.memory, config.software));
        }
        for set in &config.overrides {
            text.push_str(&format!(" --set {set}"));
        }
        Some(text)
    }
}

/// DRAM of memory systems.
const DRAM: &str = "ddr5-64gib";
/// The operating system of `ssd-paging`.
const SOFTWARE: &str = "linux-nvme";

/// Memory systems behind DRAM: the system, its preset, and the name of its store.
const MEMORY: [(System, &str, &str); 6] = [
    (System::FlatFlash, "cxl-xl-flash", "xl-flash behind CXL"),
    (System::UnifiedMMap, "cxl-xl-flash", "xl-flash behind CXL"),
    (System::Nvmm, "nvmm-xl-flash", "xl-flash"),
    (System::Nvmm, "nvmm-tlc-232", "tlc-232"),
    (System::SsdPaging, "kioxia-fl6", "kioxia-fl6"),
    (System::SsdPaging, "micron-9550-max", "micron-9550-max"),
];
/// The PCM that takes the place of flash in `nvmm`.
const PCM: &str = "pcm-expected";

/// Drives without a buffer of DRAM and PCM.
const DRIVES: [&str; 2] = ["kioxia-fl6", "micron-9550-max"];
/// The drive behind the buffers.
const BUFFERED_DRIVE: &str = "hybrid-buffer";
/// Flash of the drive behind the buffers.
const BUFFERED_FLASH: [&str; 2] = ["xl-flash", "tlc-232"];
/// Buffers: the preset, and the scheme or the policy in place of the preset's, as an override.
const BUFFERS: [(&str, &[&str]); 8] = [
    ("hybrid-42", &["policy=lru", "policy=cflru", "policy=lru-wsr", "policy=ccf-lru", "policy=fab"]),
    ("pcm-80", &["scheme=pcm-only"]),
    ("hybrid-1-20", &["scheme=ts"]),
    ("hybrid-2-40", &["scheme=ts"]),
    ("hybrid-3-18", &["scheme=ts"]),
    ("hybrid-6-36", &["scheme=ts", "scheme=tp"]),
    ("hybrid-4-80", &["scheme=ts", "scheme=tp", "scheme=2l"]),
    ("hybrid-12-72", &["scheme=ts"]),
];

/// The grid for a trace.
///
/// # Errors
/// A preset is missing, or the data do not fit in a hierarchy.
pub fn grid(
    registry: &Registry,
    profile: &Profile,
    of: Use,
    data: Bytes,
    prices: &Prices,
) -> Result<Vec<Point>, SimError> {
    let builder = Builder { registry, data, prices };
    let points = match of {
        Use::Memory => builder.memory(&profile.dram),
        Use::Storage => builder.storage(),
    }?;
    let too_small = points.iter().find(|point| point.capacity < data);
    match too_small {
        None => Ok(points),
        Some(point) => Err(SimError::config(
            "data",
            format!("{data} do not fit in {} ({})", point.name(), point.capacity),
        )),
    }
}

struct Builder<'a> {
    registry: &'a Registry,
    data: Bytes,
    prices: &'a Prices,
}

impl Builder<'_> {
    fn memory(&self, sizes: &[DramSize]) -> Result<Vec<Point>, SimError> {
        let mut points = vec![self.all_dram()?];
        for size in sizes {
            for (system, preset, store) in MEMORY {
                points.push(self.behind_dram(system, preset, store, Bytes(size.bytes))?);
            }
            points.push(self.pcm_behind_dram(Bytes(size.bytes))?);
        }
        Ok(points)
    }

    fn all_dram(&self) -> Result<Point, SimError> {
        let dram: Dram = self.registry.get(&format!("dram.{DRAM}"))?;
        let capacity = dram.total_capacity();
        Ok(Point {
            config: SystemConfig { preset: DRAM.into(), ..SystemConfig::new(System::Dram) },
            store: "all in DRAM".into(),
            memory: format!("{} DRAM", self.data),
            parts: Parts {
                dram_bytes: self.data.0,
                dram_share: share(self.data, capacity),
                pcm_bytes: 0,
                store: None,
            },
            capacity,
        })
    }

    fn behind_dram(&self, system: System, preset: &str, store: &str, dram: Bytes) -> Result<Point, SimError> {
        let mut config = SystemConfig { preset: preset.into(), ..SystemConfig::new(system) };
        (config.nvmm.cache, config.paging.memory, config.flat.memory) = (dram, dram, dram);
        (config.memory, config.software) = (DRAM.into(), SOFTWARE.into());
        let (nand, raw, host, all_dram) = match system {
            System::Nvmm => {
                let sheet: Nvmm = self.registry.get(&format!("nvmm.{preset}"))?;
                (sheet.package(), sheet.raw_bytes(), sheet.host_bytes(), sheet.dram.total_capacity())
            }
            System::SsdPaging => {
                let sheet: Ssd = self.registry.get(&format!("ssd.{preset}"))?;
                let dram: Dram = self.registry.get(&format!("dram.{DRAM}"))?;
                (sheet.nand.clone(), sheet.raw_bytes(), sheet.host_bytes(), dram.total_capacity())
            }
            _ => {
                let sheet: Hierarchy = self.registry.get(&format!("hierarchy.{preset}"))?;
                // The drive's buffer for the data is as large a part of them as that of a full drive.
                let least = (1 << 20) as f64 / sheet.host_bytes().0 as f64;
                let buffer = (sheet.buffer_share.0 * share(self.data, sheet.host_bytes())).max(least);
                config.overrides.push(format!("buffer_share={:.8}%", buffer * 100.0));
                let dram = sheet.dram.total_capacity();
                (sheet.nand.clone(), sheet.raw_bytes(), sheet.host_bytes(), dram)
            }
        };
        Ok(Point {
            config,
            store: store.into(),
            memory: format!("{dram} DRAM"),
            parts: Parts {
                dram_bytes: dram.0,
                dram_share: share(dram, all_dram),
                pcm_bytes: 0,
                store: Some(self.flash(&nand, raw, host)),
            },
            capacity: host,
        })
    }

    /// PCM in place of the flash of `nvmm`.
    fn pcm_behind_dram(&self, dram: Bytes) -> Result<Point, SimError> {
        let pcm: Pcm = self.registry.get(&format!("pcm.{PCM}"))?;
        let mut point = self.behind_dram(System::Nvmm, "nvmm-xl-flash", PCM, dram)?;
        // Half of the bits written are ones.
        let written = f64::midpoint(pcm.write_energy_zero.0, pcm.write_energy_one.0);
        point.config.overrides = vec![
            format!("store_read={}", time(pcm.read)),
            format!("store_write={}", time(pcm.write)),
            format!("store_read_energy={}pJ/bit", pcm.read_energy.0),
            format!("store_write_energy={written}pJ/bit"),
        ];
        point.parts.store = Some(Store {
            raw_bytes: self.data.0,
            share: share(self.data, point.capacity),
            usd_per_gb: self.prices.pcm,
            endurance: pcm.endurance,
        });
        Ok(point)
    }

    fn storage(&self) -> Result<Vec<Point>, SimError> {
        let mut points = Vec::new();
        for preset in DRIVES {
            points.push(self.drive(preset, preset, Vec::new())?);
        }
        for flash in BUFFERED_FLASH {
            let nand: Nand = self.registry.get(&format!("nand.{flash}"))?;
            let set = vec![
                format!("nand.cell={}", nand.cell.word()),
                format!("nand.read={}", time(nand.read)),
                format!("nand.program={}", time(nand.program)),
                format!("nand.erase={}", time(nand.erase)),
                format!("nand.endurance={}cycles", nand.endurance),
            ];
            let bare = self.drive(BUFFERED_DRIVE, flash, set.clone())?;
            for (buffer, variants) in BUFFERS {
                for variant in variants {
                    points.push(self.buffered(&bare, buffer, variant, &set)?);
                }
            }
            points.push(bare);
        }
        Ok(points)
    }

    fn drive(&self, preset: &str, store: &str, set: Vec<String>) -> Result<Point, SimError> {
        let overrides: Vec<&str> = set.iter().map(String::as_str).collect();
        let sheet: Ssd = self.registry.get_with(&format!("ssd.{preset}"), &overrides)?;
        let flash = self.flash(&sheet.nand, sheet.raw_bytes(), sheet.host_bytes());
        let mut config =
            SystemConfig { preset: preset.into(), overrides: set, ..SystemConfig::new(System::Ssd) };
        // It begins full, as the drive behind a buffer does.
        config.ssd.writes_assume_written = true;
        Ok(Point {
            config,
            store: store.into(),
            memory: "no buffer".into(),
            parts: Parts { dram_bytes: 0, dram_share: 1.0, pcm_bytes: 0, store: Some(flash) },
            capacity: sheet.host_bytes(),
        })
    }

    /// `bare`, the drive whose overrides are `set`, behind a buffer.
    fn buffered(&self, bare: &Point, preset: &str, variant: &str, set: &[String]) -> Result<Point, SimError> {
        let sheet: WriteBuffer = self.registry.get_with(&format!("buffer.{preset}"), &[variant])?;
        let mut overrides = vec![variant.to_owned()];
        overrides.extend(set.iter().map(|set| format!("drive.{set}")));
        let (dram, pcm) = (sheet.dram.size, sheet.pcm.size);
        let sizes: Vec<String> = [(dram, "DRAM"), (pcm, "PCM")]
            .iter()
            .filter(|(size, _)| size.0 > 0)
            .map(|(size, cells)| format!("{size} {cells}"))
            .collect();
        let rule = variant.split_once('=').map_or(variant, |(_, rule)| rule);
        Ok(Point {
            config: SystemConfig {
                preset: preset.into(),
                overrides,
                drive: BUFFERED_DRIVE.into(),
                ..SystemConfig::new(System::SsdBuffer)
            },
            memory: format!("{}, {rule}", sizes.join(" + ")),
            parts: Parts { dram_bytes: dram.0, pcm_bytes: pcm.0, ..bare.parts },
            ..bare.clone()
        })
    }

    /// The flash that the data need of a device of `raw` bytes of flash for `host` bytes of data.
    fn flash(&self, nand: &Nand, raw: Bytes, host: Bytes) -> Store {
        let share = share(self.data, host);
        Store {
            raw_bytes: (raw.0 as f64 * share).ceil() as u64,
            share,
            usd_per_gb: self.prices.flash(nand.cell),
            endurance: nand.endurance,
        }
    }
}

fn share(part: Bytes, whole: Bytes) -> f64 {
    part.0 as f64 / whole.0.max(1) as f64
}

fn time(time: Picos) -> String {
    format!("{}ps", time.0)
}
