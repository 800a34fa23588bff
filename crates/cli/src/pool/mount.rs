//! `deepram pool mount` and `deepram pool umount`: the files of a pool as a file system.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use deepram_core::Bytes;
use deepram_files::{Files, MountOptions};
use deepram_pool::{Epoch, ListenAddress, Mapping, OpenOptions, Pool};
use rustix::fs::FlockOperation;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::names;
use crate::Usage;
use crate::output::{count, emit_text};
use crate::trace::record::Recording;

/// Fewest threads that serve the kernel: while one of them syncs, others read.
const LEAST_THREADS: usize = 4;
/// Time between two looks at a pool that is being closed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Options of `deepram pool mount`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MountArgs {
    /// All files or block devices of the pool
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Directory to mount at
    #[arg(value_name = "DIR", required = true)]
    dir: PathBuf,
    /// DRAM budget of the pool; the kernel's page cache, which it takes back when programs need memory, comes on top
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    dram: Bytes,
    /// Mount for reading only, and leave the pool as it is
    #[arg(long)]
    read_only: bool,
    /// Show the files as they were at this token, as listed by `history`, for reading only
    #[arg(long, value_name = "TOKEN")]
    at: Option<u64>,
    /// Seconds after which changes are durable without fsync; 0: only by fsync and at the end
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    commit: u64,
    /// Threads that serve the kernel [default: one for each processor, at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: Option<u64>,
    /// Send each write to the pool at once, instead of collecting writes in the kernel's page cache
    #[arg(long)]
    write_through: bool,
    /// Bypass the kernel's page cache, so that the pool's DRAM is all that files use; mapped memory is in it nevertheless
    #[arg(long)]
    direct: bool,
    /// Serve the pool's statistics over HTTP meanwhile: /metrics (Prometheus), /stats.json and /stats. ADDRESS is unix:PATH, or
    /// HOST:PORT with a loopback address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,
    /// Record which segments are missing in the DRAM cache and which clean ones are written first, as a trace in this file, which
    /// must not exist; it is written at the end
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Return when the files are mounted, and go on in the background
    #[arg(long)]
    background: bool,
}

/// Options of `deepram pool umount`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UmountArgs {
    /// Directory that a pool is mounted at
    #[arg(value_name = "DIR", required = true)]
    dir: PathBuf,
}

