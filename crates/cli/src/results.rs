//! Result files: the JSON results of a bench or a reproduction, with the machine, commit and command that made them.
//!
//! Each run writes a new file `BENCH-DATE-COMMIT.json`; no run changes an older file, so a folder of result files is the
//! history of the measurements.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One result file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultFile {
    /// The bench, as in `deepram bench NAME`, or `repro-PAPER`.
    pub(crate) bench: String,
    pub(crate) machine: Machine,
    /// Abbreviated commit of the repository that holds the executable; `None` for an installed executable.
    pub(crate) commit: Option<String>,
    /// Command line.
    pub(crate) command: String,
    /// Load average over one minute at the start of the run.
    pub(crate) load: Option<f64>,
    /// Start of the run, RFC 3339; a date alone in a file that was recorded by hand.
    pub(crate) date: String,
    /// Version of deepram.
    pub(crate) version: String,
    /// Whether the file was written by hand from figures published before benches wrote result files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) recorded: bool,
    /// Conditions that no other field holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// The bench's `--json` output.
    pub(crate) results: Value,
}

/// The machine of a run. A field is `None` where the system, or a recorded file, does not tell it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) cpu: Option<String>,
    pub(crate) cores: Option<usize>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) kernel: Option<String>,
    pub(crate) filesystem: Option<String>,
    pub(crate) device: Option<String>,
}

impl Machine {
    /// This machine; file system and device are those of `folder`.
    fn here(folder: Option<&Path>) -> Self {
        let line = |path: &str, name: &str| {
            let text = fs::read_to_string(path).ok()?;
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(rest.trim_start_matches([' ', '\t', ':']).to_owned())
        };
        let memory =
            line("/proc/meminfo", "MemTotal").and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
        let mount = folder.and_then(mount);
        Self {
            cpu: line("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().ok().map(usize::from),
            memory_bytes: memory.map(|kib| kib << 10),
            kernel: Some(rustix::system::uname().release().to_string_lossy().into_owned()),
            filesystem: mount.as_ref().map(|(filesystem, _)| filesystem.clone()),
            device: mount.map(|(_, device)| device),
        }
    }
}

/// Type and source device of the file system that holds `folder`.
fn mount(folder: &Path) -> Option<(String, String)> {
    let device = fs::metadata(folder).ok()?.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    parse_mount(&fs::read_to_string("/proc/self/mountinfo").ok()?, &number)
}

/// The entry of device `number` in the text of `/proc/self/mountinfo`.
fn parse_mount(mountinfo: &str, number: &str) -> Option<(String, String)> {
    mountinfo.lines().find_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let mut fields = source.split(' ');
        let found = mount.split(' ').nth(2)? == number;
        found.then(|| Some((fields.next()?.to_owned(), fields.next()?.to_owned())))?
    })
}

/// The commit of the repository that holds this executable, with `-dirty` after it if tracked files differ from that commit.
fn commit() -> Option<String> {
    let folder = std::env::current_exe().ok()?.parent()?.to_path_buf();
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=7", "HEAD"]).filter(|commit| !commit.is_empty())?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if clean { commit } else { format!("{commit}-dirty") })
}

/// The circumstances of a run, taken at its start.
pub(crate) struct RunContext {
    file: ResultFile,
}

impl RunContext {
    /// Takes machine, load, date and commit. `folder` is the folder on the measured device, if the bench uses one.
    pub(crate) fn begin(bench: impl Into<String>, folder: Option<&Path>) -> Self {
        let load = fs::read_to_string("/proc/loadavg").ok();
        let words: Vec<_> = std::env::args().skip(1).collect();
        Self {
            file: ResultFile {
                bench: bench.into(),
                machine: Machine::here(folder),
                commit: commit(),
                command: format!("deepram {}", words.join(" ")),
                load: load.and_then(|text| text.split(' ').next()?.parse().ok()),
                date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
                version: env!("CARGO_PKG_VERSION").into(),
                recorded: false,
                note: None,
                results: Value::Null,
            },
        }
    }

