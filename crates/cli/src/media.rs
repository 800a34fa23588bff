//! `deepram media`: the presets of technologies and devices for the simulator.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use deepram_media::Registry;
use serde::Serialize;

use crate::output::{Table, emit_json, emit_text};

/// Commands on presets.
#[derive(Debug, Subcommand)]
pub(crate) enum MediaCommand {
    /// List every preset
    List {
        /// TOML file with presets of your own, listed too
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Measure a real file or block device and write the result as a preset
    ///
    /// Measures random direct reads and writes of 4 KiB to 1 MiB at queue depths 1 and 32. The kind of the preset is
    /// `file`.
    Measure(crate::measure::MeasureArgs),
    /// Show a preset: every value with its unit and source
    ///
    /// NAME is a name that `deepram media list` prints, such as nand.slc. The part before the point may
    /// be left out if the rest is unique.
    Show {
        /// Name of the preset
        name: String,
        /// TOML file with presets of your own
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Override a value: key=value, such as read=30us; may be given again
        #[arg(long = "set", value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct EntryJson {
    name: String,
    kind: String,
    about: String,
}

#[derive(Serialize)]
struct SheetJson {
    name: String,
    digest: String,
    figures: Vec<RowJson>,
}

#[derive(Serialize)]
struct RowJson {
    key: String,
    value: String,
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    source: String,
    meaning: String,
}

/// Runs a command.
pub(crate) fn run(command: MediaCommand) -> anyhow::Result<()> {
    match command {
        MediaCommand::Measure(args) => crate::measure::run(&args),
        MediaCommand::List { config, json } => list(&registry(config.as_deref())?, json),
        MediaCommand::Show { name, config, set, json } => {
            show(&registry(config.as_deref())?, &name, &set, json)
        }
    }
}

/// The built-in presets and those of the user's file.
pub(crate) fn registry(config: Option<&Path>) -> anyhow::Result<Registry> {
    let mut registry = Registry::builtin()?;
    if let Some(file) = config {
        let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
            anyhow::anyhow!("{}:{line}: not UTF-8; a preset file is TOML text", file.display())
        })?;
        registry.add(&file.display().to_string(), text)?;
    }
    Ok(registry)
}

fn list(registry: &Registry, json: bool) -> anyhow::Result<()> {
    let entries = registry.list();
    if json {
        let entries: Vec<EntryJson> = entries
            .into_iter()
            .map(|e| EntryJson {
                name: format!("{}.{}", e.kind.word(), e.name),
                kind: e.kind.word().to_owned(),
                about: e.about,
            })
            .collect();
        return emit_json(&entries);
    }
    let mut table = Table::new(&["<preset", "<description"]);
    for entry in entries {
        table.row(vec![format!("{}.{}", entry.kind.word(), entry.name), entry.about]);
    }
    emit_text(&table.render())
}

fn show(registry: &Registry, name: &str, set: &[String], json: bool) -> anyhow::Result<()> {
    deepram_sim::simulation::set_once(set)?;
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let sheet = registry.resolve_with(name, &set)?;
    let rows = sheet.rows()?;
    if json {
        let figures = rows
            .into_iter()
            .map(|r| RowJson {
                key: r.key,
                value: r.value,
                unit: r.unit,
                condition: r.condition,
                source: r.source,
                meaning: r.meaning.to_owned(),
            })
            .collect();
        return emit_json(&SheetJson { name: sheet.full_name(), digest: sheet.digest(), figures });
    }
    let mut table = Table::new(&["<key", "value", "<unit", "<meaning", "<source"]);
    for row in rows {
        let source = match row.condition {
            Some(condition) => format!("{} ({condition})", row.source),
            None => row.source,
        };
        table.row(vec![row.key, row.value, row.unit, row.meaning.to_owned(), source]);
    }
    emit_text(&format!(
        "{}: {}\n\n{}\ndigest {}\n",
        sheet.full_name(),
        sheet.about(),
        table.render(),
        sheet.digest()
    ))
}
