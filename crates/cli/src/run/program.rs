//! Finds the program of a run and checks that the dynamic loader can load a library into it.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::bail;
use object::read::elf::{ElfFile64, ProgramHeader};

/// The program does not exist or cannot be executed.
#[derive(Debug)]
pub(crate) struct CannotStart {
    /// Exit status of `deepram run`, as a shell would give it.
    pub(crate) status: u8,
    reason: String,
}

impl CannotStart {
    const NOT_FOUND: u8 = 127;
    const NOT_EXECUTABLE: u8 = 126;

    fn not_executable(reason: String) -> anyhow::Error {
        Self { status: Self::NOT_EXECUTABLE, reason }.into()
    }

    /// The error of the kernel for the program at this path.
    pub(super) fn from_io(error: &io::Error, path: &Path) -> Self {
        let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let status = if missing { Self::NOT_FOUND } else { Self::NOT_EXECUTABLE };
        Self { status, reason: format!("{}: {error}", path.display()) }
    }
}

impl fmt::Display for CannotStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CannotStart {}

/// Most nested interpreters: the interpreter of a script may be a script.
const INTERPRETERS: usize = 4;

/// Finds the program of this name as a shell would.
///
/// # Errors
/// There is no such program, or the loader cannot load a library into it; the message gives the reason.
pub(super) fn find(name: &OsStr) -> anyhow::Result<PathBuf> {
    let path = if name.as_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        let all = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&all).map(|folder| folder.join(name)).find(|path| is_program(path));
        let reason = || format!("{}: no such program in PATH", name.display());
        found.ok_or_else(|| CannotStart { status: CannotStart::NOT_FOUND, reason: reason() })?
    };
    let mut executable = path.clone();
    for _ in 0..INTERPRETERS {
        match interpreter(&executable)? {
            Some(next) => executable = next,
            None => return Ok(path),
        }
    }
    bail!("{}: more than {INTERPRETERS} nested script interpreters", path.display())
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// The interpreter of a script; `None` for a program into which the loader can load a library.
fn interpreter(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let shown = path.display();
    let data = path.metadata().map_err(|error| CannotStart::from_io(&error, path))?;
    if !is_program(path) {
        return Err(CannotStart::not_executable(format!("{shown} is not an executable file")));
    }
    let not_ours = rustix::process::geteuid().as_raw() != 0 || data.uid() != 0;
    if data.permissions().mode() & 0o6000 != 0 && not_ours {
        bail!("{shown} is set-uid or set-gid: the dynamic loader ignores LD_PRELOAD for such programs");
    }
    let mut file = std::fs::File::open(path).map_err(|error| CannotStart::from_io(&error, path))?;
    let mut bytes = Vec::new();
    file.by_ref().take(256).read_to_end(&mut bytes)?;
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (first, rest) = line.split_at(end);
        if first.ends_with(b"/env") {
            let words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let name = words.into_iter().find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
            return name.map(|name| find(OsStr::from_bytes(name))).transpose();
        }
        return Ok(Some(PathBuf::from(OsStr::from_bytes(first))));
    }
    file.read_to_end(&mut bytes)?;
    let Ok(elf) = ElfFile64::<object::Endianness>::parse(&*bytes) else {
        return Err(CannotStart::not_executable(format!(
            "{shown} is neither a script nor a 64-bit ELF program"
        )));
    };
    let endian = elf.endian();
    let loaded = elf.elf_program_headers().iter().any(|part| part.p_type(endian) == object::elf::PT_INTERP);
    if !loaded {
        bail!(
            "{shown} is statically linked: the preload library cannot page its memory; link the program \
             dynamically"
        );
    }
    Ok(None)
}