    /// Writes a new result file to `folder`, which is created if it does not exist. Returns the path of the file.
    ///
    /// # Errors
    /// The folder or the file cannot be created or written.
    pub(crate) fn write(mut self, folder: &Path, results: Value) -> anyhow::Result<PathBuf> {
        self.file.results = results;
        fs::create_dir_all(folder).with_context(|| format!("--results {}", folder.display()))?;
        let path = folder.join(self.file.name());
        let mut text = serde_json::to_string_pretty(&self.file)?;
        text.push('\n');
        let write = || File::create_new(&path)?.write_all(text.as_bytes());
        write().with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

impl ResultFile {
    /// Name of the file: bench, date and commit, or the version where there is no commit.
    fn name(&self) -> String {
        let date: String = self.date.chars().filter(|c| *c != ':').collect();
        let version = format!("v{}", self.version);
        format!("{}-{date}-{}.json", self.bench, self.commit.as_ref().unwrap_or(&version))
    }
}

/// Reads every result file in `folder`, newest first; files of the same date in the order of their names.
///
/// # Errors
/// The folder cannot be read, or one of its `.json` files is not a result file.
pub(crate) fn read_all(folder: &Path) -> anyhow::Result<Vec<(String, ResultFile)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let file: ResultFile = serde_json::from_str(&text)
            .with_context(|| format!("{}: not a result file of deepram bench or repro", path.display()))?;
        ensure!(!file.bench.is_empty(), "{}: the name of the bench is missing", path.display());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push((name, file));
    }
    files.sort_by(|(name, file), (other_name, other)| other.date.cmp(&file.date).then(name.cmp(other_name)));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_file_is_read_back_as_it_was_written_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("new");
        let context = || RunContext::begin("open", Some(folder.path()));
        let path = context().write(&results, serde_json::json!([{"size_bytes": 7}])).unwrap();
        let again = RunContext { file: ResultFile { date: context().file.date, ..context().file } };
        let read = read_all(&results).unwrap();
        assert_eq!(read.len(), 1);
        let (name, file) = &read[0];
        assert_eq!(path.file_name().unwrap().to_str(), Some(name.as_str()));
        assert!(name.starts_with("open-2") && !name.contains(':'), "{name}");
        assert_eq!(file.results[0]["size_bytes"], 7);
        assert_eq!(file.machine.cores, std::thread::available_parallelism().ok().map(usize::from));
        assert!(file.machine.memory_bytes > Some(1 << 20) && file.machine.kernel.is_some(), "{file:?}");
        assert!(file.command.starts_with("deepram ") && !file.recorded);
        let mut same = again;
        same.file.date.clone_from(&file.date);
        same.file.commit.clone_from(&file.commit);
        assert!(same.write(&results, Value::Null).is_err(), "an existing file is kept");
    }

    #[test]
    fn files_are_read_newest_first_and_other_json_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for (date, bench) in [("2026-11-22", "a"), ("2026-11-24T10:00:00Z", "b"), ("2026-11-23", "c")] {
            let mut context = RunContext::begin(bench, None);
            context.file.date = date.into();
            context.write(folder.path(), Value::Null).unwrap();
        }
        fs::write(folder.path().join("chart.svg"), "<svg/>").unwrap();
        let benches: Vec<_> =
            read_all(folder.path()).unwrap().into_iter().map(|(_, file)| file.bench).collect();
        assert_eq!(benches, ["b", "c", "a"]);
        fs::write(folder.path().join("other.json"), "{}").unwrap();
        assert!(format!("{:#}", read_all(folder.path()).unwrap_err()).contains("other.json"));
    }

    #[test]
    fn the_mount_of_a_device_is_found() {
        let text = "\
24 1 0:20 / /proc rw - proc proc rw
30 25 259:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
";
        assert_eq!(parse_mount(text, "259:1"), Some(("ext4".into(), "/dev/vda1".into())));
        assert_eq!(parse_mount(text, "9:9"), None);
    }
}
