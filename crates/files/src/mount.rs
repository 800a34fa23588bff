//! Mounting: the session with the kernel, periodic syncs, unmounting.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use deepram_linux::signals::spawn;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::mount::UnmountFlags;

use crate::error::FilesError;
use crate::files::Files;
use crate::fuse::Front;

/// The device through which the kernel asks.
const DEVICE: &str = "/dev/fuse";
/// Type of the file system in the list of mounts.
const TYPE: &str = "fuse.deepram";

/// How often an unmount of files in use is tried again, and after how long.
const BUSY_TRIES: u32 = 20;
const BUSY_WAIT: Duration = Duration::from_millis(25);

/// Failure to mount or unmount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// This process may not use FUSE.
    #[error(
        "files cannot be mounted here: {DEVICE} cannot be opened ({source}); `modprobe fuse` may help, or in a container the option \
             `--device {DEVICE} --cap-add SYS_ADMIN`"
    )]
    Unavailable {
        /// Error of the device.
        source: io::Error,
    },
    /// The mount point is no directory.
    #[error("{}: not a directory to mount at: {source}", path.display())]
    Place {
        /// The mount point.
        path: PathBuf,
        /// The problem.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("{}: {what} failed: {source}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// "mounting" or "unmounting".
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// No pool is mounted there.
    #[error("{}: no pool is mounted there", path.display())]
    NotMounted {
        /// The place.
        path: PathBuf,
    },
    /// Programs have files open.
    #[error("{}: in use; close the files first, or end the programs that have them open", path.display())]
    InUse {
        /// The mount point.
        path: PathBuf,
    },
    /// The file system could not be closed.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// How a file system is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Name of the file system in the list of mounts: the pool's file.
    pub source: String,
    /// Threads that serve the kernel.
    pub threads: usize,
    /// Longest time after which a change is durable without `fsync`; none: never by itself.
    pub commit: Option<Duration>,
    /// Whether the kernel collects writes in its page cache and sends many at once.
    pub writeback: bool,
    /// Whether reads and writes bypass the kernel's page cache; memory that is mapped is in it nevertheless.
    pub direct: bool,
}

/// A mounted file system. [`Mounted::finish`] ends it.
#[derive(Debug)]
pub struct Mounted {
    files: Arc<Files>,
    at: PathBuf,
    unmounter: SessionUnmounter,
    session: JoinHandle<io::Result<()>>,
    commits: Option<(Sender<()>, JoinHandle<()>)>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

/// Mounts a file system on a directory. `ended` is called when it is unmounted.
///
/// # Errors
/// [`MountError::Unavailable`], [`MountError::Place`], [`MountError::Refused`]. The file system is then still open.
pub fn mount(
    files: &Arc<Files>,
    at: &Path,
    options: &MountOptions,
    ended: impl FnOnce() + Send + 'static,
) -> Result<Mounted, MountError> {
    let place = |source| MountError::Place { path: at.into(), source };
    let at = fs::canonicalize(at).map_err(place)?;
    if !at.is_dir() {
        return Err(place(io::ErrorKind::NotADirectory.into()));
    }
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(|source| MountError::Unavailable { source })?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::CUSTOM("subtype=deepram".into()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
        if files.is_writable() { MountOption::RW } else { MountOption::RO },
    ];
    // The kernel lets only the superuser show files to other users.
    let is_root = rustix::process::geteuid().is_root();
    config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    let front = Front { files: Arc::clone(files), writeback: options.writeback, direct: options.direct };
    let refused = |source| MountError::Refused { path: at.clone(), what: "mounting", source };
    let mut session = Session::new(front, &at, &config).map_err(refused)?;
    let unmounter = session.unmount_callable();
    let session = spawn("deepram-files", None, move || {
        let result = session.run();
        ended();
        result
    });
    let commits = options.commit.filter(|_| files.is_writable()).map(|period| commits(files, period));
    Ok(Mounted {
        files: Arc::clone(files),
        at: at.clone(),
        unmounter,
        session: session.map_err(refused)?,
        commits: commits.transpose().map_err(refused)?,
    })
}

/// Starts the thread that syncs.
fn commits(files: &Arc<Files>, period: Duration) -> io::Result<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel();
    let files = Arc::clone(files);
    let thread = spawn("deepram-commit", None, move || {
        while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            // Nothing is lost by a sync that fails. The next `fsync`, or the last sync, reports the problem if it is still there.
            let _ = files.sync();
        }
    })?;
    Ok((stop, thread))
}

