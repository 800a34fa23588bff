//! `deepram media`: the technologies and devices that the simulator knows.

use clap::Subcommand;
use deepram_media::Registry;
use serde::Serialize;

use crate::output::{Table, emit_json, emit_text};

/// What to do with the presets.
#[derive(Debug, Subcommand)]
pub(crate) enum MediaCommand {
    /// List every preset
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show a preset: every figure with its unit and source
    ///
    /// NAME is what `deepram media list` prints, such as nand.slc; the part before the point may
    /// be left out where the rest is unique.
    Show {
        /// The preset
        name: String,
        /// Show it with other figures: key=value, such as read=30us
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

pub(crate) fn run(command: MediaCommand) -> anyhow::Result<()> {
    let registry = Registry::builtin()?;
    match command {
        MediaCommand::List { json } => list(&registry, json),
        MediaCommand::Show { name, set, json } => show(&registry, &name, &set, json),
    }
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
    let mut table = Table::new(&["<preset", "<what it is"]);
    for entry in entries {
        table.row(vec![format!("{}.{}", entry.kind.word(), entry.name), entry.about]);
    }
    emit_text(&table.render())
}

fn show(registry: &Registry, name: &str, set: &[String], json: bool) -> anyhow::Result<()> {
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let sheet = registry.sheet_with(name, &set)?;
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
    let mut table = Table::new(&["<figure", "value", "<unit", "<meaning", "<source"]);
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
