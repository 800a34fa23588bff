//! The journal of a sweep: finished outcomes, durable one by one.
//!
//! A line is `{"key":"<64 hexadecimal digits>",` followed by the outcome without its first brace. A kill can leave the
//! last line torn; opening the journal cuts it off.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;

use super::error::SweepError;

/// The name of the journal in the output folder.
const NAME: &str = "journal.jsonl";
/// The digits of a key.
const KEY: usize = 64;
const BEFORE_KEY: &str = "{\"key\":\"";
const AFTER_KEY: &str = "\",";

/// The finished outcomes of a sweep in its output folder.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// The bytes of complete lines.
    len: u64,
    /// Position and length of each outcome, by key.
    outcomes: BTreeMap<String, (u64, usize)>,
}

/// The parts of a line that are checked when it is read.
#[derive(Deserialize)]
struct Line {
    key: String,
    status: String,
}

impl Journal {
    /// Opens the journal in a folder, and makes both if they do not exist. Cuts off a torn last line.
    ///
    /// # Errors
    /// The folder or file cannot be made, read or written; another process has the journal open; a line before the last
    /// one is no line of a journal.
    pub fn open(folder: &Path) -> Result<Self, SweepError> {
        std::fs::create_dir_all(folder).map_err(SweepError::io(folder, "creating the folder"))?;
        let path = folder.join(NAME);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(SweepError::io(&path, "opening"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why =
                    "another sweep writes to this folder; wait for its end, or give another folder".into();
                return Err(SweepError::Output { path, why });
            }
            Err(TryLockError::Error(error)) => return Err(SweepError::io(&path, "locking")(error)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(SweepError::io(&path, "reading"))?;
        let mut outcomes = BTreeMap::new();
        let mut len = 0;
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            match parse(line) {
                Some(key) => {
                    let start = BEFORE_KEY.len() + KEY + AFTER_KEY.len();
                    let at = len as u64 + start as u64;
                    outcomes.entry(key).or_insert((at, line.len() - start - 1));
                }
                None if len + line.len() == text.len() => break,
                None => {
                    let why = format!(
                        "line {} is no line of a journal; remove the line to repeat its point, or give another folder",
                        number + 1
                    );
                    return Err(SweepError::Output { path, why });
                }
            }
            len += line.len();
        }
        if len < text.len() {
            file.set_len(len as u64).map_err(SweepError::io(&path, "cutting off the torn last line"))?;
        }
        file.seek(SeekFrom::Start(len as u64)).map_err(SweepError::io(&path, "seeking"))?;
        let inner = Mutex::new(Inner { file, len: len as u64, outcomes });
        Ok(Self { path, inner })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the journal has the outcome of this key.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.lock().outcomes.contains_key(key)
    }

    /// Adds an outcome of [`Sweep::outcome`](super::Sweep::outcome). It is durable when the call returns. A second
    /// outcome of the same key is ignored.
    ///
    /// # Errors
    /// The key or outcome has another form; the file cannot be written.
    pub fn append(&self, key: &str, outcome: &str) -> Result<(), SweepError> {
        let rest = outcome.strip_prefix('{').unwrap_or(outcome);
        let line = format!("{BEFORE_KEY}{key}{AFTER_KEY}{rest}\n");
        if parse(line.as_bytes()).is_none_or(|parsed| parsed != key) {
            let why = format!("the outcome of key {key:?} is no object of one line");
            return Err(SweepError::Output { path: self.path.clone(), why });
        }
        let mut inner = self.lock();
        if inner.outcomes.contains_key(key) {
            return Ok(());
        }
        let at = inner.len;
        // A failed write may have left a part of a line behind: the next line takes its place.
        inner.file.write_all_at(line.as_bytes(), at).map_err(SweepError::io(&self.path, "writing"))?;
        inner.file.sync_data().map_err(SweepError::io(&self.path, "flushing"))?;
        let start = BEFORE_KEY.len() + KEY + AFTER_KEY.len();
        inner.len += line.len() as u64;
        inner.outcomes.insert(key.to_owned(), (at + start as u64, line.len() - start - 1));
        Ok(())
    }

    /// The outcome of a key; `None` if the journal lacks it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn outcome(&self, key: &str) -> Result<Option<String>, SweepError> {
        let inner = self.lock();
        let Some(&(at, len)) = inner.outcomes.get(key) else { return Ok(None) };
        let mut bytes = vec![0; len];
        inner.file.read_exact_at(&mut bytes, at).map_err(SweepError::io(&self.path, "reading"))?;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(format!("{{{text}"))),
            Err(_) => {
                let why = "the file changed while it was in use; repeat the sweep in another folder".into();
                Err(SweepError::Output { path: self.path.clone(), why })
            }
        }
    }
}

/// The key of a line; `None` if it is no complete line of a journal.
fn parse(line: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let key = line.strip_prefix(BEFORE_KEY)?.get(..KEY)?;
    let hexadecimal = key.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !hexadecimal || !line[BEFORE_KEY.len() + KEY..].starts_with(AFTER_KEY) || line.contains('\n') {
        return None;
    }
    let parsed: Line = serde_json::from_str(line).ok()?;
    (parsed.key == key && matches!(parsed.status.as_str(), "done" | "failed")).then(|| key.to_owned())
}
