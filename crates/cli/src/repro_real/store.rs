//! The stores under test: one process each, on memory of a kind.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use deepram_linux::slow_memory::Machine;

use super::client::Protocol;
use super::packages::Packages;
use super::workload::RECORDS;
use crate::run::{MediaProgram, MediaSpec};

/// Debian's Python, for which its packages are built.
const PYTHON: &str = "/usr/bin/python3";
/// Longest wait for a store to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum App {
    Memcached,
    Redis,
    Lmdb,
    Sqlite,
}

impl App {
    pub(super) const ALL: [Self; 4] = [Self::Memcached, Self::Redis, Self::Lmdb, Self::Sqlite];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
            Self::Lmdb => "lmdb",
            Self::Sqlite => "sqlite",
        }
    }

    /// Whether it keeps its records in a file, and not in its memory.
    pub(super) const fn has_file(self) -> bool {
        matches!(self, Self::Lmdb | Self::Sqlite)
    }

    pub(super) const fn protocol(self) -> Protocol {
        match self {
            Self::Redis => Protocol::Redis,
            _ => Protocol::Memcached,
        }
    }

    /// Debian's packages.
    pub(super) const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Memcached => &["memcached"],
            Self::Redis => &["redis-tools", "redis-server"],
            Self::Lmdb => &["python3-lmdb"],
            Self::Sqlite => &[],
        }
    }

    fn command(
        self,
        packages: Option<&Packages>,
        file: &Path,
        fill_mib: u32,
        prefixes: &[String],
        port: u16,
    ) -> anyhow::Result<Vec<OsString>> {
        let program = |name: &str| {
            packages
                .and_then(|all| all.program(name))
                .with_context(|| format!("there is no {name} in Debian's packages"))
        };
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let mut all = Vec::new();
        match self {
            Self::Memcached => {
                all.push(program("memcached")?.into());
                let user = if rustix::process::geteuid().is_root() { &["-u", "root"][..] } else { &[] };
                all.extend(words(user));
                all.extend(words(&[
                    "-l",
                    "127.0.0.1",
                    "-p",
                    &port.to_string(),
                    "-m",
                    "2048",
                    "-t",
                    "1",
                    "-c",
                    "200",
                ]));
            }
            Self::Redis => {
                all.push(program("redis-server")?.into());
                all.extend(words(&[
                    "--bind",
                    "127.0.0.1",
                    "--port",
                    &port.to_string(),
                    "--save",
                    "",
                    "--daemonize",
                    "no",
                ]));
                all.extend(words(&["--logfile", "/dev/null", "--dir", "/"]));
            }
            Self::Lmdb | Self::Sqlite => {
                all.extend(words(&[PYTHON, "-c", include_str!("server.py"), self.name()]));
                all.push(file.into());
                all.extend([fill_mib.to_string().into(), RECORDS.to_string().into()]);
                all.extend(prefixes.iter().map(OsString::from));
            }
        }
        Ok(all)
    }
}

/// A running store. Dropping it ends the process and removes its file.
#[derive(Debug)]
pub(super) struct Store {
    child: Child,
    pub(super) port: u16,
    file: PathBuf,
    _bus: Option<OwnedFd>,
}

/// What a store runs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Emulated memory; none: this machine's.
    pub(super) media: Option<(&'a MediaSpec, &'a Machine)>,
    /// Folder of its file.
    pub(super) folder: &'a Path,
    /// Records that its file has before those of the workload, MiB.
    pub(super) fill_mib: u32,
}

impl Store {
    /// Starts a store and waits until it accepts connections. A store with a file writes the records of all prefixes first.
    ///
    /// # Errors
    /// The program is not there or does not start; the message says why.
    pub(super) fn start(
        app: App,
        packages: Option<&Packages>,
        place: Place<'_>,
        prefixes: &[String],
    ) -> anyhow::Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let file = place.folder.join(format!("deepram-real-{}-{}", std::process::id(), app.name()));
        let words = app.command(packages, &file, place.fill_mib, prefixes, port)?;
        let (mut command, bus) = match place.media {
            Some((spec, machine)) => {
                let (command, bus) = MediaProgram::on_machine(spec, &words, Some(machine))?.into_parts();
                (command, Some(bus))
            }
            None => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]);
                (command, None)
            }
        };
        command.envs(packages.map(Packages::variables).into_iter().flatten());
        command.stdin(Stdio::null()).stdout(if app.has_file() { Stdio::piped() } else { Stdio::null() });
        let child = command.spawn().with_context(|| format!("starting {}", app.name()))?;
        let mut store = Self { child, port, file, _bus: bus };
        store.wait(app)?;
        Ok(store)
    }

    fn wait(&mut self, app: App) -> anyhow::Result<()> {
        if let Some(stdout) = self.child.stdout.take() {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line)?;
            self.port = line.trim().parse().with_context(|| format!("{} did not start", app.name()))?;
            return Ok(());
        }
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended with {status} before it accepted connections", app.name());
            }
            if begin.elapsed() > PATIENCE {
                bail!("{} accepts no connections after {PATIENCE:?}", app.name());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A process that has ended already cannot be killed; a file that was never made cannot be removed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for end in ["", "-lock", "-wal", "-shm"] {
            let mut name = self.file.clone().into_os_string();
            name.push(end);
            let _ = std::fs::remove_file(name);
        }
    }
}
