//! The traces: synthetic stand-ins, or recordings in their place.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use deepram_sim::{SimError, requests};
use deepram_trace::workload::standin::{Collection, PUBLISHED, PublishedTrace, StandIn};
use deepram_trace::{ObjectPlacement, ReadOptions, Request, TraceReader};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::ReproError;

/// A recording of a trace that the paper used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFile {
    /// Name of the trace in the paper's Table III, such as `fin1`.
    pub name: String,
    /// The file, in any format of a block trace with times.
    pub path: PathBuf,
}

/// The sources of requests of all traces.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    /// A stand-in for each trace, in the order of Table III.
    pub(super) stand_ins: Vec<Source>,
    /// The same with the recordings in place of their stand-ins; `None` without recordings.
    pub(super) recorded: Option<Vec<Source>>,
}

/// A source of requests of one trace.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The trace, with the figures that the paper publishes.
    pub(super) target: &'static PublishedTrace,
    recording: Option<Recording>,
}

#[derive(Debug, Clone)]
struct Recording {
    path: Arc<PathBuf>,
    /// SHA-256 of the contents, in hexadecimal.
    digest: String,
}

/// Placement of objects, of which block traces have none.
const OBJECTS: ObjectPlacement = ObjectPlacement { slot_bytes: 4096, slots: 1 };

/// Requests of a source.
pub(super) type Requests = Box<dyn Iterator<Item = Result<Request, SimError>>>;

impl Sources {
    /// The stand-ins, with these recordings in place of some of them.
    ///
    /// # Errors
    /// A recording is not of one of the paper's traces, cannot be read, or is named twice.
    pub(super) fn new(files: &[TraceFile]) -> Result<Self, ReproError> {
        let stand_ins: Vec<Source> =
            PUBLISHED.iter().map(|target| Source { target, recording: None }).collect();
        let mut recorded = stand_ins.clone();
        for file in files {
            let source = recorded.iter_mut().find(|source| source.target.trace == file.name);
            let source = source.ok_or_else(|| ReproError::Unknown {
                what: "trace",
                name: file.name.clone(),
                known: PUBLISHED.iter().map(|target| target.trace).collect::<Vec<_>>().join(", "),
            })?;
            if source.recording.is_some() {
                return Err(ReproError::contents(
                    &file.path,
                    format!("a second recording of {}; give one", file.name),
                ));
            }
            source.recording = Some(Recording::new(file)?);
        }
        Ok(Self { stand_ins, recorded: (!files.is_empty()).then_some(recorded) })
    }

    /// Each source once: the stand-ins, then the recordings.
    pub(super) fn all(&self) -> impl Iterator<Item = &Source> {
        let recorded = self.recorded.iter().flatten().filter(|source| source.recording.is_some());
        self.stand_ins.iter().chain(recorded)
    }

    /// Names of the recordings, for titles.
    pub(super) fn recordings(&self) -> String {
        let recorded = self.recorded.iter().flatten().filter(|source| source.recording.is_some());
        let names: Vec<String> = recorded.map(Source::title).collect();
        names.join(", ")
    }
}

impl Recording {
    fn new(file: &TraceFile) -> Result<Self, ReproError> {
        let mut input = File::open(&file.path).map_err(ReproError::io(&file.path, "opening"))?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
        loop {
            match input.read(&mut buffer).map_err(ReproError::io(&file.path, "reading"))? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
        let digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path: Arc::new(file.path.clone()), digest })
    }

    /// The requests, an error among them for a request without a time.
    fn requests(&self) -> Result<Requests, SimError> {
        let reader =
            TraceReader::open(self.path.as_path(), &ReadOptions { rebase: true, ..ReadOptions::default() })
                .map_err(SimError::Trace)?;
        let path = Arc::clone(&self.path);
        let timed = move |request: Result<Request, SimError>| match request {
            Ok(Request { time_ps: None, .. }) => Err(SimError::Config {
                key: "trace".into(),
                why: format!("{} has requests without times; its replay needs them", path.display()),
            }),
            request => request,
        };
        Ok(Box::new(requests(reader, OBJECTS).map(timed)))
    }
}

impl Source {
    /// Name in names of runs.
    pub(super) fn label(&self) -> String {
        let recorded = if self.recording.is_some() { ".recorded" } else { "" };
        format!("{}{recorded}", self.target.trace)
    }

    /// Name for readers, which says whether the trace is synthetic.
    pub(super) fn title(&self) -> String {
        let kind = if self.recording.is_some() { "recorded" } else { "synthetic" };
        format!("{} ({kind})", self.target.trace)
    }

    /// The collection that the trace belongs to.
    pub(super) fn group(&self) -> Collection {
        self.target.collection
    }

    /// Everything that the requests depend on besides the code and the seed.
    pub(super) fn identity(&self) -> Value {
        match &self.recording {
            None => json!({ "stand-in": self.target.trace }),
            Some(recording) => json!({ "recording": self.target.trace, "sha256": recording.digest }),
        }
    }

    /// The requests; the first `most` of them if a number is given, at the times of the whole trace.
    pub(super) fn requests(&self, seed: u64, most: Option<u64>) -> Result<Requests, SimError> {
        let all = match &self.recording {
            Some(recording) => recording.requests()?,
            None => Box::new(StandIn::new(self.target, seed).map(Ok)),
        };
        Ok(match most {
            Some(most) => Box::new(all.take(usize::try_from(most).unwrap_or(usize::MAX))),
            None => all,
        })
    }
}

/// The collections, in the order of the figures, with their names there.
pub(super) const GROUPS: [(Collection, &str); 3] =
    [(Collection::Msrc, "MSRC"), (Collection::Mse, "MSE"), (Collection::Financial, "Financial")];

/// Name of a collection in names of metrics.
pub(super) fn group_key(group: Collection) -> &'static str {
    match group {
        Collection::Msrc => "msrc",
        Collection::Mse => "mse",
        Collection::Financial => "financial",
    }
}

/// Error of a run's simulation.
pub(super) fn failed(run: &str) -> impl Fn(SimError) -> ReproError + '_ {
    move |source| ReproError::Simulation { run: run.into(), source: Box::new(source) }
}

/// Error of a trace, as an error of a simulation.
pub(super) fn trace_error(why: &dyn std::fmt::Display) -> SimError {
    SimError::Config { key: "trace".into(), why: why.to_string() }
}