/// Mounts a pool, and serves it until it is unmounted.
pub(crate) fn mount(args: &MountArgs) -> anyhow::Result<()> {
    if args.background {
        return in_background(args);
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("handling signals")?;
    let handle = signals.handle();
    let recording = args.record.as_deref().map(|out| Recording::new("--record", out)).transpose()?;
    let options = OpenOptions {
        listen: args.listen.clone(),
        record_faults_to: recording.as_ref().map(|recording| recording.folder().to_owned()),
        ..OpenOptions::new(args.dram.0)
    };
    let pool = Pool::open(&args.paths, &options.mapping(Mapping::Off))?;
    if let Some(address) = pool.listen_address()?.filter(|address| Some(address) != args.listen.as_ref()) {
        // The port that was chosen for port 0. In the background, standard error is closed.
        let _ = writeln!(std::io::stderr(), "deepram pool mount: listening on {address}");
    }
    let files = match args.at {
        None if !args.read_only => Files::open(pool)?,
        token => Files::open_read_only(pool, token.map(Epoch))?,
    };
    let files = Arc::new(files);
    let processors = available_parallelism().map_or(1, usize::from);
    let options = MountOptions {
        source: source(&args.paths)?,
        threads: args.threads.map_or(processors.max(LEAST_THREADS), |threads| threads as usize),
        commit: Some(Duration::from_secs(args.commit)).filter(|period| !period.is_zero()),
        writeback: !args.write_through && !args.direct,
        direct: args.direct,
    };
    let mut mounted = match deepram_files::mount(&files, &args.dir, &options, move || handle.close()) {
        Ok(mounted) => mounted,
        Err(error) => {
            // The pool stays as it was; the caller gets the first error.
            let _ = files.pool().clone().abandon();
            return Err(error.into());
        }
    };
    emit_text(&mounted_line(args))?;
    // The first signal unmounts, which takes effect when the last file is closed. A second one does not wait for that.
    let mut is_detached = false;
    for _ in signals.forever() {
        if std::mem::replace(&mut is_detached, true) {
            break;
        }
        mounted.detach()?;
    }
    mounted.finish()?;
    if let (Some(recording), Some(out)) = (recording, &args.record) {
        let written = recording.finish()?;
        // In the background, standard error is closed.
        let _ = writeln!(std::io::stderr(), "{} page faults are in {}", count(written), out.display());
    }
    Ok(())
}

fn mounted_line(args: &MountArgs) -> String {
    let token = args.at.map_or_else(String::new, |token| format!(" as of token {token}"));
    let dir = args.dir.display();
    format!("mounted {}{token} at {dir}; end with: deepram pool umount {dir}\n", names(&args.paths))
}

/// The name in the list of mounts: the absolute path of the pool's first file.
fn source(paths: &[PathBuf]) -> anyhow::Result<String> {
    let path = std::path::absolute(&paths[0])?;
    // Commas divide the options of a mount.
    match path.to_str().filter(|text| !text.contains(',')) {
        Some(text) => Ok(text.to_owned()),
        None => bail!(Usage(format!(
            "{}: a pool that is mounted has a name in UTF-8 without commas",
            path.display()
        ))),
    }
}

/// Starts this command again without `--background`, and waits until it has mounted the files.
fn in_background(args: &MountArgs) -> anyhow::Result<()> {
    let mut words: Vec<OsString> = vec!["pool".into(), "mount".into()];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| OsString::from(format!("--{name}={value}"))));
    };
    option("dram", Some(args.dram.0.to_string()));
    option("at", args.at.map(|token| token.to_string()));
    option("commit", Some(args.commit.to_string()));
    option("threads", args.threads.map(|threads| threads.to_string()));
    // The process in the background has another current folder.
    let address = args.listen.clone().map(|address| match address {
        ListenAddress::Unix(path) => std::path::absolute(path).map(ListenAddress::Unix),
        loopback @ ListenAddress::Loopback(_) => Ok(loopback),
    });
    let record = args.record.as_ref().map(std::path::absolute).transpose()?;
    option("record", record.map(|path| path.to_string_lossy().into_owned()));
    option("listen", address.transpose()?.map(|address| address.to_string()));
    let flags =
        [("--read-only", args.read_only), ("--write-through", args.write_through), ("--direct", args.direct)];
    words.extend(flags.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.into()));
    words.push("--".into());
    for path in args.paths.iter().chain([&args.dir]) {
        words.push(std::path::absolute(path)?.into());
    }
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command.args(words).current_dir("/").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting the process in the background")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut line = String::new();
    BufReader::new(stdout.context("the output of the process")?).read_line(&mut line)?;
    if !line.is_empty() {
        return emit_text(&mounted_line(args));
    }
    let mut said = String::new();
    stderr.context("the errors of the process")?.read_to_string(&mut said)?;
    let status = child.wait()?;
    match said.trim_end().strip_prefix("error: ") {
        Some(error) => bail!("{error}"),
        None => bail!("the process in the background ended with {status}: {}", said.trim_end()),
    }
}

/// Unmounts a pool, and waits until its process has closed it.
pub(crate) fn umount(args: &UmountArgs) -> anyhow::Result<()> {
    let pool = deepram_files::mounted_pool(&args.dir)?;
    deepram_files::unmount(&args.dir)?;
    wait_until_closed(&pool)?;
    emit_text(&format!("unmounted {}\n", args.dir.display()))
}

/// Waits until no process has the pool open.
fn wait_until_closed(pool: &Path) -> anyhow::Result<()> {
    let file = std::fs::File::open(pool).with_context(|| pool.display().to_string())?;
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)
        == Err(rustix::io::Errno::WOULDBLOCK)
    {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
