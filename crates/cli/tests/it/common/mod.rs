//! Running the command in a folder of its own.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

pub(crate) mod paged;
pub(crate) mod prometheus;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Exit status and output of a command.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// Returns the standard output; fails if the command did.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.status, 0, "{self:?}");
        self.out
    }

    /// Returns the standard output as JSON; fails if the command did.
    pub(crate) fn json(self) -> Value {
        let text = self.good();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the one line of the standard error; fails unless the command ended with this status.
    pub(crate) fn error(self, status: i32) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        self.err
    }
}

/// Makes a temporary folder on a real disk; dropping it removes it.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("making a folder")
}

/// Runs `deepram` with these arguments, in `folder`.
pub(crate) fn deepram(folder: &Path, arguments: &[&str]) -> Run {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_deepram"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("running deepram");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { status: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}
