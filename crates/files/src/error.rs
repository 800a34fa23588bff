//! Errors of the file system.

use deepram_pool::PoolError;

/// Failure of an operation. Nothing has changed then, unless the operation's description says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// The pool refused a call.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// No entry has this name.
    #[error("there is no such file or directory")]
    NotFound,
    /// An entry has this name already.
    #[error("a file or directory of this name exists already")]
    Exists,
    /// The operation needs a directory.
    #[error("the file is not a directory")]
    NotADirectory,
    /// The operation needs something else than a directory.
    #[error("the file is a directory")]
    IsADirectory,
    /// A directory that is to be removed or replaced has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is longer than 255 bytes, or the target of a symbolic link longer than 4095.
    #[error("the name has {bytes} bytes: at most {most} are possible")]
    NameTooLong {
        /// Length of the name, bytes.
        bytes: usize,
        /// Largest possible length, bytes.
        most: usize,
    },
    /// An argument makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// A file would exceed the largest size.
    #[error("the file would be larger than {most} bytes")]
    TooLarge {
        /// Largest possible size, bytes.
        most: u64,
    },
    /// The file has as many names as it can have.
    #[error("the file has the largest possible number of names")]
    TooManyLinks,
    /// All inodes are in use.
    #[error("the file system has {0} files and directories, as many as it can have")]
    TooManyFiles(u64),
    /// The inode number belongs to no file.
    #[error("inode {0} is not in use")]
    Stale(u64),
    /// The file system is mounted for reading only.
    #[error("the file system is open for reading only")]
    ReadOnly,
    /// The pool holds no file system in the state that is asked for.
    #[error("the pool holds no files{}: mount it once for writing, which makes an empty file system", at_token(*.0))]
    NoFiles(Option<u64>),
    /// The pool holds a file system of another version.
    #[error("the files of this pool have format {found}, but this deepram reads format {known}")]
    Version {
        /// Version of the pool's file system.
        found: u64,
        /// Version that this library reads.
        known: u64,
    },
    /// A structure contradicts another one.
    #[error("the file system is damaged: {0}")]
    Damaged(String),
    /// A change could neither be completed nor be taken back.
    #[error("the file system has stopped: {0}; mount it again, which returns to the last sync")]
    Stopped(String),
}

/// Result of an operation of the file system.
pub type Result<T> = std::result::Result<T, FilesError>;

fn at_token(token: Option<u64>) -> String {
    token.map_or_else(String::new, |token| format!(" at token {token}"))
}

impl FilesError {
    /// The error number with which a system call reports this failure.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Pool(PoolError::NoSpace { .. } | PoolError::NoAddressSpace { .. })
            | Self::TooManyFiles(_) => libc::ENOSPC,
            Self::Pool(_) | Self::Damaged(_) | Self::Stopped(_) | Self::Version { .. } | Self::NoFiles(_) => {
                libc::EIO
            }
            Self::NotFound => libc::ENOENT,
            Self::Exists => libc::EEXIST,
            Self::NotADirectory => libc::ENOTDIR,
            Self::IsADirectory => libc::EISDIR,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::NameTooLong { .. } => libc::ENAMETOOLONG,
            Self::Invalid(_) => libc::EINVAL,
            Self::TooLarge { .. } => libc::EFBIG,
            Self::TooManyLinks => libc::EMLINK,
            Self::Stale(_) => libc::ESTALE,
            Self::ReadOnly => libc::EROFS,
        }
    }
}