impl Mounted {
    /// Takes the file system out of the tree of directories. It goes on until the last file is closed.
    ///
    /// # Errors
    /// [`MountError::Refused`].
    pub fn detach(&mut self) -> Result<(), MountError> {
        if self.unmounter.unmount().is_ok() {
            return Ok(());
        }
        let refused = |error: rustix::io::Errno| MountError::Refused {
            path: self.at.clone(),
            what: "unmounting",
            source: error.into(),
        };
        rustix::mount::unmount(&self.at, UnmountFlags::DETACH).map_err(refused)
    }

    /// Syncs and closes the pool. Files that programs still have open then report errors.
    ///
    /// # Errors
    /// The errors of [`Files::close`], and of the session.
    pub fn finish(self) -> Result<(), MountError> {
        if let Some((stop, thread)) = self.commits {
            drop(stop);
            // The runtime has already reported a panic of the thread.
            let _ = thread.join();
        }
        let session = if self.session.is_finished() { self.session.join() } else { Ok(Ok(())) };
        self.files.close()?;
        session
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
            .map_err(|source| MountError::Refused { path: self.at, what: "serving the kernel", source })
    }
}

/// Returns the source of the pool that is mounted at a directory.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::Place`].
pub fn mounted_pool(at: &Path) -> Result<PathBuf, MountError> {
    let not_mounted = || MountError::NotMounted { path: at.into() };
    let place = |source| MountError::Place { path: at.into(), source };
    let resolved = match (fs::canonicalize(at), at.parent(), at.file_name()) {
        (Ok(resolved), ..) => resolved,
        // The path of a mount whose process was killed cannot be resolved, but its parent's can.
        (Err(_), Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            fs::canonicalize(parent).map_err(place)?.join(name)
        }
        (Err(source), ..) => return Err(place(source)),
    };
    let mounts = fs::read("/proc/self/mountinfo")
        .map_err(|source| MountError::Place { path: "/proc/self/mountinfo".into(), source })?;
    let mut found =
        mounts.split(|&byte| byte == b'\n').filter_map(mount_line).filter(|mount| mount.0 == resolved);
    found.next_back().map(|mount| mount.1).ok_or_else(not_mounted)
}

/// The mount point and the source of a line of the list of mounts, if it is ours.
fn mount_line(line: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.split(|&byte| byte == b' ');
    let at = unescape(fields.nth(4)?);
    fields.find(|field| *field == b"-")?;
    (fields.next()? == TYPE.as_bytes()).then(|| fields.next().map(|source| (at, unescape(source))))?
}

/// Replaces the octal escapes of the list of mounts.
fn unescape(field: &[u8]) -> PathBuf {
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < field.len() {
        let escaped = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let value = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(value.unwrap_or(field[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Unmounts a pool.
///
/// # Errors
/// [`MountError::NotMounted`], [`MountError::InUse`], [`MountError::Refused`].
pub fn unmount(at: &Path) -> Result<(), MountError> {
    mounted_pool(at)?;
    let refused = |source| MountError::Refused { path: at.into(), what: "unmounting", source };
    let mut result = rustix::mount::unmount(at, UnmountFlags::empty());
    // A file that was closed a moment ago may still be in use: by the kernel, or by a child that is about to execute a program.
    for _ in 0..BUSY_TRIES {
        if result != Err(rustix::io::Errno::BUSY) {
            break;
        }
        std::thread::sleep(BUSY_WAIT);
        result = rustix::mount::unmount(at, UnmountFlags::empty());
    }
    match result {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(MountError::InUse { path: at.into() }),
        // Other users than the superuser unmount by a program that may.
        Err(rustix::io::Errno::PERM) => {
            let done = Command::new("fusermount3").arg("-u").arg(at).status().map_err(refused)?;
            if done.success() { Ok(()) } else { Err(MountError::InUse { path: at.into() }) }
        }
        Err(error) => Err(refused(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_mounted_pools_are_read() {
        let line =
            b"36 35 0:61 / /mnt/a\\040b rw,noatime shared:1 - fuse.deepram /tmp/x\\134y.pool rw,user_id=0";
        assert_eq!(mount_line(line), Some(("/mnt/a b".into(), "/tmp/x\\y.pool".into())));
        let other = b"36 35 98:0 / /mnt rw - ext4 /dev/vda rw";
        assert_eq!(mount_line(other), None);
        assert_eq!(mount_line(b""), None);
    }
}
