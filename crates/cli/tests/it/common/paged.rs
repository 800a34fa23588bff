//! Builds programs that run with paged memory, and the library that pages it.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the commands, libraries and examples of the workspace. Returns their folder, which is that of the command.
pub(crate) fn binaries() -> &'static Path {
    deepram_testkit::build_workspace(env!("CARGO_TARGET_TMPDIR"))
}

/// Builds the library that is loaded into programs, in the command's folder.
pub(crate) fn library() -> PathBuf {
    binaries().join("libdeepram_preload.so")
}

/// Returns a command that is killed after `seconds`, with every process of its group: a remaining child would keep the command's
/// output open for ever.
pub(crate) fn within(seconds: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", &seconds.to_string()]).arg(program);
    command
}

/// Compiles a program of `tests/programs`. Returns None and prints the reason where there is no compiler or no paging.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    if let Err(error) = deepram_pager::available() {
        eprintln!("skipped: memory cannot be paged here ({error})");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Other tests compile and run the same program at the same time: the rename makes it appear complete.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let new = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-pthread", "-o"]).arg(&new).arg(&source);
    match compiler.status() {
        Ok(status) => {
            assert!(status.success(), "{} does not compile", source.display());
            std::fs::rename(&new, &built).expect("the program takes its place");
        }
        Err(error) => {
            eprintln!("skipped: no C compiler ({error})");
            return None;
        }
    }
    Some(built)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
